use std::sync::Mutex;

use octavo_gpu::{FabricState, GpuEvent, GpuEventKind, RecoveryAction};
use octavo_health::reason::Reason;
use prometheus_client::registry::Registry;
use tokio::time::timeout;

use super::*;
use crate::health::GpuState;
use crate::testing::{TestDriver, advice, lost, mig, uuid, well};

/// Longer than anything here takes: a test that waits this long has failed.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Upper bound of the time until a MIG change by hand is noticed.
const MIG_NOTICE_TIME: Duration = Duration::from_secs(15);

/// Starts the thread with all kernel modules and without a record.
fn start_monitor(
    open: Opener,
    requests: MonitorRequests,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> watch::Receiver<Snapshot> {
    start("node", open, Box::new(|| None), requests, HealthInputs::default(), metrics, stop)
        .unwrap()
}

fn is_well(snapshot: &Snapshot) -> bool {
    snapshot.health.values().all(GpuState::takes_pods)
}

/// UUIDs of the GPUs that take no pods.
fn fenced(snapshot: &Snapshot) -> Vec<String> {
    let fenced = snapshot.health.iter().filter(|(_, state)| !state.takes_pods());
    fenced.map(|(uuid, _)| uuid.clone()).collect()
}

fn reason(snapshot: &Snapshot, index: u32) -> Option<Reason> {
    snapshot.health.get(&uuid(index))?.fence?.reason
}

struct Watched {
    driver: TestDriver,
    snapshots: watch::Receiver<Snapshot>,
    release: watch::Sender<Option<bool>>,
    waker: Waker,
    stop: CancellationToken,
}

impl Watched {
    fn start(driver: TestDriver) -> Self {
        let opened = driver.clone();
        Self::start_with(driver, Box::new(move || Ok(Arc::new(opened.clone()))))
    }

    fn start_with(driver: TestDriver, open: Opener) -> Self {
        let stop = CancellationToken::new();
        let metrics = Arc::new(Metrics::new(&mut Registry::default()));
        let (release, released) = watch::channel(Some(false));
        let (requests, waker) = MonitorRequests::new(released);
        let snapshots = start_monitor(open, requests, metrics, stop.clone());
        Self { driver, snapshots, release, waker, stop }
    }

    fn set_release(&self, wanted: bool) {
        self.release.send_replace(Some(wanted));
        self.waker.look();
    }

    async fn until(&mut self, what: impl FnMut(&Snapshot) -> bool) -> Snapshot {
        timeout(TIMEOUT, self.snapshots.wait_for(what)).await.unwrap().unwrap().clone()
    }

    /// Waits for this many listeners. An ended listener counts until the next event.
    async fn listeners(&self, count: usize) {
        let listening = async {
            while self.driver.listeners() < count {
                tokio::task::yield_now().await;
            }
        };
        timeout(TIMEOUT, listening).await.unwrap();
    }

    /// Sends an XID once a listener exists.
    async fn xid(&self, index: Option<u32>, number: u64) {
        self.listeners(1).await;
        let (kind, uuid) = (GpuEventKind::Xid(number), index.map(uuid));
        self.driver.send(&Ok(GpuEvent { uuid, kind, gpu_instance: None, compute_instance: None }));
    }

    /// Sends an XID of a GPU repeatedly until a listener of that GPU receives it. An earlier listener may have ended or
    /// may not monitor this GPU.
    async fn xid_until_received(&mut self, index: u32, number: u64) -> Snapshot {
        let received = async {
            loop {
                self.xid(Some(index), number).await;
                let sick = self.snapshots.wait_for(|snapshot| !is_well(snapshot));
                if let Ok(snapshot) = timeout(Duration::from_millis(50), sick).await {
                    break snapshot.unwrap().clone();
                }
            }
        };
        timeout(TIMEOUT, received).await.unwrap()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test]
async fn an_xid_concerns_its_gpu_alone_and_passes_when_the_driver_is_content() {
    let mut watched = Watched::start(TestDriver::new(4));
    let first = watched.until(|snapshot| snapshot.inventory.is_some()).await;
    assert!(is_well(&first));
    watched.driver.set_health(2, Ok(advice(RecoveryAction::GpuReset)));
    watched.xid(Some(2), 48).await;
    let sick = watched.until(|snapshot| !is_well(snapshot)).await;
    assert_eq!(fenced(&sick), [uuid(2)]);
    assert_eq!(reason(&sick, 2), Some(Reason::Xid(48)));
    watched.driver.set_health(2, Ok(well()));
    watched.until(is_well).await;
}

#[tokio::test]
async fn failed_event_stream_finds_the_lost_gpu_and_resubscribes() {
    let mut watched = Watched::start(TestDriver::new(4));
    watched.until(|snapshot| snapshot.inventory.is_some()).await;
    // The current listener receives a failure that names no GPU.
    watched.xid(Some(0), 13).await;
    watched.driver.set_health(3, Err(lost()));
    watched.driver.set_unreadable(3, Some(lost()));
    watched.driver.send(&Err(DriverError::GpuLost { call: "nvmlEventSetWait_v2" }));
    let sick = watched.until(|snapshot| !is_well(snapshot)).await;
    assert_eq!(fenced(&sick), [uuid(3)]);
    assert_eq!(sick.inventory.unwrap().gpus.len(), 4, "the lost GPU stays known");
    watched.driver.set_health(3, Ok(well()));
    watched.driver.set_unreadable(3, None);
    watched.until(is_well).await;
    // Events arrive again.
    watched.driver.set_health(1, Ok(advice(RecoveryAction::NodeReboot)));
    watched.xid(None, 79).await;
    let sick = watched.until(|snapshot| !is_well(snapshot)).await;
    assert_eq!(fenced(&sick), [uuid(1)]);
}

#[tokio::test]
async fn a_claim_s_change_of_mig_mode_renews_the_events_and_the_minor_numbers() {
    let mut watched = Watched::start(TestDriver::new(2));
    watched.until(|snapshot| snapshot.inventory.is_some()).await;
    watched.listeners(1).await;
    let mut moved = crate::testing::gpu(1);
    (moved.minor, moved.number) = (5, 5);
    watched.driver.set_gpu(moved);
    let began = Instant::now();
    watched.driver.mig_mode_changed();
    let is_read = |snapshot: &Snapshot| {
        snapshot.inventory.as_ref().is_some_and(|inventory| inventory.gpus[1].minor == 5)
    };
    let read = watched.until(is_read).await.inventory.unwrap();
    assert_eq!(read.gpus[1].number, 1, "claims have the names of its devices");
    watched.listeners(2).await;
    assert!(began.elapsed() < MIG_CHECK_INTERVAL, "not by the check of changes by hand");
    // Once for each change.
    let reads = watched.driver.reads();
    tokio::time::sleep(RELEASE_CHECK_INTERVAL * 3).await;
    assert_eq!(watched.driver.reads(), reads);
}

#[tokio::test]
async fn a_kernel_module_that_goes_or_comes_is_noticed() {
    let loaded = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (driver, is_loaded) = (TestDriver::new(1), Arc::clone(&loaded));
    let modules = Box::new(move || {
        let is_loaded = is_loaded.load(std::sync::atomic::Ordering::Relaxed);
        (!is_loaded).then_some("nvidia-uvm")
    });
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    let metrics = Arc::new(Metrics::new(&mut Registry::default()));
    let (_release, released) = watch::channel(Some(false));
    let open: Opener = Box::new(move || Ok(Arc::new(driver.clone())));
    let mut snapshots = start(
        "node",
        open,
        modules,
        MonitorRequests::new(released).0,
        HealthInputs::default(),
        metrics,
        stop,
    )
    .unwrap();
    let mut until = async |missing| {
        let wanted = snapshots.wait_for(|snapshot| {
            snapshot.inventory.is_some() && snapshot.missing_module == missing
        });
        timeout(TIMEOUT, wanted).await.unwrap().unwrap();
    };
    until(None).await;
    for (is_loaded, missing) in [(false, Some("nvidia-uvm")), (true, None)] {
        loaded.store(is_loaded, std::sync::atomic::Ordering::Relaxed);
        until(missing).await;
    }
}

#[tokio::test]
async fn an_unreadable_gpu_hides_no_other_and_is_served_once_it_can_be_read() {
    let driver = TestDriver::new(3);
    driver.set_unreadable(1, Some(DriverError::InUse { call: "nvmlDeviceGetUUID" }));
    let mut watched = Watched::start(driver);
    let first = watched.until(|snapshot| snapshot.inventory.is_some()).await;
    let inventory = first.inventory.unwrap();
    assert_eq!((inventory.gpus.len(), inventory.unreadable.len()), (2, 1));
    watched.driver.set_unreadable(1, None);
    let all = |snapshot: &Snapshot| snapshot.inventory.as_ref().unwrap().gpus.len() == 3;
    watched.until(all).await;
}

#[tokio::test]
async fn a_driver_that_cannot_be_loaded_is_tried_again() {
    let driver = TestDriver::new(1);
    let attempts = std::sync::Mutex::new(0);
    let opened = driver.clone();
    let open: Opener = Box::new(move || {
        *attempts.lock().unwrap() += 1;
        if *attempts.lock().unwrap() == 1 {
            let (path, reason) = ("libnvidia-ml.so.1".to_owned(), "not there".to_owned());
            return Err(DriverError::Load { path, reason });
        }
        Ok(Arc::new(opened.clone()))
    });
    let mut watched = Watched::start_with(driver, open);
    let failed = watched.until(|snapshot| snapshot.error.is_some()).await;
    assert!(failed.error.unwrap().contains("libnvidia-ml.so.1"));
    assert!(failed.inventory.is_none() && !failed.is_driver_gone, "it may be starting");
    watched.until(|snapshot| snapshot.inventory.is_some() && snapshot.error.is_none()).await;
}

#[tokio::test]
async fn first_snapshot_includes_faults_from_before_the_agent() {
    let driver = TestDriver::new(2);
    driver.set_health(0, Ok(advice(RecoveryAction::GpuReset)));
    let mut watched = Watched::start(driver);
    let first = watched.until(|snapshot| snapshot.inventory.is_some()).await;
    let advice = octavo_health::signal::RecoveryAction::GpuReset;
    assert_eq!(reason(&first, 0), Some(Reason::RecoveryAction(advice)));
}

#[tokio::test]
async fn recovered_gpu_sends_events_again() {
    let mut watched = Watched::start(TestDriver::new(2));
    watched.until(|snapshot| snapshot.inventory.is_some()).await;
    watched.driver.set_health(1, Err(lost()));
    watched.xid(None, 79).await;
    watched.until(|snapshot| snapshot.health.contains_key(&uuid(1))).await;
    // A new listener gets no events of the lost GPU.
    watched.driver.send(&Err(DriverError::GpuLost { call: "nvmlEventSetWait_v2" }));
    watched.listeners(2).await;
    watched.driver.set_health(1, Ok(well()));
    watched.until(is_well).await;
    let sick = watched.xid_until_received(1, 48).await;
    assert_eq!(reason(&sick, 1), Some(Reason::Xid(48)));
}

#[tokio::test]
async fn unresponsive_driver_is_reopened() {
    let driver = TestDriver::new(1);
    let opened = driver.clone();
    let open: Opener = Box::new(move || {
        opened.versions()?;
        Ok(Arc::new(opened.clone()))
    });
    let mut watched = Watched::start_with(driver, open);
    watched.until(|snapshot| snapshot.inventory.is_some()).await;
    watched.xid(Some(0), 13).await;
    let (call, message) = ("nvmlSystemGetDriverVersion", "driver not loaded".to_owned());
    let error = DriverError::Failed { call, code: 9, message };
    watched.driver.set_gone(Some(error.clone()));
    watched.driver.send(&Err(error));
    let gone = watched.until(|snapshot| snapshot.error.is_some()).await;
    assert_eq!(gone.inventory.unwrap().gpus.len(), 1, "what was known stays");
    assert!(gone.is_driver_gone && gone.health[&uuid(0)].is_driver_gone);
    watched.driver.set_gone(None);
    let back = watched.until(|snapshot| snapshot.error.is_none()).await;
    assert!(!back.is_driver_gone && is_well(&back));
    watched.xid_until_received(0, 48).await;
}

#[tokio::test]
async fn a_driver_that_vanishes_without_an_event_is_noticed_within_5_s() {
    let driver = TestDriver::new(2);
    let opened = driver.clone();
    let open: Opener = Box::new(move || {
        opened.versions()?;
        Ok(Arc::new(opened.clone()))
    });
    let mut watched = Watched::start_with(driver, open);
    watched.until(|snapshot| snapshot.inventory.is_some()).await;
    watched.listeners(1).await;
    let (call, message) = ("nvmlDeviceGetCount_v2", "driver not loaded".to_owned());
    let vanished_at = Instant::now();
    watched.driver.set_gone(Some(DriverError::Failed { call, code: 9, message }));
    watched.until(|snapshot| snapshot.health.len() == 2).await;
    let elapsed = vanished_at.elapsed();
    assert!(elapsed < Duration::from_secs(5), "noticed after {elapsed:?}");
    let returned_at = Instant::now();
    watched.driver.set_gone(None);
    watched.until(is_well).await;
    let elapsed = returned_at.elapsed();
    assert!(elapsed < Duration::from_secs(5), "offered after {elapsed:?}");
}

#[tokio::test]
async fn a_released_driver_is_closed_within_a_second_and_not_opened_before_it_is_given_back() {
    let driver = TestDriver::new(2);
    let (open_now, is_open) =
        (Arc::new(std::sync::Mutex::new(std::sync::Weak::<TestDriver>::new())), driver.clone());
    let last = Arc::clone(&open_now);
    let open: Opener = Box::new(move || {
        let new = Arc::new(is_open.clone());
        *last.lock().unwrap() = Arc::downgrade(&new);
        Ok(new)
    });
    let mut watched = Watched::start_with(driver, open);
    watched.until(|snapshot| snapshot.inventory.is_some()).await;
    watched.listeners(1).await;
    let begin = Instant::now();
    watched.set_release(true);
    let released = watched.until(|snapshot| snapshot.health.len() == 2).await;
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(released.driver.get().is_none() && open_now.lock().unwrap().upgrade().is_none());
    assert!(released.health.values().all(|state| state.is_driver_released));
    assert_eq!(released.health.len(), 2, "each GPU is tainted");
    // A driver that is unloaded meanwhile is not looked for.
    tokio::time::sleep(2 * RELEASE_CHECK_INTERVAL).await;
    assert!(open_now.lock().unwrap().upgrade().is_none());
    watched.set_release(false);
    watched.until(|snapshot| is_well(snapshot) && snapshot.driver.get().is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_needs_the_driver_closed_finds_it_so_and_taints_nothing() {
    let driver = TestDriver::new(1);
    let (opened, open) = (driver.clone(), Arc::new(Mutex::new(DriverHandle::default())));
    let last = Arc::clone(&open);
    let opener = Box::new(move || {
        let driver: Arc<dyn Driver> = Arc::new(opened.clone());
        *last.lock().unwrap() = DriverHandle::of(&driver);
        Ok(driver)
    });
    let mut watched = Watched::start_with(driver, opener);
    let first = watched.until(|snapshot| snapshot.driver.get().is_some()).await;
    let is_closed = watched
        .waker
        .while_closed("a GPU is reset".to_owned(), move || open.lock().unwrap().get().is_none());
    let is_closed = timeout(TIMEOUT, is_closed).await.unwrap();
    assert_eq!(is_closed, Some(true));
    let back = watched.until(|snapshot| snapshot.driver.get().is_some()).await;
    assert!(!back.has_no_driver() && back.error.is_none());
    assert_eq!(back.inventory, first.inventory);
}

#[tokio::test]
async fn a_driver_that_is_to_be_released_from_the_start_is_never_opened() {
    let driver = TestDriver::new(1);
    let (stop, metrics) =
        (CancellationToken::new(), Arc::new(Metrics::new(&mut Registry::default())));
    let (release, released) = watch::channel(None);
    let opened = driver.clone();
    let open: Opener = Box::new(move || Ok(Arc::new(opened.clone())));
    let mut snapshots =
        start_monitor(open, MonitorRequests::new(released).0, metrics, stop.clone());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(driver.reads(), 0, "the settings are not read yet");
    release.send_replace(Some(true));
    snapshots.wait_for(|snapshot| snapshot.is_driver_released).await.unwrap();
    assert_eq!(driver.reads(), 0);
    release.send_replace(Some(false));
    snapshots.wait_for(|snapshot| snapshot.inventory.is_some()).await.unwrap();
    stop.cancel();
}

#[tokio::test]
async fn driver_is_reopened_only_after_the_last_call() {
    let driver = TestDriver::new(1);
    let opened = driver.clone();
    let before: std::sync::Mutex<Option<std::sync::Weak<TestDriver>>> = std::sync::Mutex::default();
    let (sender, still_open) = std::sync::mpsc::channel();
    let open: Opener = Box::new(move || {
        let new = Arc::new(opened.clone());
        let old = before.lock().unwrap().replace(Arc::downgrade(&new));
        sender.send(old.is_some_and(|old| old.strong_count() > 0)).unwrap();
        Ok(new)
    });
    let mut watched = Watched::start_with(driver, open);
    let first = watched.until(|snapshot| snapshot.inventory.is_some()).await;
    let call = first.driver.get().unwrap();
    watched.listeners(1).await;
    let (name, message) = ("nvmlSystemGetDriverVersion", "driver not loaded".to_owned());
    let error = DriverError::Failed { call: name, code: 9, message };
    watched.driver.set_gone(Some(error.clone()));
    watched.driver.send(&Err(error));
    let gone = watched.until(|snapshot| snapshot.error.is_some()).await;
    assert!(gone.driver.get().is_none(), "nobody begins a call any more");
    watched.driver.set_gone(None);
    drop(call);
    watched.until(|snapshot| snapshot.error.is_none()).await;
    assert_eq!(still_open.try_iter().collect::<Vec<_>>(), [false, false]);
}

#[tokio::test]
async fn mig_changes_by_hand_are_noticed_within_15_s() {
    let driver = TestDriver::new(2);
    driver.set_gpu(mig::gpu(1, false));
    let mut watched = Watched::start(driver);
    watched.until(|snapshot| snapshot.inventory.is_some()).await;
    watched.listeners(1).await;
    let changed_at = Instant::now();
    let mut changed = mig::gpu(1, true);
    changed.mig_instances = vec![mig::instance(9, 19, 0)];
    watched.driver.set_gpu(changed.clone());
    let is_current =
        |snapshot: &Snapshot| snapshot.inventory.as_ref().is_some_and(|now| now.gpus[1] == changed);
    watched.until(is_current).await;
    let elapsed = changed_at.elapsed();
    assert!(elapsed < MIG_NOTICE_TIME, "noticed after {elapsed:?}");
    assert_eq!(watched.driver.reads(), 2, "the first read, and one for the change");
}

/// A monitor whose thread does not run.
pub(super) fn monitor() -> Monitor {
    Monitor {
        node: "node".to_owned(),
        modules: Box::new(|| None),
        mode_changes: 0,
        requests: MonitorRequests::new(watch::channel(Some(false)).1).0,
        metrics: Arc::new(Metrics::new(&mut Registry::default())),
        stop: CancellationToken::new(),
        sender: watch::channel(Snapshot::default()).0,
        health: NodeHealth::open(None, "boot"),
        telemetry: Telemetry::default(),
        kernel_log: None,
        sys_root: None,
        driver_root: PathBuf::new(),
        test_program: PathBuf::new(),
        reloader: Reloader::default(),
        rebooter: Rebooter::default(),
        tests: Vec::new(),
        card_looks: CardLooks::default(),
        snapshot: Snapshot::default(),
        backoff: Backoff::new(MIN_POLL_DELAY, MAX_POLL_DELAY),
    }
}

#[test]
fn gpus_are_asked_oftener_where_events_or_the_fabric_are_missing() {
    let mut monitor = monitor();
    monitor.adopt(crate::testing::inventory(1));
    assert_eq!(monitor.poll_delay(&[]), HEALTHY_POLL_INTERVAL);
    assert_eq!(monitor.poll_delay(&[uuid(0)]), MAX_POLL_DELAY);
    let mut joining = crate::testing::inventory(1);
    joining.gpus[0].fabric.as_mut().unwrap().state = FabricState::InProgress;
    monitor.adopt(joining);
    assert_eq!(monitor.poll_delay(&[]), MAX_POLL_DELAY);
}

#[test]
fn mig_check_reads_no_inventory_and_skips_unhealthy_gpus() {
    let driver = TestDriver::new(2);
    driver.set_gpu(mig::gpu(1, false));
    let mut monitor = monitor();
    monitor.adopt(Inventory::read(&driver).unwrap());
    assert!(!monitor.has_mig_changed(&driver));
    driver.set_unreadable(1, Some(lost()));
    assert!(monitor.has_mig_changed(&driver), "the poll has to find out");
    driver.set_health(1, Err(lost()));
    monitor.ask_all(&driver);
    assert!(!monitor.has_mig_changed(&driver), "the lost GPU is polled anyway");
    assert_eq!(driver.reads(), 1);
}

#[test]
fn a_gpu_whose_place_another_took_is_forgotten() {
    let mut monitor = monitor();
    monitor.adopt(crate::testing::inventory(2));
    let mut replaced = crate::testing::inventory(2);
    replaced.gpus[1].uuid = uuid(9);
    monitor.adopt(replaced);
    let known = monitor.snapshot.inventory.clone().unwrap();
    assert_eq!(known.gpus.iter().map(|gpu| &gpu.uuid).collect::<Vec<_>>(), [&uuid(0), &uuid(9)]);
    assert_eq!(monitor.uuids().collect::<Vec<_>>(), [&uuid(0), &uuid(9)]);
}
