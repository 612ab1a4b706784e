//! Whether shares are held to their part of the GPU's time.

use std::io::Read as _;
use std::os::unix::net::UnixStream;

use octavo_api::config::OverflowPolicy;
use octavo_guard_abi::SOCKET_FILE;
use octavo_guard_abi::message::Kind;

use super::LIMIT;
use super::fixtures::Fixture;
use crate::gpu_time::GpuTime;

#[tokio::test]
async fn a_process_with_an_old_guard_is_not_held_to_the_share_s_time() {
    let mut fixture = Fixture::new();
    fixture.gpu_time = Some(GpuTime::start().unwrap());
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    fixture.adopt();
    fixture.look(&[]);
    let connect = || UnixStream::connect(share.folder.join(SOCKET_FILE)).unwrap();
    let mut new = connect();
    Fixture::say(&mut new, Kind::Hello, 1, "lease page 1");
    // The answer comes once the process has joined.
    new.set_nonblocking(false).unwrap();
    let mut answer = [0; 1];
    let read = tokio::task::spawn_blocking(move || {
        assert_eq!(new.read(&mut answer).unwrap(), 1);
        new
    });
    let new = read.await.unwrap();
    fixture.look(&[]);
    assert_eq!(fixture.reported(), [""; 0]);
    let mut old = connect();
    Fixture::say(&mut old, Kind::Hello, 1, "");
    fixture.look_until(|fixture| !fixture.reported().is_empty()).await;
    fixture.look(&[]);
    let start = format!("a OldGuard TimeEnforced=false: process {} of", std::process::id());
    let reported = fixture.reported();
    assert!(reported.len() == 1 && reported[0].starts_with(&start), "{reported:?}");
    assert!(reported[0].contains("delete the pod"), "{reported:?}");
    drop((old, new));
    fixture.look_until(|fixture| fixture.reported().len() == 2).await;
    let reported = fixture.reported();
    assert!(reported[1].starts_with("a Leases TimeEnforced=true: all processes"), "{reported:?}");
}

#[tokio::test]
async fn leases_that_could_not_be_started_are_reported() {
    let mut fixture = Fixture::new();
    fixture.share("a", LIMIT, OverflowPolicy::Kill);
    fixture.adopt();
    fixture.look(&[]);
    assert_eq!(fixture.reported(), [""; 0], "no leases are wanted");
    fixture.reconciler().lacks_leases = true;
    for _ in 0..3 {
        fixture.look(&[]);
    }
    let reported = fixture.reported();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].starts_with("a LeasesStopped TimeEnforced=false: "), "{reported:?}");
}
