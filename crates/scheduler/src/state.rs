//! Scheduler state: watch events in, write operations out. One thread, no I/O, no clock.
//!
//! ```text
//!   events  --> records of pods and nodes --> engine cache (the engine's world) --.
//!           --> queue: pending pods and gangs, by priority and age                  \
//!                                next ready entry --> decide: engine --> devices of the node (reserve)
//!                                                          |                      |
//!           unschedulable: a reason, until the cluster changes <-'                 v
//!           nominated: victims leave first             write operations, whose effects are assumed
//!   results --> succeeded: assumed until observed; failed: unreserved and requeued
//! ```
//!
//! A decision counts at once for the next decision. Watch events correct it later: the place of a
//! pod is recomputed whenever anything about the pod changes.

mod accounting;
mod budgets;
mod change;
mod competing_demand;
pub mod config;
mod decide;
mod engine_cache;
mod explain;
mod gang;
mod gang_request;
mod gang_status;
mod indeterminate;
mod infeasible_nodes;
mod leadership;
mod leftover_allocations;
mod lost_nodes;
mod membership;
mod metric_events;
mod node;
mod node_mask;
mod nodes;
mod nomination;
mod op_results;
mod pending_reason;
mod pod;
mod pods;
mod preemption_hint;
mod queue;
mod records;
mod refusal_cache;
mod reserve;
mod rollback;
mod shape;
mod single_pod;
mod successor_places;
#[cfg(test)]
mod tests;
mod trial_preemption;
mod unmodeled_nodes;
mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_dra::Features;
use octavo_engine::planner::Planner;
use octavo_kube_io::objects::{Budget, NodeName, ObjectName, PodUid};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::bind::{Bind, OpId, OpKind, WriteOp};
use crate::devices::Devices;
use crate::groups::{GroupName, Groups};
use crate::policies::Policies;
use crate::predicates::{Neighbours, PodRequests, Volumes};
use crate::status::{GroupPhase, StatusUpdate};
pub use config::{LevelConfig, SchedulerConfig};
use engine_cache::{EngineCache, Holder};
use explain::DecisionLog;
use gang_status::GangPhases;
pub use metric_events::MetricEvent;
use metric_events::MetricEvents;
use node::NodeRecord;
use node_mask::MaskAllocator;
use nomination::Nomination;
use pending_reason::PendingStatus;
use pod::PodRecord;
pub use preemption_hint::{HintResult, HintSearch};
use queue::{Queue, QueueKey};
use records::Records;
pub(crate) use unmodeled_nodes::nodes_phrase;

