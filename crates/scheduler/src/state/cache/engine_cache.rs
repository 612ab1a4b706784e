//! The engine's view of the cluster: nodes by name, and a member for each holder. A holder is a
//! pod, or a claim without a single placed pod as owner.
//!
//! Updates are idempotent: callers set the desired member of a holder, and an equal one costs a
//! lookup. So the order of watch events does not matter, and nothing is counted twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use octavo_engine::node::NodeClass;
use octavo_engine::planner::Planner;
use octavo_engine::snapshot::PackingRecord;
use octavo_engine::topology::{Level, TopologyError};
use octavo_engine::workload::{Coupling, LimitId, Member, MemberId, Profile, WorkloadId};
use octavo_engine::{
    Cluster, ClusterError, GpuModel, NodeId, NodeSpec, Placement, Shape, Topology, Workload,
    Workloads, World,
};
use octavo_health::risk::RiskClass;
use octavo_kube_io::objects::{NodeName, ObjectName};

/// A holder: the UID of a pod, or `claim:` and the UID of a claim.
pub(in crate::state) type Holder = Arc<str>;

/// The desired member of a holder.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::state) struct DesiredMember {
    /// The workload that it belongs to.
    pub(in crate::state) workload: DesiredWorkload,
    /// The request.
    pub(in crate::state) shape: Arc<Shape>,
    /// Name of the node.
    pub(in crate::state) node: NodeName,
    /// Parts of the node's GPUs.
    pub(in crate::state) gpus: octavo_engine::placement::GpuParts,
    /// The disruption budget that counts its eviction; an empty name: it cannot be evicted.
    pub(in crate::state) budget: Option<ObjectName>,
}

impl DesiredMember {
    /// Whether both are the same member with the same placement. Profiles may differ.
    fn has_same_placement(&self, other: &Self) -> bool {
        self.workload.profile.name == other.workload.profile.name
            && (&self.shape, &self.node, &self.gpus) == (&other.shape, &other.node, &other.gpus)
    }

    /// Whether it may be preempted or moved in more cases than before.
    pub(in crate::state) fn is_more_disruptable_than(&self, before: &Self) -> bool {
        let has_left_budget = before.budget.is_some()
            && self.budget != before.budget
            && self.budget.as_ref().is_none_or(|name| !name.name.is_empty());
        has_left_budget || self.workload.is_more_disruptable_than(&before.workload)
    }
}

/// A workload, as its members describe it.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::state) struct DesiredWorkload {
    pub(in crate::state) profile: Arc<Profile>,
    pub(in crate::state) min_members: u32,
    pub(in crate::state) coupling: Coupling,
}

impl DesiredWorkload {
    /// Whether the workload may be preempted or moved in more cases than before.
    fn is_more_disruptable_than(&self, before: &Self) -> bool {
        let (now, then) = (&self.profile, &before.profile);
        now.is_preemptible && (!then.is_preemptible || now.priority < then.priority)
            || now.is_movable && (!then.is_movable || now.topology != then.topology)
            || self.min_members < before.min_members
            || (before.coupling.is_whole && !self.coupling.is_whole)
            || (before.coupling.is_fixed && !self.coupling.is_fixed)
    }
}

/// A holder's member in the engine's world.
#[derive(Clone, Debug)]
struct CachedMember {
    desired: DesiredMember,
    id: MemberId,
    /// Whether its GPU parts could not be placed, because they are allocated to others.
    lacks_gpus: bool,
}

/// The engine's world, and the holders of its members.
#[derive(Debug)]
pub(in crate::state) struct EngineCache {
    pub(in crate::state) world: World,
    pub(in crate::state) planner: Planner,
    members: HashMap<Holder, CachedMember>,
    holders: BTreeMap<MemberId, Holder>,
    /// The engine's limits that members' budgets stand for.
    limits: BTreeMap<ObjectName, LimitId>,
    levels: Vec<Level>,
    /// Topology labels by node.
    labels: BTreeMap<NodeName, BTreeMap<String, String>>,
    /// Message about topology labels that contradict one another. Their levels then go by path.
    pub(in crate::state) topology_fault: Option<String>,
    /// Holders whose GPUs are also allocated to others, with a message.
    pub(in crate::state) clashes: BTreeMap<Holder, String>,
    /// Number of changes since the cache was built.
    pub(in crate::state) revision: u64,
}

