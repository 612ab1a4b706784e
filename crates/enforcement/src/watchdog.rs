//! Monitors shares while their containers run: compares the driver's memory count per process with the limits.
//!
//! ```text
//!  driver: bytes by pid --driver_poll-+
//!  agent.sock: connected guards --+   |
//!  /proc: mounts, cgroups --------+-identity-> processes of a share --+
//!  the claim: its pods -----------+                                   |
//!  state: one slot per process ----state_file-> bytes in the ledger --+--> overflow --> gate, untracked: limits
//!                                                                               \-> freezer, kill, notify
//! ```
//!
//! The guard refuses allocations beyond the limit; the watchdog detects those that bypass it. Bytes that the driver
//! counts but no slot contains are written beside the limit (*untracked*), so that the next allocation is refused. A
//! share that still exceeds its limit is held, and then stopped according to its policy. The driver is polled every
//! [`WatchedNode::interval`] while there are shares, and never otherwise. Guards that ask for leases of GPU time get them on
//! the same sockets, if the node gives any.
//!
//! State that must survive the agent is in the share's folder: the gate in `limits`, frozen cgroups in `frozen`. A
//! restarted agent continues from there, and guards connect to its new sockets.

mod actuator;
mod consumers;
mod context_size;
mod driver_poll;
pub(crate) mod guards;
mod identity;
mod monitored_share;
mod notify;
mod overflow;
mod reconciler;
mod swapping;
mod usage_split;
mod visibility;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use octavo_gpu::{DriverHandle, Gpu};
use octavo_kube_io::events::Events;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

use crate::gpu_time::GpuTime;
use crate::metrics::EnforcementMetrics;
use crate::process::proc::Proc;
use crate::share::{ActiveShare, ShareReports};
use crate::swap::{Mover, SwapSettings};
use consumers::ClaimConsumers;
use driver_poll::{DriverPoller, PollResult};
pub use guards::connection_quota::raise_descriptor_limit;
use notify::logged::Logged;
use notify::notifier::{Notifier, Notify};
use reconciler::ShareReconciler;
use swapping::Swapping;

/// Monitors the shares of a node. Runs until it is dropped or the sender of shares is gone. `tasks` are those of the agent's
/// active period; tasks that write files are awaited at its end.
pub async fn watch(
    watched: WatchedNode,
    metrics: Arc<EnforcementMetrics>,
    sinks: FindingSinks,
    tasks: TaskTracker,
) {
    let FindingSinks { client, events, reports } = sinks;
    let (consumers, reader) = ClaimConsumers::new();
    let reading = reader.run(client.clone());
    let (notifier, worker) = Notifier::new(reports, client, watched.name.clone(), events);
    let gpu_time = if watched.has_time_leases { start_leases(&watched.name) } else { None };
    let consumers = Some(Arc::new(consumers));
    let dependencies = Dependencies { watched, metrics, notifier, consumers, gpu_time, tasks };
    tokio::join!(Watchdog::new(dependencies).run(), worker.run(), reading);
}

/// Monitors the shares of a machine without a cluster, as [`watch`] does those of a node. Findings are logged.
pub(crate) async fn watch_alone(watched: WatchedNode, gpu_time: Arc<GpuTime>) {
    let dependencies = Dependencies {
        watched,
        metrics: Arc::new(EnforcementMetrics::new(&mut Registry::default())),
        notifier: Arc::new(Logged),
        consumers: None,
        gpu_time: Some(gpu_time),
        tasks: TaskTracker::new(),
    };
    Watchdog::new(dependencies).run().await;
}

/// Starts the thread that gives leases. Without it shares have their memory only, as they do without the setting.
fn start_leases(node: &str) -> Option<Arc<GpuTime>> {
    let started = GpuTime::start();
    let what = "there are no leases of GPU time: their thread cannot be started";
    started.inspect_err(|error| tracing::error!(node, %error, "{what}")).ok()
}

/// A node and its shares.
pub struct WatchedNode {
    /// Name of the node.
    pub name: String,
    /// The host's cgroup hierarchy.
    pub cgroup_root: PathBuf,
    /// How often the driver is polled while there are shares.
    pub interval: Duration,
    /// Whether processes have leases of GPU time.
    pub has_time_leases: bool,
    /// How memory of shares is swapped to the host; `None` if it is not.
    pub swap: Option<SwapSettings>,
    /// The shares.
    pub shares: watch::Receiver<Arc<[ActiveShare]>>,
    /// Gives the driver that is open now.
    pub driver: Box<dyn Fn() -> DriverHandle + Send + Sync>,
}

/// Destinations of findings.
pub struct FindingSinks {
    /// Reads which pods use a claim.
    pub client: Client,
    /// Events of pods and of the node.
    pub events: Events,
    /// Conditions and events of claims.
    pub reports: Arc<dyn ShareReports>,
}

/// Dependencies of the watchdog.
struct Dependencies {
    watched: WatchedNode,
    metrics: Arc<EnforcementMetrics>,
    notifier: Arc<dyn Notify>,
    /// `None` without a cluster.
    consumers: Option<Arc<ClaimConsumers>>,
    /// Gives leases, if it could be started.
    gpu_time: Option<Arc<GpuTime>>,
    /// Tasks of the agent's active period. Tasks that write files are awaited at its end.
    tasks: TaskTracker,
}

