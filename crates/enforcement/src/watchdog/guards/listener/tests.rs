use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use octavo_guard_abi::SOCKET_FILE;
use octavo_guard_abi::message::{Frame, Kind, SIZE};
use octavo_testkit::eventually;
use tokio::time::{Instant, sleep};

use super::{FRAME_BURST, FRAME_INTERVAL, FramePacer, GuardListener};
use crate::process::Process;
use crate::process::proc::Proc;
use crate::watchdog::guards::connection_quota::ConnectionQuota;
use crate::watchdog::guards::reports::GuardReports;

fn proc() -> Proc {
    Proc::new("/proc".into())
}

fn open(folder: &Path, quota: usize) -> (GuardListener, Arc<GuardReports>) {
    let guard_reports = Arc::<GuardReports>::default();
    let listener = GuardListener::open(
        folder,
        Arc::clone(&guard_reports),
        proc(),
        ConnectionQuota::new(quota).for_share("s"),
        None,
    );
    (listener.unwrap(), guard_reports)
}

fn this_process() -> Process {
    let pid = std::process::id();
    Process { pid, start_time: proc().stat(pid).unwrap().start_time }
}

fn frame(kind: Kind, value: u64) -> [u8; SIZE] {
    Frame::new(kind, 0, value, b"").encode()
}

/// Whether the other side has closed a connection.
fn is_closed(stream: &UnixStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut byte = [0];
    matches!(std::io::Read::read(&mut &*stream, &mut byte), Ok(0))
        || std::io::Read::read(&mut &*stream, &mut byte)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

#[tokio::test]
async fn a_guard_says_who_it_is_by_connecting() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, guard_reports) = open(folder.path(), 8);
    let path = folder.path().join(SOCKET_FILE);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    let mut guard = UnixStream::connect(&path).unwrap();
    guard.write_all(&frame(Kind::Hello, 1)).unwrap();
    guard.write_all(&frame(Kind::Refused, 5)).unwrap();
    let mut refused = 0;
    eventually("a frame", || {
        refused += guard_reports.take_new().refused;
        refused == 5
    })
    .await;
    assert!(guard_reports.is_connected(this_process()));
    drop(guard);
    eventually("the end", || !guard_reports.is_connected(this_process())).await;
    assert!(listener.is_in_place());
}

#[tokio::test]
async fn what_is_no_frame_closes_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (_listener, guard_reports) = open(folder.path(), 8);
    let path = folder.path().join(SOCKET_FILE);
    for first in [[0xff; SIZE], frame(Kind::Refused, 1)] {
        let mut stranger = UnixStream::connect(&path).unwrap();
        stranger.write_all(&first).unwrap();
        eventually("a closed connection", || is_closed(&stranger)).await;
    }
    let mut guard = UnixStream::connect(&path).unwrap();
    guard.write_all(&frame(Kind::Hello, 1)).unwrap();
    guard.write_all(&[0xff; SIZE]).unwrap();
    eventually("a closed connection", || is_closed(&guard)).await;
    assert_eq!(guard_reports.take_new().refused, 0);
}

#[tokio::test]
async fn a_new_agent_takes_the_place_of_the_old_one_s_socket() {
    let folder = tempfile::tempdir().unwrap();
    let (old, _) = open(folder.path(), 8);
    let (new, guard_reports) = open(folder.path(), 8);
    assert!(!old.is_in_place() && new.is_in_place());
    drop(old);
    let mut guard = UnixStream::connect(folder.path().join(SOCKET_FILE)).unwrap();
    guard.write_all(&frame(Kind::Hello, 1)).unwrap();
    eventually("a connection", || guard_reports.is_connected(this_process())).await;
    // Leftovers of a killed agent do not matter.
    fs::write(folder.path().join(super::TEMP_SOCKET), "").unwrap();
    open(folder.path(), 8);
    drop(new);
    eventually("the end of the connection", || is_closed(&guard)).await;
}

#[tokio::test]
async fn a_folder_may_have_a_longer_path_than_a_socket() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("x".repeat(120)).join("y".repeat(40));
    fs::create_dir_all(&folder).unwrap();
    let (listener, _) = open(&folder, 8);
    assert!(listener.is_in_place());
    fs::remove_dir_all(&folder).unwrap();
    assert!(!listener.is_in_place());
    assert!(
        GuardListener::open(
            &folder,
            Arc::default(),
            proc(),
            ConnectionQuota::new(1).for_share("s"),
            None,
        )
        .is_err()
    );
}

#[tokio::test]
async fn a_container_cannot_take_all_of_the_agent_s_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let (_listener, guard_reports) = open(folder.path(), 2);
    let path = folder.path().join(SOCKET_FILE);
    let guards: Vec<_> = (0..6)
        .map(|_| {
            let mut guard = UnixStream::connect(&path).unwrap();
            // One that is turned away may be so already.
            let _ = guard.write_all(&frame(Kind::Hello, 1));
            guard
        })
        .collect();
    eventually("four that are turned away", || guards.iter().filter(|g| is_closed(g)).count() == 4)
        .await;
    assert!(guard_reports.is_connected(this_process()));
    drop(guards);
    eventually("the end", || !guard_reports.is_connected(this_process())).await;
    // There is room again.
    let mut guard = UnixStream::connect(&path).unwrap();
    guard.write_all(&frame(Kind::Hello, 1)).unwrap();
    eventually("a connection", || guard_reports.is_connected(this_process())).await;
}

#[tokio::test(start_paused = true)]
async fn frames_are_taken_at_a_pace() {
    let pacer = FramePacer::default();
    let began = Instant::now();
    for _ in 0..FRAME_BURST {
        pacer.take().await;
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "a burst is free");
    for _ in 0..1000 {
        pacer.take().await;
    }
    assert!(began.elapsed() >= FRAME_INTERVAL * 990, "{:?}", began.elapsed());
    sleep(Duration::from_mins(1)).await;
    let later = Instant::now();
    for _ in 0..FRAME_BURST {
        pacer.take().await;
    }
    assert_eq!(later.elapsed(), Duration::ZERO);
}