/// A node as the engine should know it.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::state) struct DesiredNode {
    pub(in crate::state) spec: NodeSpec,
    /// Bit set of GPUs that accept no new placement.
    pub(in crate::state) closed: u64,
    /// GPUs of more than the usual risk.
    pub(in crate::state) risks: BTreeMap<u16, RiskClass>,
}

impl DesiredNode {
    /// The same node without GPUs.
    pub(in crate::state) fn without_gpus(&self) -> Self {
        let class = NodeClass { gpus: 0, ..self.spec.class.clone() };
        let spec = NodeSpec { class, ..self.spec.clone() };
        Self { spec, closed: 0, risks: BTreeMap::new() }
    }
}

impl EngineCache {
    /// Builds a cache of these nodes without members. `learned` is the packing policy's state of
    /// the previous cache. It is dropped if its GPU models are gone.
    pub(in crate::state) fn new(
        models: &[GpuModel],
        levels: &[Level],
        nodes: &[DesiredNode],
        learned: Option<&PackingRecord>,
    ) -> Result<Self, ClusterError> {
        let specs = nodes.iter().map(|node| node.spec.clone()).collect();
        let cluster = Cluster::new(models.to_vec(), specs)?;
        let by_name: BTreeMap<&str, &DesiredNode> =
            nodes.iter().map(|node| (&*node.spec.name, node)).collect();
        let none = BTreeMap::new();
        let labels = cluster
            .nodes()
            .map(|id| by_name.get(cluster.name(id)).map_or(&none, |node| &node.spec.labels));
        let labels: Vec<_> = labels.collect();
        let (topology, topology_fault) = topology(levels, &labels, cluster.node_count());
        let planner = learned.and_then(|form| Planner::restored(form, &cluster).ok());
        let planner = planner.unwrap_or_default();
        let world = World { cluster, topology, workloads: Workloads::default() };
        let mut engine = Self {
            world,
            planner,
            members: HashMap::default(),
            holders: BTreeMap::new(),
            limits: BTreeMap::new(),
            levels: levels.to_vec(),
            labels: nodes
                .iter()
                .map(|node| (NodeName::from(Arc::clone(&node.spec.name)), node.spec.labels.clone()))
                .collect(),
            topology_fault,
            clashes: BTreeMap::new(),
            revision: 0,
        };
        for node in nodes {
            engine.set_closed(&node.spec.name, node.closed);
            engine.set_risks(&node.spec.name, &node.risks);
        }
        Ok(engine)
    }

    /// A cache without nodes.
    pub(in crate::state) fn empty(planner: Planner) -> Self {
        let topology = Topology::flat(0);
        let (cluster, workloads) = (Cluster::default(), Workloads::default());
        Self {
            world: World { cluster, topology, workloads },
            planner,
            members: HashMap::default(),
            holders: BTreeMap::new(),
            limits: BTreeMap::new(),
            levels: Vec::new(),
            labels: BTreeMap::new(),
            topology_fault: None,
            clashes: BTreeMap::new(),
            revision: 0,
        }
    }

    /// The node of a name.
    pub(in crate::state) fn node(&self, name: &str) -> Option<NodeId> {
        self.world.cluster.node_named(name)
    }

    /// Adds a node. It gets the next id, so ties go to nodes that came before. Returns whether that
    /// worked: the cache must be rebuilt for a level that no node had.
    pub(super) fn add_node(&mut self, node: &DesiredNode, levels: &[Level]) -> bool {
        if self.levels != levels || self.world.cluster.add_node(&node.spec).is_err() {
            return false;
        }
        let name = NodeName::from(Arc::clone(&node.spec.name));
        self.labels.insert(name.clone(), node.spec.labels.clone());
        let cluster = &self.world.cluster;
        let none = BTreeMap::new();
        let labels = cluster.nodes().map(|id| self.labels.get(cluster.name(id)).unwrap_or(&none));
        let labels: Vec<_> = labels.collect();
        (self.world.topology, self.topology_fault) =
            topology(levels, &labels, cluster.node_count());
        self.revision += 1;
        self.set_closed(&name, node.closed);
        self.set_risks(&name, &node.risks);
        true
    }

    /// Changes the class of a node. Fails if its GPUs differ and are in use; then the cache must be
    /// rebuilt.
    pub(in crate::state) fn set_class(
        &mut self,
        name: &str,
        class: &NodeClass,
    ) -> Result<(), ClusterError> {
        let Some(node) = self.node(name) else { return Ok(()) };
        if self.world.cluster.class(node) == class {
            return Ok(());
        }
        self.revision += 1;
        self.world.cluster.set_class(node, class)
    }

