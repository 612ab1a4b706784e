//! What decides: changes in, orders out. One thread, no I/O, no clock.
//!
//! ```text
//!  changes --> records of pods and nodes --> picture (the engine's world) --.
//!          --> queue: what waits, by priority and age                        \
//!                                 next that is ready --> decide: engine --> devices of each node (grant)
//!                                                                |                    |
//!        refused: a reason, until something changes <------------'                    v
//!        promised: victims leave first                          orders, and what they do is assumed
//!  outcomes --> carried out: kept until the API says it; failed: forgotten and decided anew
//! ```
//!
//! Whatever is decided holds at once for the next decision. What the API says later puts it right:
//! a pod's place is recomputed from what is known whenever anything about it changes.

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
mod membership;
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
mod repair;
mod reserve;
mod rollback;
mod shape;
mod single_pod;
#[cfg(test)]
mod tests;
mod unmodeled_nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::decider::Decider;
use octavo_kube_io::objects::{Budget, ObjectName};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::bind::{Bind, Order, OrderId, Task};
use crate::devices::Devices;
use crate::groups::{GroupName, Groups};
use crate::policies::Policies;
use crate::predicates::{Footprint, Neighbours, Volumes};
use crate::status::Report;
pub use config::{LevelConfig, SchedulerConfig};
use engine_cache::EngineCache;
use explain::DecisionLog;
use node::NodeRecord;
use node_mask::MaskAllocator;
use nomination::Nomination;
use pending_reason::PendingStatus;
use pod::PodRecord;
pub use preemption_hint::{HintResult, HintSearch};
use queue::{Queue, QueueKey};
use records::Records;
pub(crate) use unmodeled_nodes::nodes_phrase;

/// The scheduler's mind.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    /// Milliseconds, as [`Scheduler::tick`] was told.
    now: u64,
    /// Number of changes after which a refusal may no longer hold.
    cluster_revision: u64,

    pods: BTreeMap<Arc<str>, PodRecord>,
    by_name: FxHashMap<ObjectName, Arc<str>>,
    on_node: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    members: BTreeMap<GroupName, BTreeSet<Arc<str>>>,
    by_claim: FxHashMap<ObjectName, BTreeSet<Arc<str>>>,
    nodes: BTreeMap<Arc<str>, NodeRecord>,
    budgets: BTreeMap<ObjectName, Arc<Budget>>,
    footprints: FxHashSet<Arc<Footprint>>,

    devices: Devices,
    volumes: Volumes,
    neighbours: Neighbours,
    groups: Groups,
    policies: Policies,

    masks: MaskAllocator,
    engine: EngineCache,
    /// Whether the picture must be made anew: nodes came, went, or have other GPUs.
    is_engine_stale: bool,
    /// Claims that no placed pod owns and that hold GPUs, by node.
    claim_holders: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,

    queue: Queue,
    /// Orders on their way, and whose they are.
    in_flight: BTreeMap<OrderId, InFlightOp>,
    next_op: u64,
    nominations: BTreeMap<QueueKey, Nomination>,
    successor_places: Vec<repair::SuccessorPlace>,
    lost: BTreeMap<Arc<str>, u64>,
    /// Who could not be evicted, by when it may be asked again.
    eviction_retries: BTreeSet<(u64, Arc<str>)>,
    /// Pods of whose order nobody knows what it left.
    indeterminate: BTreeMap<Arc<str>, indeterminate::IndeterminateBind>,
    /// Claims that are taken back.
    rollbacks: rollback::ClaimRollbacks,
    pending: FxHashMap<QueueKey, PendingStatus>,
    /// What was not told yet because it should pass by itself, by when it is told.
    delayed: BTreeSet<(u64, QueueKey)>,
    refusals: single_pod::RefusalCache,
    decision_log: DecisionLog,
    records: Records,
    hints: preemption_hint::HintSchedule,

    ops: Vec<Order>,
    reports: Vec<Report>,
    decision_metrics: Vec<DecisionMetric>,
}

/// An order on its way.
#[derive(Clone, Debug)]
struct InFlightOp {
    pod: Arc<str>,
    purpose: OpPurpose,
    /// What it binds, to be sent again.
    bind: Option<Box<Bind>>,
    /// Whether another scheduler may have led since it was given.
    spans_leadership_gap: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpPurpose {
    Bind,
    Evict,
    Repair,
    Rollback,
    Other,
}

/// A decision, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionMetric {
    /// Whether it was about a gang.
    pub is_gang: bool,
    /// `placed`, `nominated`, `refused` or `waits`.
    pub result: &'static str,
    /// Reason of what was not placed; empty otherwise.
    pub reason: &'static str,
}

