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

mod act;
mod brake;
mod consumers;
mod contexts;
mod decision;
mod files;
mod freezer;
mod heard;
mod identity;
mod judge;
mod kill;
mod proc;
mod room;
mod share;
mod sight;
mod socket;
mod split;
mod tell;
mod truth;
mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use octavo_kube_io::events::Events;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

use crate::claims::{Claims, LiveShare};
use crate::config::NodeConfig;
use crate::metrics::Metrics;
use crate::monitor::Snapshot;
use consumers::Consumers;
use freezer::Freezer;
use judge::Judge;
use proc::{Cgroups, Proc};
pub(crate) use room::raise_descriptors;
use tell::{Tell, Teller};
use truth::{Answer, Truth};

/// Watches over the shares of a node that this agent has; runs until it is dropped, or the claims are gone.
pub(crate) async fn watch(
    config: Arc<NodeConfig>,
    claims: Claims,
    snapshots: watch::Receiver<Snapshot>,
    metrics: Arc<Metrics>,
    people: People,
    tasks: TaskTracker,
) {
    let node = config.node_name.clone();
    let shares = claims.live_shares();
    let People { client, events } = people;
    let (consumers, reader) = Consumers::new();
    let reading = reader.run(client.clone());
    let (teller, worker) = Teller::new(claims, client, node.clone(), events);
    let parts = Parts {
        node,
        cgroup_root: config.paths.cgroup_root.clone(),
        interval: config.watch_interval.0,
        shares,
        snapshots,
        metrics,
        tell: teller,
        consumers: Arc::new(consumers),
        tasks,
    };
    tokio::join!(Watch::new(parts).run(), worker.run(), reading);
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
pub(crate) struct People {
    /// Reads which pods use a claim.
    pub(crate) client: Client,
    /// Events.
    pub(crate) events: Events,
}

/// What a watch is made of.
struct Parts {
    node: String,
    cgroup_root: PathBuf,
    interval: Duration,
    shares: watch::Receiver<Arc<[LiveShare]>>,
    snapshots: watch::Receiver<Snapshot>,
    metrics: Arc<Metrics>,
    tell: Arc<dyn Tell>,
    consumers: Arc<Consumers>,
    /// Those of the time in which the agent has the node: what writes files is waited for at its end.
    tasks: TaskTracker,
}

/// The watch over one node.
struct Watch {
    parts: Parts,
    truth: Truth,
    judge: Option<Judge>,
    began: Instant,
}

impl Watch {
    fn new(mut parts: Parts) -> Self {
        parts.shares.mark_changed();
        let (truth, began) = (Truth::default(), Instant::now());
        Self { parts, truth, judge: None, began }
    }

    async fn run(mut self) {
        let mut next = Instant::now();
        loop {
            let is_idle = self.judge.as_ref().is_none_or(|judge| judge.gpus().is_empty());
            tokio::select! {
                // Shares that come or go are taken before the next look.
                biased;
                changed = self.parts.shares.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let shares = Arc::clone(&self.parts.shares.borrow_and_update());
                    if !shares.is_empty() || self.judge.is_some() {
                        self.with_judge(move |judge| judge.adopt(&shares)).await;
                    }
                }
                () = sleep_until(next), if !is_idle => {
                    self.look().await;
                    // Late looks are not made up for.
                    next = Instant::now() + self.parts.interval;
                }
            }
        }
    }

    async fn look(&mut self) {
        self.with_judge(Judge::look_ahead).await;
        let gpus = self.judge.as_ref().map(Judge::gpus).unwrap_or_default();
        let driver = self.parts.snapshots.borrow().driver.clone();
        let answer = self.truth.ask(&driver, &gpus).await;
        let is_hanging = matches!(&answer, Answer::Told { hanging, .. } if !hanging.is_empty());
        self.parts.metrics.enforcement.hanging(&self.parts.node, is_hanging);
        let at = self.began.elapsed();
        self.with_judge(move |judge| judge.look(at, &answer)).await;
    }

    /// Has the judge do something on a thread that may block.
    async fn with_judge(&mut self, work: impl FnOnce(&mut Judge) + Send + 'static) {
        let Parts { node, cgroup_root, metrics, tell, consumers, .. } = &self.parts;
        // The agent's own, whatever the node's root of it is called: the driver's pids are of its namespace.
        let proc = Proc::new("/proc".into());
        let make = || {
            let consumers = Arc::clone(consumers);
            Judge::new(node, proc, cgroup_root, Arc::clone(metrics), Arc::clone(tell), consumers)
        };
        let mut judge = self.judge.take().unwrap_or_else(make);
        let done = self.parts.tasks.spawn_blocking(move || {
            work(&mut judge);
            judge
        });
        match done.await {
            Ok(judge) => self.judge = Some(judge),
            Err(error) => {
                tracing::error!(%node, %error, "a look at the shares was cut short; beginning anew");
                self.parts.shares.mark_changed();
            }
        }
    }
}

#[cfg(test)]
mod tests;
