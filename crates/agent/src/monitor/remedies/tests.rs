use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;

use octavo_health::policy::{Mode, Policy};
use octavo_health::signal::Attempt;
use octavo_health::state::Rules;
use octavo_testkit::eventually;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::reboot::tests::{program, rebooter};
use super::*;
use crate::health::{Orders, Permit, RecordFile};
use crate::metrics::Metrics;
use crate::monitor::{HealthInputs, MonitorRequests, Opener, start};
use crate::testing::{TestDriver, lost, uuid};

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_hangs_in_the_driver_is_in_no_reboot_s_way() {
    let folder = tempfile::tempdir().unwrap();
    let (_program, mut child) = program("systemd");
    let driver = TestDriver::new(1);
    driver.set_health(0, Err(lost()));
    let opened = driver.clone();
    let open: Opener = Box::new(move || Ok(Arc::new(opened.clone())));
    let inputs = HealthInputs {
        record: Some(RecordFile::new(folder.path().join("health.json"))),
        boot_id: "boot".to_owned(),
        rebooter: rebooter(&child),
        ..HealthInputs::default()
    };
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    let (_release, released) = watch::channel(Some(false));
    let (requests, waker) = MonitorRequests::new(released);
    let metrics = Arc::new(Metrics::new(&mut Registry::default()));
    let mut snapshots =
        start("node", open, Box::new(|| None), requests, inputs, metrics, stop).unwrap();
    waker.serve().await;
    let snapshot = timeout(TIMEOUT, snapshots.wait_for(|found| found.driver.get().is_some()));
    let hanging = snapshot.await.unwrap().unwrap().driver.get().unwrap();
    let permit = Permit { after: Attempt(0), remedy: Remedy::Reboot, since: u64::MAX };
    // This driver does not say which processes a lost GPU has.
    let rules = Rules { stuck: 0, ..Rules::default() };
    let policy = Policy { mode: Mode::Act, rules, ..Policy::default() };
    let permits = [(uuid(0), permit)].into();
    waker.set_orders(Orders { policy, permits, ..Orders::default() });
    let mut ended = None;
    eventually("systemd is asked", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    })
    .await;
    assert_eq!(ended.unwrap().signal(), Some(rustix::process::Signal::INT.as_raw()));
    drop(hanging);
}
