//! The thread that uses a node's driver: it reads the GPUs, waits for events, and tracks unhealthy GPUs.
//!
//! Driver calls may block for any time, so they run on their own thread and never block the runtime. While all GPUs are
//! healthy, the thread sleeps; another one waits in the driver for events. It also polls occasionally, since some changes
//! cause no event. Changes of MIG by hand are such changes: a check of a few calls finds them soon and causes a poll. A
//! driver that stops answering, for example after an upgrade, is closed and reopened.

mod event_thread;
mod health;
mod log;
mod nics;
mod no_events;
mod opening;
mod pcie;
mod release;
mod remedies;
mod requests;
mod verify;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use octavo_api::node_health::DeviceHealth;
use octavo_gpu::{Driver, DriverError, DriverHandle, Gpu, Inventory};
use octavo_kube_io::Backoff;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use event_thread::{Subscriptions, Wakeup};
use health::{Telemetry, is_answer};
use log::LogReader;
use nics::CardLooks;
pub(crate) use remedies::{Rebooter, Reloader};
use requests::{ClosedWork, HealthMessage};
pub(crate) use requests::{MonitorRequests, Waker};
use verify::RunningTest;

use crate::health::{Health, NodeHealth, RecordFile, takes_pods};
use crate::metrics::Metrics;

/// Stack size of the thread. NVIDIA's library needs some; the default of 2 MiB would be noticeable with 500 nodes per
/// process.
const STACK_BYTES: usize = 512 * 1024;
/// How often MIG modes and instances are compared with the last inventory.
const MIG_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// How often the driver is asked about one GPU to find out that it is gone.
const ALIVE_CHECK_INTERVAL: Duration = Duration::from_secs(3);
/// Range of the delay between polls of an unhealthy GPU. The maximum also applies without events, and while the fabric
/// is being set up.
const MIN_POLL_DELAY: Duration = Duration::from_secs(1);
const MAX_POLL_DELAY: Duration = Duration::from_secs(30);
/// How often GPUs are looked at that are well.
const HEALTHY_POLL_INTERVAL: Duration = Duration::from_mins(10);
/// Consecutive failed reads after which the driver counts as gone and is reopened.
const MAX_FAILED_READS: u32 = 2;
/// Interval of looks at requests to release the driver, while it is not open.
const RELEASE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between attempts to open the driver.
const REOPEN_INTERVAL: Duration = Duration::from_secs(2);
/// Opens the driver; called again until it succeeds.
pub(crate) type Opener = Box<dyn Fn() -> Result<Arc<dyn Driver>, DriverError> + Send>;

/// Finds a kernel module that containers with GPUs need and that is not loaded: its name.
pub(crate) type ModuleCheck = Box<dyn Fn() -> Option<&'static str> + Send>;

/// Where the health of GPUs is remembered, and read besides the driver.
#[derive(Clone, Debug, Default)]
pub(crate) struct HealthInputs {
    /// The record; `None`: nothing is remembered.
    pub(crate) record: Option<RecordFile>,
    /// The node's boot.
    pub(crate) boot_id: String,
    /// The driver's root, with the programs that reset a GPU.
    pub(crate) driver_root: PathBuf,
    /// The program that tests GPUs, as its command `probe verify`: this one.
    pub(crate) test_program: PathBuf,
    /// What reloads the driver.
    pub(crate) reloader: Reloader,
    /// What reboots the node.
    pub(crate) rebooter: Rebooter,
    /// The kernel's log; `None`: XIDs come from the driver's events alone.
    pub(crate) kernel_log: Option<PathBuf>,
    /// The sys file system, with the network cards; `None`: they are not read.
    pub(crate) sys_root: Option<PathBuf>,
}

/// State of a node's GPUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The GPUs; `None` until they were read once.
    pub(crate) inventory: Option<Arc<Inventory>>,
    /// GPUs that are not well, by UUID.
    pub(crate) health: Health,
    /// The health of all known GPUs, as the node's object has it.
    pub(crate) devices: Arc<[DeviceHealth]>,
    /// Why the driver cannot be used at the moment.
    pub(crate) error: Option<String>,
    /// Whether the driver is gone: several attempts in a row to use it have failed.
    pub(crate) is_driver_gone: bool,
    /// Whether the driver is released: nothing of it is open, and nothing is to be.
    pub(crate) is_driver_released: bool,
    /// A kernel module of the driver that is not loaded, so that no container can get a GPU.
    pub(crate) missing_module: Option<&'static str>,
    /// The driver, for operations outside the monitor's thread.
    pub(crate) driver: DriverHandle,
}

