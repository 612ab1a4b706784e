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

mod asking;
mod budgets;
mod change;
pub mod config;
mod decide;
mod doubt;
mod gang;
mod grant;
mod leading;
mod left_out;
mod marks;
mod membership;
mod node;
mod nodes;
mod occupancy;
mod others;
mod outcome;
mod outside;
mod picture;
mod pod;
mod pods;
mod promise;
mod questions;
mod queue;
mod reading;
mod records;
mod recover;
mod remedy;
mod repair;
mod shape;
mod single;
mod statement;
#[cfg(test)]
mod tests;
mod undo;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::planner::Planner;
use octavo_kube_io::objects::{Budget, ObjectName};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::bind::{Bind, OpId, OpKind, WriteOp};
use crate::devices::Devices;
use crate::groups::{GroupName, Groups};
use crate::policies::Policies;
use crate::predicates::{AntiAffinityIndex, PodRequests, Volumes};
use crate::status::StatusUpdate;
pub use config::{CoreConfig, LevelConfig};
use marks::Marks;
use node::NodeRecord;
pub(crate) use outside::nodes_are;
use picture::Picture;
use pod::PodRecord;
use promise::Promise;
use questions::Decisions;
use queue::{Queue, Unit};
use records::Records;
pub use remedy::{Found, Search};
use statement::Waiting;

/// The scheduler's mind.
#[derive(Debug)]
pub struct Core {
    config: CoreConfig,
    /// Milliseconds, as [`Core::tick`] was told.
    now: u64,
    /// Number of changes after which a refusal may no longer hold.
    changes: u64,

    pods: BTreeMap<Arc<str>, PodRecord>,
    by_name: FxHashMap<ObjectName, Arc<str>>,
    on_node: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    members: BTreeMap<GroupName, BTreeSet<Arc<str>>>,
    by_claim: FxHashMap<ObjectName, BTreeSet<Arc<str>>>,
    nodes: BTreeMap<Arc<str>, NodeRecord>,
    budgets: BTreeMap<ObjectName, Arc<Budget>>,
    footprints: FxHashSet<Arc<PodRequests>>,

    devices: Devices,
    volumes: Volumes,
    neighbours: AntiAffinityIndex,
    groups: Groups,
    policies: Policies,

    marks: Marks,
    picture: Picture,
    /// Whether the picture must be made anew: nodes came, went, or have other GPUs.
    is_picture_old: bool,
    /// Claims that no placed pod owns and that hold GPUs, by node.
    claim_holders: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,

    queue: Queue,
    /// Orders on their way, and whose they are.
    flying: BTreeMap<OpId, Flight>,
    next_order: u64,
    promises: BTreeMap<Unit, Promise>,
    holds: Vec<repair::HeldPlace>,
    lost: BTreeMap<Arc<str>, u64>,
    /// Who could not be evicted, by when it may be asked again.
    left_alone: BTreeSet<(u64, Arc<str>)>,
    /// Pods of whose order nobody knows what it left.
    doubtful: BTreeMap<Arc<str>, doubt::Doubt>,
    /// Claims that are taken back.
    undos: undo::Undos,
    waiting: FxHashMap<Unit, Waiting>,
    /// What was not told yet because it should pass by itself, by when it is told.
    untold: BTreeSet<(u64, Unit)>,
    refused: single::Refused,
    decisions: Decisions,
    records: Records,
    remedies: remedy::Due,

    orders: Vec<WriteOp>,
    reports: Vec<StatusUpdate>,
    decided: Vec<Decided>,
}

/// An order on its way.
#[derive(Clone, Debug)]
struct Flight {
    pod: Arc<str>,
    kind: FlightKind,
    /// What it binds, to be sent again.
    bind: Option<Box<Bind>>,
    /// Whether another scheduler may have led since it was given.
    is_outlived: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlightKind {
    Bind,
    Evict,
    Repair,
    Undo,
    Other,
}

/// A decision, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Whether it was about a gang.
    pub is_gang: bool,
    /// `placed`, `promised`, `refused` or `waits`.
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
    pub promised: usize,
    /// Nodes.
    pub nodes: usize,
    /// Pods that are known.
    pub pods: usize,
    /// Claims and pods whose devices others have as well.
    pub clashes: usize,
}