/// The scheduler's state. All methods run on the decision thread.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    /// Milliseconds, as last passed to [`Scheduler::tick`].
    now: u64,
    /// Number of changes that could make an unschedulable entry schedulable.
    cluster_revision: u64,
    changes: wake::Changes,

    pods: BTreeMap<PodUid, PodRecord>,
    by_name: FxHashMap<ObjectName, PodUid>,
    on_node: BTreeMap<NodeName, BTreeSet<PodUid>>,
    members: BTreeMap<GroupName, BTreeSet<PodUid>>,
    by_claim: FxHashMap<ObjectName, BTreeSet<PodUid>>,
    nodes: BTreeMap<NodeName, NodeRecord>,
    budgets: BTreeMap<ObjectName, Arc<Budget>>,
    footprints: FxHashSet<Arc<PodRequests>>,
    /// Number of footprints at which those without pods are removed.
    max_footprints: usize,

    devices: Devices,
    volumes: Volumes,
    neighbours: Neighbours,
    groups: Groups,
    policies: Policies,
    /// Whether the policies were checked against the current nodes.
    are_policies_checked: bool,

    masks: MaskAllocator,
    engine: EngineCache,
    /// Whether the engine cache must be rebuilt: nodes came, went, or have other GPUs.
    is_engine_stale: bool,
    /// Claims that hold GPUs and have no single placed pod as owner, by node.
    claim_holders: BTreeMap<NodeName, BTreeSet<Holder>>,

    queue: Queue,
    /// Write operations in flight.
    in_flight: BTreeMap<OpId, InFlightOp>,
    next_op: u64,
    nominations: BTreeMap<QueueKey, Nomination>,
    successor_places: Vec<successor_places::SuccessorPlace>,
    /// Lost nodes, with the time in milliseconds since when.
    lost: BTreeMap<NodeName, u64>,
    /// Pods whose eviction failed, by the time in milliseconds of the next attempt.
    eviction_retries: BTreeSet<(u64, PodUid)>,
    /// Binds with an indeterminate outcome, by pod UID.
    indeterminate: BTreeMap<PodUid, indeterminate::IndeterminateBind>,
    /// Rollbacks of claims.
    rollbacks: rollback::ClaimRollbacks,
    pending: FxHashMap<QueueKey, PendingStatus>,
    /// Pending reasons that are reported at this time in milliseconds, if they have not passed by
    /// then.
    delayed: BTreeSet<(u64, QueueKey)>,
    refusals: refusal_cache::RefusalCache,
    /// Where the next preemption by trial begins: the number of a node.
    trials_begun: usize,
    decision_log: DecisionLog,
    records: Records,
    hints: preemption_hint::HintSchedule,

    ops: Vec<WriteOp>,
    reports: Vec<StatusUpdate>,
    metric_events: MetricEvents,
    gang_phases: GangPhases,
    /// Gangs whose status is reported with the next reports.
    changed_gangs: BTreeSet<GroupName>,
    /// Gangs whose entries in the queue are outdated, because pods have come, gone or changed. With
    /// the time in milliseconds before which they are not ready, after a failure.
    outdated_entries: BTreeMap<GroupName, Option<u64>>,
}

/// A write operation in flight.
#[derive(Clone, Debug)]
struct InFlightOp {
    pod: PodUid,
    purpose: OpPurpose,
    /// What it binds, for another attempt.
    bind: Option<Box<Bind>>,
    /// Whether another scheduler may have led since the operation was submitted.
    spans_leadership_gap: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpPurpose {
    Bind,
    Evict,
    Repair,
    Rollback,
    Nominate,
    RequestVolumes,
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
        let decision_log = DecisionLog::new(config.explanations);
        let records = Records::new(&config);
        let devices = Devices::new(&config.scheduler_name, Features::default());
        Self {
            config,
            now: 0,
            cluster_revision: 0,
            changes: wake::Changes::default(),
            pods: BTreeMap::new(),
            by_name: FxHashMap::default(),
            on_node: BTreeMap::new(),
            members: BTreeMap::new(),
            by_claim: FxHashMap::default(),
            nodes: BTreeMap::new(),
            budgets: BTreeMap::new(),
            footprints: FxHashSet::default(),
            max_footprints: pods::MIN_FOOTPRINTS,
            devices,
            volumes: Volumes::default(),
            neighbours: Neighbours::default(),
            groups: Groups::default(),
            policies: Policies::default(),
            are_policies_checked: false,
            masks: MaskAllocator::default(),
            engine: EngineCache::empty(Planner::default()),
            is_engine_stale: true,
            claim_holders: BTreeMap::new(),
            queue: Queue::default(),
            in_flight: BTreeMap::new(),
            next_op: 0,
            nominations: BTreeMap::new(),
            successor_places: Vec::new(),
            lost: BTreeMap::new(),
            eviction_retries: BTreeSet::new(),
            indeterminate: BTreeMap::new(),
            rollbacks: rollback::ClaimRollbacks::default(),
            pending: FxHashMap::default(),
            delayed: BTreeSet::new(),
            refusals: refusal_cache::RefusalCache::default(),
            trials_begun: 0,
            decision_log,
            records,
            hints: preemption_hint::HintSchedule::default(),
            ops: Vec::new(),
            reports: Vec::new(),
            metric_events: MetricEvents::default(),
            gang_phases: GangPhases::default(),
            changed_gangs: BTreeSet::new(),
            outdated_entries: BTreeMap::new(),
        }
    }