/// How much is where, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Units that wait: pods by themselves, and gangs.
    pub waiting: usize,
    /// Of those, which can be decided on now.
    pub ready: usize,
    /// Orders on their way.
    pub in_flight: usize,
    /// Units to which places were promised.
    pub nominated: usize,
    /// Nodes.
    pub nodes: usize,
    /// Pods that are known.
    pub pods: usize,
    /// Claims and pods whose devices others have as well.
    pub clashes: usize,
}

impl Scheduler {
    /// A mind that knows nothing yet.
    pub fn new(config: SchedulerConfig) -> Self {
        let decision_log = DecisionLog::new(config.explanations);
        let records = Records::new(&config);
        Self {
            config,
            now: 0,
            cluster_revision: 0,
            pods: BTreeMap::new(),
            by_name: FxHashMap::default(),
            on_node: BTreeMap::new(),
            members: BTreeMap::new(),
            by_claim: FxHashMap::default(),
            nodes: BTreeMap::new(),
            budgets: BTreeMap::new(),
            footprints: FxHashSet::default(),
            devices: Devices::default(),
            volumes: Volumes::default(),
            neighbours: Neighbours::default(),
            groups: Groups::default(),
            policies: Policies::default(),
            masks: MaskAllocator::default(),
            engine: EngineCache::empty(Decider::default()),
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
            refusals: single_pod::RefusalCache::default(),
            decision_log,
            records,
            hints: preemption_hint::HintSchedule::default(),
            ops: Vec::new(),
            reports: Vec::new(),
            decision_metrics: Vec::new(),
        }
    }

    /// Tells the time: milliseconds since some moment, never less than before. Says when it wants to
    /// be told again at the latest.
    pub fn tick(&mut self, now: u64) -> Option<u64> {
        self.now = self.now.max(now);
        self.retry_nominations();
        let retry = self.queue.tick(self.now);
        let places = self.drop_expired_successor_places();
        let evictions = self.retry_evictions();
        let binds = self.resolve_due();
        let delayed = self.flush_delayed();
        let rollbacks = self.retry_rollbacks();
        let hints = self.report_due_hints();
        [retry, places, evictions, binds, delayed, rollbacks, hints].into_iter().flatten().min()
    }

    /// Decides on what is ready, until there is nothing more, or enough for one look. Says whether
    /// there may be more at once.
    pub fn decide(&mut self) -> bool {
        self.rebuild_engine_if_stale();
        self.repair_lost_nodes();
        self.devices.begin_round();
        let mut cycle = self.queue.begin_cycle(self.now);
        for _ in 0..self.config.batch {
            if self.in_flight.len() >= self.config.in_flight {
                // Outcomes make room.
                return false;
            }
            let Some(position) = self.queue.next(cycle.after.as_ref()) else {
                return self.queue.end_cycle(&cycle);
            };
            self.queue.record_attempt(&position.key);
            let key = position.key.clone();
            cycle.after = Some(position);
            match &key {
                QueueKey::Pod(uid) => self.decide_pod(uid),
                QueueKey::Group(group) => {
                    self.decide_group(group);
                    // A gang takes long enough for others to have news and orders meanwhile.
                    break;
                }
            }
        }
        self.queue.end_cycle_early(cycle, self.now);
        true
    }

    /// Orders since the last call, to be carried out in this order as far as they are of one pod.
    pub fn take_ops(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.ops)
    }

    /// What is to be told, since the last call.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// DecisionLog since the last call.
    pub fn take_decision_metrics(&mut self) -> Vec<DecisionMetric> {
        std::mem::take(&mut self.decision_metrics)
    }

    /// How much is where.
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

    /// Gives an order.
    fn submit(&mut self, pod: &Arc<str>, purpose: OpPurpose, task: Task) -> OrderId {
        let id = OrderId(self.next_op);
        self.next_op += 1;
        let bind = match &task {
            Task::Bind(bind) => Some(Box::new(bind.clone())),
            _ => None,
        };
        let op = InFlightOp { pod: Arc::clone(pod), purpose, bind, spans_leadership_gap: false };
        self.in_flight.insert(id, op);
        self.ops.push(Order { id, task });
        id
    }

    /// Something has changed that may turn a refusal into a place.
    fn cluster_changed(&mut self) {
        self.cluster_revision += 1;
        self.queue.requeue_unschedulable(self.cluster_revision);
    }
}