    /// Labels of the levels that the topology has.
    pub(super) fn level_labels(&self) -> BTreeSet<&str> {
        self.levels.iter().map(|level| level.label.as_str()).collect()
    }

    /// The labels that placed a node in the topology.
    pub(in crate::state) fn labels(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.labels.get(name)
    }

    /// Changes the features of a node.
    pub(in crate::state) fn set_features(
        &mut self,
        name: &str,
        features: octavo_engine::node::FeatureMask,
    ) {
        let Some(node) = self.node(name) else { return };
        let class = NodeClass { features, ..self.world.cluster.class(node).clone() };
        // Cannot fail: the GPUs stay as they are.
        let _ = self.set_class(name, &class);
    }

    /// Closes and opens GPUs of a node.
    pub(in crate::state) fn set_closed(&mut self, name: &str, closed: u64) {
        let Some(node) = self.node(name) else { return };
        for gpu in 0..self.world.cluster.class(node).gpus {
            let is_open = closed >> gpu & 1 == 0;
            let gpu_state = self.world.cluster.gpus(node).get(usize::from(gpu));
            if gpu_state.is_some_and(|free| free.is_closed == is_open) {
                self.revision += 1;
                // Cannot fail: the GPU exists.
                let _ = self.world.cluster.set_gpu_open(node, gpu, is_open);
            }
        }
    }

    /// Sets the risk of all GPUs of a node; those that are not listed have the usual one.
    pub(in crate::state) fn set_risks(&mut self, name: &str, risks: &BTreeMap<u16, RiskClass>) {
        let Some(node) = self.node(name) else { return };
        for gpu in 0..self.world.cluster.class(node).gpus {
            let risk = risks.get(&gpu).copied().unwrap_or_default();
            let gpu_state = self.world.cluster.gpus(node).get(usize::from(gpu));
            if gpu_state.is_some_and(|free| free.risk != risk) {
                self.revision += 1;
                // Cannot fail: the GPU exists.
                let _ = self.world.cluster.set_gpu_risk(node, gpu, risk);
            }
        }
    }

    /// Memory of one GPU of a node, in MiB.
    pub(in crate::state) fn memory_mib(&self, node: NodeId) -> u32 {
        let cluster = &self.world.cluster;
        let model = cluster.models().get(usize::from(cluster.class(node).model.0));
        model.map_or(0, |model| model.memory_mib)
    }

    /// The desired member of a holder, as set last.
    pub(in crate::state) fn desired(&self, holder: &str) -> Option<&DesiredMember> {
        self.members.get(holder).map(|cached| &cached.desired)
    }

    /// The member of a holder.
    pub(in crate::state) fn member(&self, holder: &str) -> Option<MemberId> {
        self.members.get(holder).map(|cached| cached.id)
    }

    /// Holders by member.
    pub(in crate::state) fn holders(&self) -> &BTreeMap<MemberId, Holder> {
        &self.holders
    }

    /// The holder of a member.
    pub(in crate::state) fn holder(&self, id: MemberId) -> Option<&Holder> {
        self.holders.get(&id)
    }

    /// Sets the desired member of a holder; `None` removes it.
    pub(in crate::state) fn set_desired(
        &mut self,
        holder: &Holder,
        desired: Option<DesiredMember>,
    ) {
        match (&desired, self.members.get_mut(holder)) {
            (None, None) => return,
            (Some(desired), Some(cached)) if cached.desired == *desired && !cached.lacks_gpus => {
                return;
            }
            (Some(desired), Some(cached))
                if cached.desired.has_same_placement(desired) && !cached.lacks_gpus =>
            {
                // Updated in place: the packing policy would learn from a departure and an arrival.
                cached.desired = desired.clone();
                let id = cached.id;
                self.workload(&desired.workload);
                let limit = self.limit_of(desired);
                self.world.workloads.set_limit(id, limit);
                self.revision += 1;
                return;
            }
            _ => {}
        }
        self.revision += 1;
        self.remove(holder);
        let Some(desired) = desired else { return };
        let Some(node) = self.node(&desired.node) else { return };
        let workload = self.workload(&desired.workload);
        let mut placement = Placement { node, gpus: desired.gpus.clone() };
        let resources = &desired.shape.resources;
        let mut lacks_gpus = false;
        if let Err(misfit) = self.world.cluster.place_running(resources, &placement) {
            // Its GPUs are also allocated to others. Its CPU and memory still count.
            self.clashes.insert(Arc::clone(holder), misfit.to_string());
            placement.gpus.clear();
            lacks_gpus = true;
            if self.world.cluster.place_running(resources, &placement).is_err() {
                return;
            }
        }
        let id = self.free_slot(workload);
        let limit = self.limit_of(&desired);
        let member = Member { shape: Arc::clone(&desired.shape), placement, limit };
        self.world.workloads.set_member(id, Some(member));
        self.holders.insert(id, Arc::clone(holder));
        self.members.insert(Arc::clone(holder), CachedMember { desired, id, lacks_gpus });
    }