    /// Advances the clock (monotonic, in milliseconds). Changes that are applied next happen then.
    pub fn advance_clock(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// Advances the clock, does what is due and returns the next deadline.
    pub fn tick(&mut self, now: u64) -> Option<u64> {
        self.advance_clock(now);
        self.requeue_changed_gangs();
        let nominations = self.retry_nominations();
        let retry = self.queue.tick(self.now);
        let places = self.drop_expired_successor_places();
        let evictions = self.retry_evictions();
        let binds = self.resolve_due();
        let delayed = self.flush_delayed();
        let rollbacks = self.retry_rollbacks();
        let hints = self.report_due_hints();
        let all = [nominations, retry, places, evictions, binds, delayed, rollbacks, hints];
        all.into_iter().flatten().min()
    }

    /// Decides on ready entries until none is left or the batch is full. Returns whether more may
    /// be ready at once.
    pub fn decide(&mut self) -> bool {
        self.requeue_changed_gangs();
        self.rebuild_engine_if_stale();
        self.check_policies();
        self.repair_lost_nodes();
        self.devices.begin_cycle();
        self.wake_refused();
        if self.in_flight.len() < self.config.in_flight {
            self.reconsider_oldest_nomination();
        }
        let mut cycle = self.queue.begin_cycle(self.now);
        for _ in 0..self.config.batch {
            if self.in_flight.len() >= self.config.in_flight {
                // Results of operations make room for more.
                return false;
            }
            let Some(position) = self.queue.next(cycle.after.as_ref()) else {
                return self.queue.end_cycle(&cycle) || self.has_changes();
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
        self.queue.end_cycle_early(cycle, self.now);
        true
    }

    /// Write operations since the last call. Operations of one pod must be carried out in this
    /// order.
    pub fn take_ops(&mut self) -> Vec<WriteOp> {
        std::mem::take(&mut self.ops)
    }

    /// Reports since the last call.
    pub fn take_reports(&mut self) -> Vec<StatusUpdate> {
        self.report_changed_gangs();
        std::mem::take(&mut self.reports)
    }

    /// Events since the last call.
    pub fn take_metric_events(&mut self) -> Vec<MetricEvent> {
        self.metric_events.take()
    }

    /// Gangs by phase, for every phase that a gang has been in.
    pub fn gang_phases(&self) -> impl Iterator<Item = (GroupPhase, usize)> {
        self.gang_phases.counts()
    }

    /// The current counts.
    pub fn counts(&self) -> Counts {
        let (waiting, ready) = self.queue.len();
        Counts {
            waiting,
            ready,
            in_flight: self.in_flight.len(),
            nominated: self.nominations.len(),
            nodes: self.nodes.len(),
            pods: self.pods.len(),
            clashes: self.engine.clashes.len(),
        }
    }

    /// Submits a write operation.
    fn submit(&mut self, pod: &PodUid, purpose: OpPurpose, task: OpKind) -> OpId {
        let id = OpId(self.next_op);
        self.next_op += 1;
        let bind = match &task {
            OpKind::Bind(bind) => Some(Box::new(bind.clone())),
            _ => None,
        };
        let op = InFlightOp { pod: pod.clone(), purpose, bind, spans_leadership_gap: false };
        self.in_flight.insert(id, op);
        self.ops.push(WriteOp { id, kind: task });
        id
    }

    /// Reports policies whose limits the cluster cannot keep, after a change of either.
    fn check_policies(&mut self) {
        if !std::mem::replace(&mut self.are_policies_checked, true) {
            let reports = self.policies.check(&self.engine.world);
            self.reports.extend(reports);
        }
    }
}
