use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use octavo_api::config::{OverflowPolicy, ShareClass, Strictness};
use octavo_gpu::{
    Driver, DriverError, DriverHandle, DriverVersions, EventStream, Gpu, GpuHealth, GpuProcess,
    UnreadableGpu,
};
use octavo_guard_abi::SOCKET_FILE;
use octavo_guard_abi::limits::{ShareGate, Terms};
use octavo_node::ClaimRef;
use octavo_testkit::eventually;
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use super::consumers::ClaimConsumers;
use super::visibility::BlindSpot;
use super::{Dependencies, Notify, Watchdog, WatchedNode};
use crate::backend::BackendKind;
use crate::metrics::EnforcementMetrics;
use crate::share::files::{self, LimitsFile};
use crate::share::{ActiveShare, ShareFinding};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A driver with counts set by the test, and its number of polls.
#[derive(Default)]
struct CountingDriver {
    lists: Mutex<BTreeMap<String, Vec<GpuProcess>>>,
    asked: AtomicUsize,
}

impl Driver for CountingDriver {
    fn versions(&self) -> Result<DriverVersions, DriverError> {
        Err(DriverError::NotFound { call: "none" })
    }

    fn gpus(&self) -> Result<Vec<Result<Gpu, UnreadableGpu>>, DriverError> {
        Ok(Vec::new())
    }

    fn health(&self, _: &str) -> Result<GpuHealth, DriverError> {
        Err(DriverError::NotFound { call: "none" })
    }

    fn events(&self) -> Result<Box<dyn EventStream>, DriverError> {
        Err(DriverError::NotFound { call: "none" })
    }

    fn processes(&self, uuid: &str) -> Result<Vec<GpuProcess>, DriverError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(self.lists.lock().unwrap().get(uuid).cloned().unwrap_or_default())
    }
}

struct Silent;

impl Notify for Silent {
    fn share(&self, _: &ActiveShare, _: ShareFinding) {}

    fn foreign_processes(&self, _: &str, _: &[u32]) {}

    fn visibility(&self, _: &str, _: Option<BlindSpot>, _: Option<BlindSpot>) {}
}

/// A running watchdog, with its inputs.
struct Fixture {
    folder: TempDir,
    driver: Arc<CountingDriver>,
    shares: watch::Sender<Arc<[ActiveShare]>>,
    drivers: watch::Sender<DriverHandle>,
    task: tokio::task::JoinHandle<()>,
}

impl Fixture {
    fn start() -> Self {
        let driver = Arc::<CountingDriver>::default();
        let open: Arc<dyn Driver> = driver.clone();
        let (drivers, opened) = watch::channel(DriverHandle::of(&open));
        let shares = watch::Sender::new(Arc::default());
        let dependencies = Dependencies {
            watched: WatchedNode {
                name: "node".to_owned(),
                cgroup_root: PathBuf::from("/sys/fs/cgroup"),
                interval: Duration::from_millis(20),
                has_time_leases: false,
                swap: None,
                shares: shares.subscribe(),
                driver: Box::new(move || opened.borrow().clone()),
            },
            metrics: Arc::new(EnforcementMetrics::new(&mut Registry::default())),
            notifier: Arc::new(Silent),
            consumers: Some(Arc::new(ClaimConsumers::new().0)),
            gpu_time: None,
            tasks: TaskTracker::new(),
        };
        let task = tokio::spawn(Watchdog::new(dependencies).run());
        Self { folder: tempfile::tempdir().unwrap(), driver, shares, drivers, task }
    }

    fn share(&self) -> ActiveShare {
        let share = ActiveShare {
            claim: ClaimRef {
                namespace: "team".to_owned(),
                name: "a".to_owned(),
                uid: "uid".to_owned(),
            },
            pool: "node".to_owned(),
            device: "gpu-0".to_owned(),
            share_id: "s".to_owned(),
            gpu_uuid: "GPU-1".to_owned(),
            folder: self.folder.path().join("uid_s"),
            memory_bytes: 1 << 30,
            memory_request: 1 << 30,
            swap_unit: octavo_api::config::SwapUnit::default(),
            compute_milli_percent: 0,
            compute_limit: None,
            quantum_ms: None,
            overflow: OverflowPolicy::Hold,
            strictness: Strictness::Lenient,
            class: ShareClass::Normal,
            backend: Some(BackendKind::Guard),
            generation: 1,
        };
        let terms = Terms { generation: 1, memory_bytes: share.memory_bytes, ..Terms::default() };
        files::write(&share.folder, &terms, 0).unwrap();
        share
    }

    fn asked(&self) -> usize {
        self.driver.asked.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn the_driver_is_asked_while_there_are_shares_and_not_otherwise() {
    let fixture = Fixture::start();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.asked(), 0);
    let share = fixture.share();
    fixture.shares.send_replace([share.clone()].into());
    eventually("looks", || fixture.asked() > 3).await;
    assert!(share.folder.join(SOCKET_FILE).exists());
    fixture.shares.send_replace(Arc::default());
    // The share is removed between two polls, so no later poll uses it.
    eventually("nobody listens", || {
        std::os::unix::net::UnixStream::connect(share.folder.join(SOCKET_FILE)).is_err()
    })
    .await;
    let asked = fixture.asked();
    sleep(Duration::from_millis(200)).await;
    assert_eq!(fixture.asked(), asked);
    fs::remove_dir_all(&share.folder).unwrap();
    // The next share with the same name starts from scratch.
    let share = fixture.share();
    fixture.shares.send_replace([share.clone()].into());
    eventually("a socket", || share.folder.join(SOCKET_FILE).exists()).await;
}

#[tokio::test]
async fn a_driver_that_is_closed_is_waited_for() {
    let fixture = Fixture::start();
    fixture.drivers.send_replace(DriverHandle::default());
    let share = fixture.share();
    fixture.shares.send_replace([share.clone()].into());
    eventually("a socket", || share.folder.join(SOCKET_FILE).exists()).await;
    assert_eq!(fixture.asked(), 0);
    let open: Arc<dyn Driver> = fixture.driver.clone();
    fixture.drivers.send_replace(DriverHandle::of(&open));
    eventually("looks", || fixture.asked() > 0).await;
}

#[tokio::test]
async fn this_process_is_found_by_its_connection_and_its_share_is_held() {
    use std::io::Write as _;
    let fixture = Fixture::start();
    let share = fixture.share();
    let process = GpuProcess { pid: std::process::id(), used_bytes: Some(2 << 30) };
    fixture.driver.lists.lock().unwrap().insert("GPU-1".to_owned(), vec![process]);
    fixture.shares.send_replace([share.clone()].into());
    eventually("looks", || fixture.asked() > 3).await;
    let gate = || LimitsFile::open(&share.folder).unwrap().live().unwrap().gate;
    assert_eq!(gate(), ShareGate::Open, "it is nobody's");
    let mut guard =
        std::os::unix::net::UnixStream::connect(share.folder.join(SOCKET_FILE)).unwrap();
    let hello =
        octavo_guard_abi::message::Frame::new(octavo_guard_abi::message::Kind::Hello, 0, 1, b"");
    guard.write_all(&hello.encode()).unwrap();
    eventually("a held gate", || gate() == ShareGate::Paused).await;
    fixture.driver.lists.lock().unwrap().clear();
    eventually("an open gate", || gate() == ShareGate::Open).await;
}

#[tokio::test]
async fn the_watch_ends_with_the_claims() {
    let fixture = Fixture::start();
    drop(fixture.shares);
    tokio::time::timeout(TIMEOUT, fixture.task).await.unwrap().unwrap();
}
