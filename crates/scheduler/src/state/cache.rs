//! The cluster as observed and assumed: pods, nodes, claims, volumes, groups and the engine's world.
//!
//! Watch events and assumed placements change it, decisions read it. It submits and reports
//! nothing. Its fields are private: only the modules below change them.

mod accounting;
pub(super) mod budgets;
pub(super) mod changes;
mod claim_holders;
pub(super) mod engine_cache;
mod fit;
pub(super) mod gpu_risk;
pub(super) mod lost_nodes;
pub(super) mod maintenance;
pub(super) mod members;
pub(super) mod node;
pub(super) mod node_mask;
pub(super) mod nodes;
mod placed_gang;
mod places;
pub(super) mod pod;
mod pods;
mod repairs;
pub(super) mod shape;
pub(super) mod unmodeled_nodes;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use octavo_dra::Features;
use octavo_engine::PlanResult;
use octavo_engine::objective::policy::PolicyError;
use octavo_engine::planner::{DecisionInput, Planner};
use octavo_kube_io::objects::{Budget, Change, Delta, NodeName, ObjectName, PodUid, WatchedObject};

use super::config::SchedulerConfig;
use crate::devices::Devices;
use crate::groups::{GroupName, Groups};
use crate::policies::Policies;
use crate::predicates::{Neighbours, PodRequests, VolumeChoice, Volumes};
use crate::status::StatusUpdate;
use changes::Changes;
use engine_cache::{DesiredMember, EngineCache, Holder};
use gpu_risk::GpuRisks;
use maintenance::Maintenances;
use node::NodeRecord;
use node_mask::MaskAllocator;
use pod::PodRecord;
use repairs::{Faults, FullRun};

/// The observed and assumed state of the cluster.
#[derive(Debug)]
pub(super) struct Cache {
    config: SchedulerConfig,
    /// Milliseconds, as last passed to [`super::Scheduler::tick`].
    now: u64,
    /// Number of changes that could make an unschedulable entry schedulable.
    revision: u64,
    changes: Changes,

    pods: BTreeMap<PodUid, PodRecord>,
    by_name: HashMap<ObjectName, PodUid>,
    on_node: BTreeMap<NodeName, BTreeSet<PodUid>>,
    members: BTreeMap<GroupName, BTreeSet<PodUid>>,
    by_claim: HashMap<ObjectName, BTreeSet<PodUid>>,
    nodes: BTreeMap<NodeName, NodeRecord>,
    /// Lost nodes, with the time in milliseconds since when.
    lost: BTreeMap<NodeName, u64>,
    /// Gangs that run with fewer members than their minimum, with the time in milliseconds since when.
    below_minimum: BTreeMap<GroupName, u64>,
    full_runs: BTreeMap<GroupName, FullRun>,
    /// Gangs that had a fault of late.
    faults: BTreeMap<GroupName, Faults>,
    /// Gangs with members that run, whose bindings this scheduler has read: what it saw since counts alone.
    looked_back: BTreeSet<GroupName>,
    budgets: BTreeMap<ObjectName, Arc<Budget>>,
    footprints: HashSet<Arc<PodRequests>>,
    /// Number of footprints at which those without pods are removed.
    max_footprints: usize,

    devices: Devices,
    volumes: Volumes,
    neighbours: Neighbours,
    groups: Groups,
    policies: Policies,
    gpu_risks: GpuRisks,
    maintenances: Maintenances,
    /// Whether the policies were checked against the current nodes.
    are_policies_checked: bool,

    masks: MaskAllocator,
    engine: EngineCache,
    /// Whether the engine cache must be rebuilt: nodes came, went, or have other GPUs.
    is_engine_stale: bool,
    /// Claims that hold GPUs and have no single placed pod as owner, by node.
    claim_holders: BTreeMap<NodeName, BTreeSet<Holder>>,
}