    /// Removes the member of a holder.
    fn remove(&mut self, holder: &Holder) {
        self.clashes.remove(holder);
        let Some(cached) = self.members.remove(holder) else { return };
        self.holders.remove(&cached.id);
        let Some(member) = self.world.workloads.set_member(cached.id, None) else { return };
        let released = self.world.cluster.release(&member.shape.resources, &member.placement);
        debug_assert!(released.is_ok(), "a cached placement must be releasable: {released:?}");
        self.planner.released(&member.shape, &member.placement);
        let workload = cached.id.workload;
        if self
            .world
            .workloads
            .workload(workload)
            .is_some_and(|workload| workload.member_count() == 0)
        {
            self.world.workloads.remove(workload);
        }
    }

    /// Whether members have budgets.
    pub(in crate::state) fn has_limits(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Sets how many evictions each budget allows; `None` if it is gone.
    pub(in crate::state) fn set_allowances(
        &mut self,
        allowance: impl Fn(&ObjectName) -> Option<u32>,
    ) {
        let limits = &mut self.world.workloads.eviction_limits;
        self.limits.retain(|budget, id| {
            let allowance = allowance(budget);
            match allowance {
                Some(allowance) => limits.set_allowance(*id, allowance),
                None => limits.remove(*id),
            }
            allowance.is_some()
        });
    }

    /// The limit of a member. A new one allows nothing yet.
    fn limit_of(&mut self, desired: &DesiredMember) -> Option<LimitId> {
        let budget = desired.budget.as_ref()?;
        if let Some(id) = self.limits.get(budget) {
            return Some(*id);
        }
        let id = self.world.workloads.eviction_limits.add(budget.to_string(), 0);
        self.limits.insert(budget.clone(), id);
        Some(id)
    }

    /// The workload of a member. The description of its newest member wins.
    fn workload(&mut self, desired: &DesiredWorkload) -> WorkloadId {
        let DesiredWorkload { profile, min_members, coupling } = desired;
        let workloads = &mut self.world.workloads;
        if let Some(id) = workloads.named(&profile.name) {
            let is_same = workloads.workload(id).is_some_and(|workload| {
                (workload.min_members, workload.coupling) == (*min_members, *coupling)
                    && workload.profile == **profile
            });
            if !is_same {
                workloads.describe(id, (**profile).clone(), *min_members, *coupling);
            }
            return id;
        }
        let profile = (**profile).clone();
        let (min_members, coupling) = (*min_members, *coupling);
        let workload = Workload { profile, min_members, coupling, members: Vec::new() };
        workloads.add(workload).unwrap_or_default()
    }

    /// The first free rank of a workload.
    fn free_slot(&self, workload: WorkloadId) -> MemberId {
        let members = self.world.workloads.workload(workload).map(|workload| &workload.members);
        let free = members.and_then(|members| members.iter().position(Option::is_none));
        let next = free.unwrap_or(members.map_or(0, Vec::len));
        MemberId { workload, member: u32::try_from(next).unwrap_or(u32::MAX) }
    }
}

/// The topology of these labels. Where labels contradict one another, domains are distinguished by
/// their path.
fn topology(
    levels: &[Level],
    labels: &[&BTreeMap<String, String>],
    nodes: usize,
) -> (Topology, Option<String>) {
    let read = |levels: &[Level]| Topology::from_labels(levels, labels.iter().copied());
    let error: TopologyError = match read(levels) {
        Ok(topology) => return (topology, None),
        Err(error) => error,
    };
    let by_path: Vec<Level> =
        levels.iter().map(|level| Level { is_unique: false, ..level.clone() }).collect();
    let topology = read(&by_path).unwrap_or_else(|_| Topology::flat(nodes));
    (topology, Some(error.to_string()))
}