impl Snapshot {
    /// Whether there is no driver to use: it is gone, or released. While it is opened for the first time, there may be one.
    pub(crate) fn has_no_driver(&self) -> bool {
        self.is_driver_gone || self.is_driver_released
    }
}

/// Starts the thread. While `release` is `Some(true)`, nothing of the driver is open. The thread ends after `stop`: at once if
/// idle, otherwise when the driver answers. Do not wait for it.
pub(crate) fn start(
    node: &str,
    open: Opener,
    modules: ModuleCheck,
    requests: MonitorRequests,
    health: HealthInputs,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> std::io::Result<watch::Receiver<Snapshot>> {
    let (sender, receiver) = watch::channel(Snapshot::default());
    let monitor = Monitor {
        node: node.to_owned(),
        modules,
        requests,
        metrics,
        stop,
        sender,
        health: NodeHealth::observer(health.record, &health.boot_id),
        telemetry: Telemetry::default(),
        kernel_log: health.kernel_log.map(LogReader::new),
        sys_root: health.sys_root,
        driver_root: health.driver_root,
        test_program: health.test_program,
        reloader: health.reloader,
        rebooter: health.rebooter,
        tests: Vec::new(),
        card_looks: CardLooks::default(),
        snapshot: Snapshot::default(),
        backoff: Backoff::new(MIN_POLL_DELAY, MAX_POLL_DELAY),
        mode_changes: 0,
    };
    thread::Builder::new()
        .name("gpu-monitor".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || monitor.run(&open))?;
    Ok(receiver)
}

struct Monitor {
    node: String,
    modules: ModuleCheck,
    requests: MonitorRequests,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    sender: watch::Sender<Snapshot>,
    health: NodeHealth,
    telemetry: Telemetry,
    kernel_log: Option<LogReader>,
    sys_root: Option<PathBuf>,
    driver_root: PathBuf,
    test_program: PathBuf,
    reloader: Reloader,
    rebooter: Rebooter,
    /// Tests that run.
    tests: Vec<RunningTest>,
    card_looks: CardLooks,
    snapshot: Snapshot,
    backoff: Backoff,
    /// Changes of MIG mode through the driver before the last read.
    mode_changes: u64,
}

impl Monitor {
    fn run(mut self, open: &Opener) {
        self.await_settings();
        while let Some(driver) = self.open(open) {
            let work = self.follow(&*driver);
            // They have the driver open, too. A reset of another GPU would find them in its way.
            self.end_tests();
            if self.is_to_release() {
                // No new calls and no new containers, while those that run come to their end.
                self.begin_release();
            } else if let Some(work) = &work {
                tracing::info!(node = %self.node, "the driver is closed: {}", work.what);
                self.snapshot.error = Some(format!("the driver is closed: {}", work.what));
                self.snapshot.driver = DriverHandle::default();
                self.publish();
            }
            let is_closed = self.close(driver);
            let is_wanted = |work: &ClosedWork| {
                let may_run = is_closed || !work.has_to_be_closed;
                may_run && !self.stop.is_cancelled() && !self.is_to_release()
            };
            if let Some(work) = work.filter(is_wanted) {
                (work.run)();
            }
        }
    }

    /// Follows the GPUs until `stop`, until the driver as a whole stops answering, or until something is to be done while it is closed.
    fn follow(&mut self, driver: &dyn Driver) -> Option<ClosedWork> {
        if self.has_no_gpus() {
            return self.await_gpus(driver);
        }
        let mut unanswered = 0;
        while !self.stop.is_cancelled() {
            let error = match self.listen(driver) {
                // It stops, or the driver is to be closed.
                Ok(work) => return work,
                Err(error) => error,
            };
            self.metrics.driver_failure(&self.node);
            tracing::warn!(node = %self.node, %error, "the driver's events were interrupted");
            // A fault of a single GPU is found by polling each.
            match self.poll(driver) {
                Ok(()) => unanswered = 0,
                Err(error) => {
                    unanswered += 1;
                    if unanswered == MAX_FAILED_READS {
                        tracing::error!(node = %self.node, %error, "the driver stopped answering; reopening it");
                        self.snapshot.error = Some(error.to_string());
                        self.driver_gone();
                        // No new calls.
                        self.snapshot.driver = DriverHandle::default();
                        self.publish();
                        return None;
                    }
                }
            }
            self.publish();
            let delay = self.backoff.next_delay();
            self.pause(delay);
        }
        None
    }

    /// Notes for all known GPUs that their driver is gone.
    fn driver_gone(&mut self) {
        self.snapshot.is_driver_gone = true;
        self.health.driver_gone(now());
    }

    /// Handles events until `stop`, until the driver is to be released, or until something is to be done while it is closed.
    fn listen(&mut self, driver: &dyn Driver) -> Result<Option<ClosedWork>, DriverError> {
        let sender = self.requests.sender.clone();
        let mut events = Subscriptions::new(&sender);
        events.renew(driver, self.uuids())?;
        let mut poll_at = Instant::now() + self.poll_delay(events.unmonitored());
        let mut mig_check_at = Instant::now() + MIG_CHECK_INTERVAL;
        let mut alive_check_at = Instant::now() + ALIVE_CHECK_INTERVAL;
        let mut was_alive = true;
        loop {
            if self.stop.is_cancelled() {
                return Ok(None);
            }
            let wake_at = poll_at.min(mig_check_at).min(alive_check_at);
            let wake_at = self.log_at().map_or(wake_at, |log_at| wake_at.min(log_at));
            let timeout = wake_at.saturating_duration_since(Instant::now());
            let woken = events.wait(&self.requests.inbox, timeout)?;
            if self.stop.is_cancelled() {
                return Ok(None);
            }
            let mut is_news = self.read_log(driver);
            match woken {
                Some(Wakeup::WhileClosed(work)) => return Ok(Some(work)),
                Some(Wakeup::Event(event)) => is_news |= self.handle(driver, &event),
                Some(Wakeup::Health(looks @ HealthMessage::Nics(..))) => {
                    self.obey(Some(driver), looks);
                    // They come every 10 seconds, and are no reason to poll a GPU.
                    self.decide(driver);
                }
                Some(Wakeup::Health(order)) => {
                    self.obey(Some(driver), order);
                    is_news = true;
                }
                Some(Wakeup::Reread) => poll_at = Instant::now(),
                None => {}
            }
            if self.is_to_release() {
                self.publish();
                return Ok(None);
            }
            if is_news {
                // The taint waits for nothing else.
                self.decide(driver);
                self.publish();
                if self.is_sick() {
                    self.backoff.reset();
                    poll_at = poll_at.min(Instant::now() + self.backoff.next_delay());
                }
            }
            // What was registered for the GPU's events may be gone, and its minor number another.
            let is_stale = driver.mig_mode_changes() != self.mode_changes;
            if is_stale {
                poll_at = Instant::now();
            }
            if alive_check_at <= Instant::now() {
                // A single GPU's loss is found elsewhere.
                let uuid = self.uuids().next().cloned();
                let is_alive = uuid.is_none_or(|uuid| is_answer(&driver.health(&uuid)));
                // A driver that lacks the answer and is there otherwise is polled once.
                if was_alive && !is_alive {
                    poll_at = Instant::now();
                }
                was_alive = is_alive;
                self.check_modules();
                alive_check_at = Instant::now() + ALIVE_CHECK_INTERVAL;
            }
            if mig_check_at <= Instant::now() {
                if self.has_mig_changed(driver) {
                    poll_at = Instant::now();
                }
                self.read_telemetry(driver);
                mig_check_at = Instant::now() + MIG_CHECK_INTERVAL;
            }
            // A stream of events must not delay the poll of an unhealthy GPU.
            if poll_at <= Instant::now() {
                let (known, sick) = (self.snapshot.inventory.clone(), self.sick());
                self.poll(driver)?;
                if !self.is_sick() {
                    self.backoff.reset();
                }
                // A lost or reset GPU is no longer registered, and a new one not yet.
                if is_stale
                    || !events.unmonitored().is_empty()
                    || self.sick() != sick
                    || self.snapshot.inventory != known
                {
                    events.renew(driver, self.uuids())?;
                }
                poll_at = Instant::now() + self.poll_delay(events.unmonitored());
            }
            self.publish();
            self.begin_tests();
            if let Some(work) = self.next_remedy() {
                return Ok(Some(work));
            }
        }
    }

    /// Looks for missing kernel modules. One may be loaded or unloaded at any time, and nothing tells.
    fn check_modules(&mut self) {
        let missing = (self.modules)();
        if missing == self.snapshot.missing_module {
            return;
        }
        if let Some(module) = missing {
            tracing::error!(node = %self.node, module, "a kernel module is not loaded: GPUs take no pods");
        } else {
            tracing::info!(node = %self.node, "all kernel modules are loaded");
        }
        self.snapshot.missing_module = missing;
    }

    /// Delay until the next poll without an event.
    fn poll_delay(&mut self, unmonitored: &[String]) -> Duration {
        if self.is_sick() {
            return self.backoff.next_delay();
        }
        let is_joining =
            |gpu: &Gpu| gpu.fabric.as_ref().is_some_and(|fabric| fabric.problem().is_some());
        let gpus = self.snapshot.inventory.iter().flat_map(|inventory| &inventory.gpus);
        let is_cleaned_up = unmonitored.is_empty() && !gpus.into_iter().any(is_joining);
        if is_cleaned_up { HEALTHY_POLL_INTERVAL } else { MAX_POLL_DELAY }
    }

    /// Whether MIG was changed on a healthy GPU since the last inventory. An error counts as a change, since the poll
    /// finds its cause. Unhealthy GPUs are polled anyway.
    fn has_mig_changed(&self, driver: &dyn Driver) -> bool {
        let gpus = self.snapshot.inventory.iter().flat_map(|inventory| &inventory.gpus);
        let is_healthy = |gpu: &&Gpu| takes_pods(&self.snapshot.health, &gpu.uuid);
        gpus.filter(is_healthy).any(|gpu| match driver.has_mig_changed(gpu) {
            Ok(has_changed) => has_changed,
            Err(error) => {
                let node = &self.node;
                tracing::debug!(%node, gpu = %gpu.uuid, %error, "MIG cannot be compared");
                true
            }
        })
    }

    /// Polls the health of all GPUs and retries unreadable ones. Fails if the driver as a whole does not answer.
    fn poll(&mut self, driver: &dyn Driver) -> Result<(), DriverError> {
        // Before the read: a change during it makes it stale.
        self.mode_changes = driver.mig_mode_changes();
        let read = Inventory::read(driver).map(|inventory| self.adopt(inventory));
        if let Err(error) = &read {
            self.metrics.driver_failure(&self.node);
            tracing::debug!(node = %self.node, %error, "the GPUs cannot be read at the moment");
        }
        self.ask_all(driver);
        read
    }

    fn publish(&mut self) {
        self.snapshot.health = self.health.health();
        let gpus = self.snapshot.inventory.as_ref().map_or(&[][..], |found| &found.gpus);
        self.snapshot.devices = self.health.devices(gpus, now()).into();
        self.sender.send_if_modified(|old| {
            let same_gpus = match (&old.inventory, &self.snapshot.inventory) {
                (Some(old), Some(new)) => Arc::ptr_eq(old, new),
                (None, None) => true,
                _ => false,
            };
            let is_same = same_gpus
                && old.health == self.snapshot.health
                && old.devices == self.snapshot.devices
                && old.error == self.snapshot.error
                && old.is_driver_gone == self.snapshot.is_driver_gone
                && old.is_driver_released == self.snapshot.is_driver_released
                && old.missing_module == self.snapshot.missing_module;
            old.clone_from(&self.snapshot);
            !is_same
        });
        if self.has_node() {
            self.health.store();
        }
    }

    /// Sleeps before a retry, in steps that let the thread end soon after `stop`.
    fn pause(&self, delay: Duration) {
        let until = Instant::now() + delay;
        while !self.stop.is_cancelled() && !self.is_to_release() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(Duration::from_millis(500)));
        }
    }
}

/// Unix time, in seconds.
fn now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