impl Cache {
    /// An empty cache.
    pub(super) fn new(config: SchedulerConfig) -> Self {
        let devices = Devices::new(&config.scheduler_name, Features::default());
        Self {
            config,
            now: 0,
            revision: 0,
            changes: Changes::default(),
            pods: BTreeMap::new(),
            by_name: HashMap::default(),
            on_node: BTreeMap::new(),
            members: BTreeMap::new(),
            by_claim: HashMap::default(),
            nodes: BTreeMap::new(),
            lost: BTreeMap::new(),
            below_minimum: BTreeMap::new(),
            full_runs: BTreeMap::new(),
            faults: BTreeMap::new(),
            looked_back: BTreeSet::new(),
            budgets: BTreeMap::new(),
            footprints: HashSet::default(),
            max_footprints: pods::MIN_FOOTPRINTS,
            devices,
            volumes: Volumes::default(),
            neighbours: Neighbours::default(),
            groups: Groups::default(),
            policies: Policies::default(),
            gpu_risks: GpuRisks::default(),
            maintenances: Maintenances::default(),
            are_policies_checked: false,
            masks: MaskAllocator::default(),
            engine: EngineCache::empty(Planner::default()),
            is_engine_stale: true,
            claim_holders: BTreeMap::new(),
        }
    }

    /// Settings of decisions.
    pub(super) fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// The time in milliseconds, as last passed to [`super::Scheduler::tick`].
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Advances the clock (monotonic, in milliseconds).
    pub(super) fn advance_clock(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// Slices, claims and classes, and which devices are in use.
    pub(super) fn devices(&self) -> &Devices {
        &self.devices
    }

    /// As [`Self::devices`], to assume and to forget allocations.
    pub(super) fn devices_mut(&mut self) -> &mut Devices {
        &mut self.devices
    }

    /// Volumes and their claims.
    pub(super) fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// Applies a change of storage. Returns whether pods may require other nodes now.
    pub(super) fn apply_storage(&mut self, change: &Change) -> bool {
        self.volumes.apply(change)
    }

    /// Assumes how claims get their volumes.
    pub(super) fn assume_volumes(&mut self, choices: &[VolumeChoice]) {
        self.volumes.assume(choices);
    }

    /// Notes the node for which volumes of these claims are requested.
    pub(super) fn select_node(&mut self, choices: &[VolumeChoice], node: &NodeName) {
        self.volumes.select_node(choices, node);
    }

    /// Forgets the volumes that were assumed for a pod. Returns whether there were any.
    pub(super) fn forget_volumes(&mut self, uid: &PodUid) -> bool {
        let record = self.pods.get(uid);
        record.is_some_and(|record| self.volumes.forget(&record.pod))
    }

    /// Pods as the rules of other pods see them.
    pub(super) fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// Applies a change of namespaces, whose labels rules of pods select.
    pub(super) fn apply_namespaces(&mut self, change: &Change) {
        if self.neighbours.apply(change) {
            self.cluster_changed();
        }
    }

    /// Applies a change of objects that describe gangs. Returns the gangs that may differ now.
    pub(super) fn apply_groups(&mut self, delta: &Delta<WatchedObject>) -> Vec<GroupName> {
        self.groups.apply(delta)
    }

    /// Placement policies.
    pub(super) fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Applies a change of placement policies. Returns their statuses.
    pub(super) fn apply_policies(&mut self, delta: &Delta<WatchedObject>) -> Vec<StatusUpdate> {
        let before = is_policy(delta).then(|| self.policies.clone());
        let reports = self.policies.apply(delta);
        if before.is_some_and(|before| before != self.policies) {
            self.are_policies_checked = false;
            self.cluster_changed();
        }
        reports
    }

    /// Reports policies whose limits the cluster cannot keep, after a change of either.
    pub(super) fn check_policies(&mut self) -> Vec<StatusUpdate> {
        if std::mem::replace(&mut self.are_policies_checked, true) {
            return Vec::new();
        }
        self.policies.check(&self.engine.world)
    }

    /// The engine's view of the cluster.
    pub(super) fn engine(&self) -> &EngineCache {
        &self.engine
    }

    /// Asks the engine. It learns from its answer.
    pub(super) fn plan(&mut self, input: &DecisionInput<'_>) -> Result<PlanResult, PolicyError> {
        let EngineCache { planner, world, .. } = &mut self.engine;
        planner.decide(world, input)
    }

    /// Sets the member of a holder that is no pod and no claim; `None` removes it.
    pub(super) fn set_member(&mut self, holder: &Holder, desired: Option<DesiredMember>) {
        self.engine.set_desired(holder, desired);
    }
}

/// Whether a change concerns a placement policy.
fn is_policy(delta: &Delta<WatchedObject>) -> bool {
    let kind = Policies::kind();
    match delta {
        Delta::Upsert(object) | Delta::Delete(object) => object.kind == kind.kind,
        Delta::Replace(of, _) => of.kind == kind.kind,
    }
}
