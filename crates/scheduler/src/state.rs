//! Scheduler state: watch events in, write operations out. One thread, no I/O, no clock.
//!
//! ```text
//!   events --> cache: pods, nodes, claims, the engine's world <-- assumed places
//!         '--> queue: pending pods and gangs, by priority and age      ^
//!                       |                                              |
//!                     cycle: engine --> devices of the node (reserve) -'
//!                       |                     '--> reservations: victims leave, or volumes come, first
//!                       |                     '--> operations: writes, whose results come back
//!                       '-- reporter: unschedulable, and why
//! ```
//!
//! A decision counts at once for the next decision. Watch events correct it later: the place of a
//! pod is recomputed whenever anything about the pod changes.

mod cache;
pub mod config;
mod cycle;
mod events;
mod operations;
mod queue;
mod reporter;
mod reservations;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use octavo_kube_io::objects::NodeName;

use crate::bind::WriteOp;
use crate::devices::UnmodeledReason;
use crate::status::{GroupPhase, StatusUpdate};
use cache::Cache;
pub(crate) use cache::gpu_risk::node_health_kind;
pub(crate) use cache::maintenance::maintenance_kind;
pub(crate) use cache::unmodeled_nodes::nodes_phrase;
pub use config::{LevelConfig, SchedulerConfig};
use operations::Operations;
use queue::{Queue, QueueKey};
use reporter::Reporter;
pub use reporter::metric_events::MetricEvent;
pub use reporter::preemption_hint::{HintResult, HintSearch};
use reservations::Reservations;

/// The scheduler's state. All methods run on the decision thread.
#[derive(Debug)]
pub struct Scheduler {
    cache: Cache,
    operations: Operations,
    queue: Queue,
    reporter: Reporter,
    reservations: Reservations,
    refusals: cycle::refusal_cache::RefusalCache,
    /// Where the next preemption by trial begins: the number of a node.
    trials_begun: usize,
}

/// Counts for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pending entries: single pods and gangs.
    pub waiting: usize,
    /// Pending entries that are ready for a decision.
    pub ready: usize,
    /// Write operations in flight.
    pub in_flight: usize,
    /// Entries with a nomination.
    pub nominated: usize,
    /// Nodes.
    pub nodes: usize,
    /// Pods in the cache.
    pub pods: usize,
    /// Claims and pods whose devices are also allocated to others.
    pub clashes: usize,
}

impl Scheduler {
    /// An empty state.
    pub fn new(config: SchedulerConfig) -> Self {
        let reporter = Reporter::new(&config);
        Self {
            cache: Cache::new(config),
            operations: Operations::default(),
            queue: Queue::default(),
            reporter,
            reservations: Reservations::default(),
            refusals: cycle::refusal_cache::RefusalCache::default(),
            trials_begun: 0,
        }
    }

    /// Advances the clock (monotonic, in milliseconds). Changes that are applied next happen then.
    pub fn advance_clock(&mut self, now: u64) {
        self.cache.advance_clock(now);
    }

    /// Advances the clock, does what is due and returns the next deadline.
    pub fn tick(&mut self, now: u64) -> Option<u64> {
        self.advance_clock(now);
        self.requeue_changed_gangs();
        let nominations = self.retry_nominations();
        let retry = self.queue.tick(self.cache.now());
        let places = self.drop_expired_successor_places();
        let evictions = self.retry_evictions();
        let binds = self.resolve_due();
        let delayed = self.flush_delayed();
        let rollbacks = self.retry_rollbacks();
        let all = [nominations, retry, places, evictions, binds, delayed, rollbacks];
        all.into_iter().flatten().min()
    }

    /// Decides on ready entries until none is left or the batch is full. Returns whether more may
    /// be ready at once.
    pub fn decide(&mut self) -> bool {
        self.requeue_changed_gangs();
        self.rebuild_engine_if_stale();
        // Before others get the room that predecessors have left.
        self.show_new_successor_places();
        let reports = self.cache.check_policies();
        self.reporter.report_all(reports);
        self.repair_lost_nodes();
        self.release_small_gangs();
        self.cache.devices_mut().begin_cycle();
        self.wake_refused();
        if self.operations.in_flight_count() < self.cache.config().in_flight {
            self.reconsider_oldest_nomination();
        }
        let mut cycle = self.queue.begin_cycle(self.cache.now());
        for _ in 0..self.cache.config().batch {
            if self.operations.in_flight_count() >= self.cache.config().in_flight {
                // Results of operations make room for more.
                return false;
            }
            let Some(position) = self.queue.next(cycle.after.as_ref()) else {
                return self.queue.end_cycle(&cycle) || self.cache.has_changes();
            };
            self.queue.record_attempt(&position.key);
            let key = position.key.clone();
            cycle.after = Some(position);
            match &key {
                QueueKey::Pod(uid) => self.decide_pod(uid),
                QueueKey::Group(group) => {
                    self.decide_group(group);
                    // A gang takes long enough for new watch events and results to arrive.
                    break;
                }
            }
        }
        self.queue.end_cycle_early(cycle, self.cache.now());
        true
    }

    /// Write operations since the last call. Operations of one pod must be carried out in this
    /// order.
    pub fn take_ops(&mut self) -> Vec<WriteOp> {
        self.operations.take()
    }

    /// Reports since the last call.
    pub fn take_reports(&mut self) -> Vec<StatusUpdate> {
        self.report_changed_gangs();
        self.reporter.take()
    }

    /// Events since the last call.
    pub fn take_metric_events(&mut self) -> Vec<MetricEvent> {
        self.reporter.metrics().take()
    }

    /// Gangs by phase, for every phase that a gang has been in.
    pub fn gang_phases(&self) -> impl Iterator<Item = (GroupPhase, usize)> {
        self.reporter.gang_phases().counts()
    }

    /// All nodes whose GPUs are not modeled, with the reasons.
    pub(crate) fn unmodeled(&self) -> &BTreeMap<NodeName, UnmodeledReason> {
        self.cache.unmodeled()
    }

    /// The current counts.
    pub fn counts(&self) -> Counts {
        let (waiting, ready) = self.queue.len();
        Counts {
            waiting,
            ready,
            in_flight: self.operations.in_flight_count(),
            nominated: self.reservations.nomination_count(),
            nodes: self.cache.nodes().len(),
            pods: self.cache.pods().len(),
            clashes: self.cache.engine().clashes.len(),
        }
    }
}