impl Core {
    /// A mind that knows nothing yet.
    pub fn new(config: CoreConfig) -> Self {
        let decisions = Decisions::new(config.explanations);
        let records = Records::new(&config);
        Self {
            config,
            now: 0,
            changes: 0,
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
            neighbours: AntiAffinityIndex::default(),
            groups: Groups::default(),
            policies: Policies::default(),
            marks: Marks::default(),
            picture: Picture::empty(Planner::default()),
            is_picture_old: true,
            claim_holders: BTreeMap::new(),
            queue: Queue::default(),
            flying: BTreeMap::new(),
            next_order: 0,
            promises: BTreeMap::new(),
            holds: Vec::new(),
            lost: BTreeMap::new(),
            left_alone: BTreeSet::new(),
            doubtful: BTreeMap::new(),
            undos: undo::Undos::default(),
            waiting: FxHashMap::default(),
            untold: BTreeSet::new(),
            refused: single::Refused::default(),
            decisions,
            records,
            remedies: remedy::Due::default(),
            orders: Vec::new(),
            reports: Vec::new(),
            decided: Vec::new(),
        }
    }

    /// Tells the time: milliseconds since some moment, never less than before. Says when it wants to
    /// be told again at the latest.
    pub fn tick(&mut self, now: u64) -> Option<u64> {
        self.now = self.now.max(now);
        self.try_promises();
        let retry = self.queue.tick(self.now);
        let hold = self.drop_old_holds();
        let again = self.ask_again();
        let doubt = self.end_doubts();
        let late = self.tell_late();
        let undo = self.undo_again();
        let remedy = self.tell_remedies();
        [retry, hold, again, doubt, late, undo, remedy].into_iter().flatten().min()
    }

    /// Decides on what is ready, until there is nothing more, or enough for one look. Says whether
    /// there may be more at once.
    pub fn decide(&mut self) -> bool {
        self.bring_picture_up_to_date();
        self.repair_lost_nodes();
        self.devices.begin_cycle();
        let mut round = self.queue.begin_cycle(self.now);
        for _ in 0..self.config.batch {
            if self.flying.len() >= self.config.in_flight {
                // Outcomes make room.
                return false;
            }
            let Some(rank) = self.queue.next(round.after.as_ref()) else {
                return self.queue.is_at_end(&round);
            };
            self.queue.is_decided(&rank.unit);
            let unit = rank.unit.clone();
            round.after = Some(rank);
            match &unit {
                Unit::Pod(uid) => self.decide_pod(uid),
                Unit::Group(group) => {
                    self.decide_group(group);
                    // A gang takes long enough for others to have news and orders meanwhile.
                    break;
                }
            }
        }
        self.queue.is_cut(round, self.now);
        true
    }

    /// Orders since the last call, to be carried out in this order as far as they are of one pod.
    pub fn take_orders(&mut self) -> Vec<WriteOp> {
        std::mem::take(&mut self.orders)
    }

    /// What is to be told, since the last call.
    pub fn take_reports(&mut self) -> Vec<StatusUpdate> {
        std::mem::take(&mut self.reports)
    }

    /// Decisions since the last call.
    pub fn take_decided(&mut self) -> Vec<Decided> {
        std::mem::take(&mut self.decided)
    }

    /// How much is where.
    pub fn counts(&self) -> Counts {
        let (waiting, ready) = self.queue.len();
        Counts {
            waiting,
            ready,
            in_flight: self.flying.len(),
            promised: self.promises.len(),
            nodes: self.nodes.len(),
            pods: self.pods.len(),
            clashes: self.picture.clashes.len(),
        }
    }

    /// Gives an order.
    fn order(&mut self, pod: &Arc<str>, kind: FlightKind, task: OpKind) -> OpId {
        let id = OpId(self.next_order);
        self.next_order += 1;
        let bind = match &task {
            OpKind::Bind(bind) => Some(Box::new(bind.clone())),
            _ => None,
        };
        let flight = Flight { pod: Arc::clone(pod), kind, bind, is_outlived: false };
        self.flying.insert(id, flight);
        self.orders.push(WriteOp { id, kind: task });
        id
    }

    /// Something has changed that may turn a refusal into a place.
    fn something_changed(&mut self) {
        self.changes += 1;
        self.queue.something_changed(self.changes);
    }
}