/// The watchdog of one node.
struct Watchdog {
    dependencies: Dependencies,
    poller: DriverPoller,
    reconciler: Option<ShareReconciler>,
    began: Instant,
}

impl Watchdog {
    fn new(mut dependencies: Dependencies) -> Self {
        dependencies.watched.shares.mark_changed();
        let (poller, began) = (DriverPoller::default(), Instant::now());
        Self { dependencies, poller, reconciler: None, began }
    }

    async fn run(mut self) {
        let mut next = Instant::now();
        let mut rested = next;
        loop {
            let is_idle =
                self.reconciler.as_ref().is_none_or(|reconciler| reconciler.gpus().is_empty());
            tokio::select! {
                // Apply changes of shares before the next poll.
                biased;
                changed = self.dependencies.watched.shares.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let shares = Arc::clone(&self.dependencies.watched.shares.borrow_and_update());
                    if !shares.is_empty() || self.reconciler.is_some() {
                        self.with_reconciler(move |reconciler| reconciler.set_shares(&shares)).await;
                    }
                }
                () = needs(self.dependencies.gpu_time.as_deref(), rested), if self.reconciler.is_some() => {
                    rested = Instant::now() + NEEDS_INTERVAL;
                    let at = self.began.elapsed();
                    self.with_reconciler(move |reconciler| reconciler.divide_memory(at)).await;
                }
                () = sleep_until(next), if !is_idle => {
                    self.poll().await;
                    // Missed polls are not caught up.
                    next = Instant::now() + self.dependencies.watched.interval;
                }
            }
        }
    }

    async fn poll(&mut self) {
        self.with_reconciler(ShareReconciler::sample_slots).await;
        let gpus = self.reconciler.as_ref().map(ShareReconciler::gpus).unwrap_or_default();
        let driver = (self.dependencies.watched.driver)();
        let polled = self.poller.poll(&driver, &gpus).await;
        let is_hanging =
            matches!(&polled, PollResult::Answered { hanging, .. } if !hanging.is_empty());
        self.dependencies.metrics.hanging(&self.dependencies.watched.name, is_hanging);
        if self.reconciler.as_ref().is_some_and(ShareReconciler::needs_sizes)
            && let Some(sizes) = sizes(&driver).await
        {
            self.with_reconciler(move |reconciler| reconciler.set_sizes(sizes)).await;
        }
        let at = self.began.elapsed();
        self.with_reconciler(move |reconciler| reconciler.reconcile(at, &polled)).await;
    }

    /// Runs work on the reconciler on a thread that may block.
    async fn with_reconciler(&mut self, work: impl FnOnce(&mut ShareReconciler) + Send + 'static) {
        let Dependencies { watched, metrics, notifier, consumers, gpu_time, .. } =
            &self.dependencies;
        let (node, cgroup_root) = (&watched.name, &watched.cgroup_root);
        // The agent's own `/proc`, whatever the node's proc root is: the driver's pids are in its namespace.
        let proc = Proc::new("/proc".into());
        let make = || {
            let mut reconciler = ShareReconciler::new(
                node,
                proc.clone(),
                cgroup_root,
                Arc::clone(metrics),
                Arc::clone(notifier),
                consumers.clone(),
                gpu_time.clone(),
            );
            reconciler.lacks_leases = watched.has_time_leases && gpu_time.is_none();
            if let Some(gpu_time) = gpu_time
                && let Some(swapping) = swapping(watched, proc, gpu_time)
            {
                reconciler.swap_by(swapping);
            }
            reconciler
        };
        let mut reconciler = self.reconciler.take().unwrap_or_else(make);
        let done = self.dependencies.tasks.spawn_blocking(move || {
            work(&mut reconciler);
            reconciler
        });
        match done.await {
            Ok(reconciler) => self.reconciler = Some(reconciler),
            Err(error) => {
                tracing::error!(%node, %error, "a poll of the shares failed; starting over");
                self.dependencies.watched.shares.mark_changed();
            }
        }
    }
}

/// Shortest time between two looks that processes ask for. A process that asks without end costs little.
const NEEDS_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until a process needs memory that it does not have, and until some time.
async fn needs(gpu_time: Option<&GpuTime>, not_before: Instant) {
    match gpu_time {
        Some(gpu_time) => {
            sleep_until(not_before).await;
            gpu_time.needs().await;
        }
        None => std::future::pending().await,
    }
}

/// Memory that programs can have of each GPU, in bytes; `None` if the driver does not answer.
async fn sizes(driver: &DriverHandle) -> Option<BTreeMap<String, u64>> {
    let driver = driver.get()?;
    let gpus = tokio::task::spawn_blocking(move || driver.gpus()).await.ok()?.ok()?;
    let size =
        |gpu: Gpu| (gpu.uuid, gpu.memory_bytes.saturating_sub(gpu.reserved_bytes.unwrap_or(0)));
    Some(gpus.into_iter().flatten().map(size).collect())
}

/// Divides the memory of shares, if the node swaps any.
fn swapping(watched: &WatchedNode, proc: Proc, gpu_time: &Arc<GpuTime>) -> Option<Swapping> {
    let settings = watched.swap.clone()?;
    // The path may be that of another program by now.
    let program = PathBuf::from("/proc/self/exe");
    let mover = Mover::new(settings, program, proc, Arc::clone(gpu_time));
    Some(Swapping::new(Arc::clone(gpu_time), mover))
}

#[cfg(test)]
mod tests;
