//! Watches over shares while their containers run: what the driver counts for them, by process, against what
//! they may have.
//!
//! ```text
//!  driver: bytes by pid --truth--+
//!  agent.sock: who connects --+  |
//!  /proc: mounts, cgroups ----+--identity--> a share's processes --+
//!  the claim: its pods -------+                                    |
//!  state: a slot a process ------files-----> what its ledger says -+--> decision --> gate, untracked: limits
//!                                                                                \-> freezer, kill, tell
//! ```
//!
//! The guard refuses what does not fit; the watchdog sees what goes round it. What the driver counts and no
//! slot says is written beside the limit (*untracked*), so that the next allocation is refused. A share that has
//! more than it may all the same is held, and then stopped as its policy says. The driver is asked every
//! [`WatchInterval`](crate::config::WatchInterval) while there are shares, and never otherwise.
//!
//! Everything that must outlast the agent is in the share's folder: the gate in `limits`, what is frozen in
//! `frozen`. An agent that starts anew goes on from there; guards connect to its new sockets.

mod actuator;
mod context_size;
mod driver_poll;
mod guards;
mod monitored_share;
mod notify;
mod overflow;
mod process;
mod reconciler;
mod usage_split;
mod visibility;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use octavo_kube_io::events::Events;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

use crate::claims::{ActiveShare, Claims};
use crate::config::NodeConfig;
use crate::metrics::Metrics;
use crate::monitor::Snapshot;
use driver_poll::{DriverPoller, PollResult};
pub(crate) use guards::connection_quota::raise_descriptor_limit;
use notify::notifier::{Notifier, Notify};
use process::consumers::ClaimConsumers;
use process::freezer::Freezer;
use process::proc::{Cgroups, Proc};
use reconciler::ShareReconciler;

/// Watches over the shares of a node that this agent has; runs until it is dropped, or the claims are gone.
pub(crate) async fn watch(
    config: Arc<NodeConfig>,
    claims: Claims,
    snapshots: watch::Receiver<Snapshot>,
    metrics: Arc<Metrics>,
    event_sinks: EventSinks,
    tasks: TaskTracker,
) {
    let node = config.node_name.clone();
    let shares = claims.active_shares();
    let EventSinks { client, events } = event_sinks;
    let (consumers, reader) = ClaimConsumers::new();
    let reading = reader.run(client.clone());
    let (notifier, worker) = Notifier::new(claims, client, node.clone(), events);
    let dependencies = Dependencies {
        node,
        cgroup_root: config.paths.cgroup_root.clone(),
        interval: config.watch_interval.0,
        shares,
        snapshots,
        metrics,
        notifier,
        consumers: Arc::new(consumers),
        tasks,
    };
    tokio::join!(Watchdog::new(dependencies).run(), worker.run(), reading);
}

/// Lets go on what is frozen of a share, before its folder is removed and what is written there with it.
pub(crate) fn thaw(cgroup_root: &Path, folder: &Path) {
    let thawed = Freezer::new(cgroup_root, Cgroups::default()).thaw(folder);
    // The containers are to end now, whoever ends them: what fails keeps nothing from being taken back.
    if let Err(error) = thawed {
        let folder = folder.display();
        tracing::warn!(%folder, %error, "a share that is given back stays frozen");
    }
}

/// By what people are told.
pub(crate) struct EventSinks {
    /// Reads which pods use a claim.
    pub(crate) client: Client,
    /// Events.
    pub(crate) events: Events,
}

/// What a watch is made of.
struct Dependencies {
    node: String,
    cgroup_root: PathBuf,
    interval: Duration,
    shares: watch::Receiver<Arc<[ActiveShare]>>,
    snapshots: watch::Receiver<Snapshot>,
    metrics: Arc<Metrics>,
    notifier: Arc<dyn Notify>,
    consumers: Arc<ClaimConsumers>,
    /// Those of the time in which the agent has the node: what writes files is waited for at its end.
    tasks: TaskTracker,
}

/// The watch over one node.
struct Watchdog {
    dependencies: Dependencies,
    poller: DriverPoller,
    reconciler: Option<ShareReconciler>,
    began: Instant,
}

impl Watchdog {
    fn new(mut dependencies: Dependencies) -> Self {
        dependencies.shares.mark_changed();
        let (poller, began) = (DriverPoller::default(), Instant::now());
        Self { dependencies, poller, reconciler: None, began }
    }

    async fn run(mut self) {
        let mut next = Instant::now();
        loop {
            let is_idle =
                self.reconciler.as_ref().is_none_or(|reconciler| reconciler.gpus().is_empty());
            tokio::select! {
                // Shares that come or go are taken before the next look.
                biased;
                changed = self.dependencies.shares.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let shares = Arc::clone(&self.dependencies.shares.borrow_and_update());
                    if !shares.is_empty() || self.reconciler.is_some() {
                        self.with_reconciler(move |reconciler| reconciler.set_shares(&shares)).await;
                    }
                }
                () = sleep_until(next), if !is_idle => {
                    self.poll().await;
                    // Late looks are not made up for.
                    next = Instant::now() + self.dependencies.interval;
                }
            }
        }
    }

    async fn poll(&mut self) {
        self.with_reconciler(ShareReconciler::sample_slots).await;
        let gpus = self.reconciler.as_ref().map(ShareReconciler::gpus).unwrap_or_default();
        let driver = self.dependencies.snapshots.borrow().driver.clone();
        let polled = self.poller.poll(&driver, &gpus).await;
        let is_hanging =
            matches!(&polled, PollResult::Answered { hanging, .. } if !hanging.is_empty());
        self.dependencies.metrics.enforcement.hanging(&self.dependencies.node, is_hanging);
        let at = self.began.elapsed();
        self.with_reconciler(move |reconciler| reconciler.reconcile(at, &polled)).await;
    }

    /// Has the judge do something on a thread that may block.
    async fn with_reconciler(&mut self, work: impl FnOnce(&mut ShareReconciler) + Send + 'static) {
        let Dependencies { node, cgroup_root, metrics, notifier, consumers, .. } =
            &self.dependencies;
        // The agent's own, whatever the node's root of it is called: the driver's pids are of its namespace.
        let proc = Proc::new("/proc".into());
        let make = || {
            let consumers = Arc::clone(consumers);
            ShareReconciler::new(
                node,
                proc,
                cgroup_root,
                Arc::clone(metrics),
                Arc::clone(notifier),
                consumers,
            )
        };
        let mut reconciler = self.reconciler.take().unwrap_or_else(make);
        let done = self.dependencies.tasks.spawn_blocking(move || {
            work(&mut reconciler);
            reconciler
        });
        match done.await {
            Ok(reconciler) => self.reconciler = Some(reconciler),
            Err(error) => {
                tracing::error!(%node, %error, "a look at the shares was cut short; beginning anew");
                self.dependencies.shares.mark_changed();
            }
        }
    }
}

#[cfg(test)]
mod tests;
