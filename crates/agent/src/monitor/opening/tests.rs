use octavo_health::signal::LinkSeverity;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;

use super::super::{HealthInputs, MonitorRequests, Snapshot, Waker, start};
use super::*;
use crate::health::{NodeHealth, RecordFile};
use crate::metrics::Metrics;
use crate::testing::{self, TestDriver, uuid};

const BOOT: &str = "boot";

/// A folder with the record of a node, whose second of two GPUs is fenced.
fn recorded() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut health = NodeHealth::open(Some(file(&folder)), BOOT);
    health.set_gpus(&testing::inventory(2), 0);
    health.xid(&uuid(1), 48, LinkSeverity::Unknown, 1);
    health.decide(1, |_| false);
    assert!(health.store());
    folder
}

fn file(folder: &tempfile::TempDir) -> RecordFile {
    RecordFile::new(folder.path().join("health.json"))
}

/// An agent's thread on a node with a record.
fn agent(
    folder: &tempfile::TempDir,
    open: Opener,
) -> (watch::Receiver<Snapshot>, Waker, DropGuard) {
    let stop = CancellationToken::new();
    let (requests, waker) = MonitorRequests::new(watch::channel(Some(false)).1);
    let inputs = HealthInputs {
        record: Some(file(folder)),
        boot_id: BOOT.to_owned(),
        ..HealthInputs::default()
    };
    let metrics = Arc::new(Metrics::new(&mut Registry::default()));
    let modules = Box::new(|| None);
    let snapshots = start("node", open, modules, requests, inputs, metrics, stop.clone()).unwrap();
    (snapshots, waker, stop.drop_guard())
}

fn states(snapshot: &Snapshot) -> Vec<(&str, &str)> {
    let devices = snapshot.devices.iter();
    devices.map(|device| (device.name.as_str(), device.state.as_str())).collect()
}

#[tokio::test]
async fn fences_are_shown_though_the_driver_lists_no_gpu() {
    let folder = recorded();
    let driver = TestDriver::new(0);
    let open: Opener = Box::new(move || Ok(Arc::new(driver.clone())));
    let (mut snapshots, waker, _stop) = agent(&folder, open);
    timeout(Duration::from_secs(20), waker.serve()).await.unwrap();
    let shown = snapshots.wait_for(|snapshot| !snapshot.devices.is_empty());
    let shown = timeout(Duration::from_secs(20), shown).await.unwrap().unwrap();
    assert_eq!(states(&shown), [("gpu-1", "Fenced")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_are_not_shown_without_their_fences() {
    let folder = recorded();
    let driver = TestDriver::new(2);
    let (go, wait) = std::sync::mpsc::channel();
    let open: Opener = Box::new(move || {
        // The driver takes its time.
        wait.recv().unwrap();
        Ok(Arc::new(driver.clone()))
    });
    let (mut snapshots, waker, _stop) = agent(&folder, open);
    let serving = tokio::spawn(async move { waker.serve().await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    go.send(()).unwrap();
    let first = snapshots.wait_for(|snapshot| snapshot.inventory.is_some());
    let first = timeout(Duration::from_secs(20), first).await.unwrap().unwrap().clone();
    assert_eq!(states(&first), [("gpu-0", "Healthy"), ("gpu-1", "Fenced")]);
    timeout(Duration::from_secs(20), serving).await.unwrap().unwrap();
}
