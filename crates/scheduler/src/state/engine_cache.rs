//! The engine's picture of the cluster, kept from what is known: nodes by name, and for each holder
//! (a pod, or a claim that no placed pod owns) what it has.
//!
//! Holders are told again and again as they ought to be; what is so already costs a look-up. So the
//! order in which pods, claims and slices are seen does not matter, and nothing is counted twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::decider::Decider;
use octavo_engine::node::NodeClass;
use octavo_engine::snapshot::PackingForm;
use octavo_engine::topology::{Level, TopologyError};
use octavo_engine::workload::{Bonds, Member, MemberId, Profile, WorkloadId};
use octavo_engine::{
    Cluster, GpuModel, Misfit, NodeId, NodeSpec, Placement, Shape, Topology, Workload, Workloads,
    World,
};
use rustc_hash::FxHashMap;

/// Who holds something: the UID of a pod, or `claim:` and the UID of a claim.
pub(super) type Holder = Arc<str>;

/// What a holder ought to have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DesiredMember {
    /// The workload that it is a member of.
    pub(super) workload: DesiredWorkload,
    /// What it asked for.
    pub(super) shape: Arc<Shape>,
    /// Name of its node.
    pub(super) node: Arc<str>,
    /// What it has of the node's GPUs.
    pub(super) gpus: octavo_engine::placement::GpuParts,
}

impl DesiredMember {
    /// Whether the same member has the same, whatever its workload says of itself.
    fn has_same_placement(&self, other: &Self) -> bool {
        self.workload.profile.name == other.workload.profile.name
            && (&self.shape, &self.node, &self.gpus) == (&other.shape, &other.node, &other.gpus)
    }
}

/// A workload as its members see it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DesiredWorkload {
    pub(super) profile: Arc<Profile>,
    pub(super) min_members: u32,
    pub(super) bonds: Bonds,
}

impl DesiredWorkload {
    /// Whether its members may leave for others where they might not as it was before.
    pub(super) fn is_more_disruptable_than(&self, before: &Self) -> bool {
        let (now, then) = (&self.profile, &before.profile);
        now.is_preemptible && (!then.is_preemptible || now.priority < then.priority)
            || now.is_movable && (!then.is_movable || now.topology != then.topology)
            || self.min_members < before.min_members
            || (before.bonds.is_whole && !self.bonds.is_whole)
            || (before.bonds.is_fixed && !self.bonds.is_fixed)
    }
}

/// What a holder has in the picture.
#[derive(Clone, Debug)]
struct CachedMember {
    desired: DesiredMember,
    id: MemberId,
    /// Whether its GPU parts could not be placed, because others have them.
    lacks_gpus: bool,
}

/// The engine's world, and who is who in it.
#[derive(Debug)]
pub(super) struct EngineCache {
    pub(super) world: World,
    pub(super) decider: Decider,
    members: FxHashMap<Holder, CachedMember>,
    holders: BTreeMap<MemberId, Holder>,
    /// By node: the labels that say where it is.
    labels: BTreeMap<Arc<str>, BTreeMap<String, String>>,
    /// Levels whose labels contradict one another, in words; they are taken by their path.
    pub(super) topology_fault: Option<String>,
    /// Holders whose GPUs others have, too.
    pub(super) clashes: BTreeMap<Holder, String>,
    /// Number of changes since it was made.
    pub(super) revision: u64,
}

/// A node as the picture needs it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DesiredNode {
    pub(super) spec: NodeSpec,
    /// GPUs on which nothing new may be placed, as bits.
    pub(super) closed: u64,
}

impl DesiredNode {
    /// The same without its GPUs.
    pub(super) fn without_gpus(&self) -> Self {
        let class = NodeClass { gpus: 0, ..self.spec.class.clone() };
        Self { spec: NodeSpec { class, ..self.spec.clone() }, closed: 0 }
    }
}

impl EngineCache {
    /// A picture of these nodes, with nobody in them. `learned` is what the packing policy knew in the
    /// picture before; of models that are gone it is of no use.
    pub(super) fn new(
        models: &[GpuModel],
        levels: &[Level],
        nodes: &[DesiredNode],
        learned: Option<&PackingForm>,
    ) -> Result<Self, Misfit> {
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
        let decider = learned.and_then(|form| Decider::restored(form, &cluster).ok());
        let decider = decider.unwrap_or_default();
        let world = World { cluster, topology, workloads: Workloads::default() };
        let mut engine = Self {
            world,
            decider,
            members: FxHashMap::default(),
            holders: BTreeMap::new(),
            labels: nodes
                .iter()
                .map(|node| (Arc::clone(&node.spec.name), node.spec.labels.clone()))
                .collect(),
            topology_fault,
            clashes: BTreeMap::new(),
            revision: 0,
        };
        for node in nodes {
            engine.set_closed(&node.spec.name, node.closed);
        }
        Ok(engine)
    }

    /// A picture without nodes.
    pub(super) fn empty(decider: Decider) -> Self {
        let topology = Topology::flat(0);
        let (cluster, workloads) = (Cluster::default(), Workloads::default());
        Self {
            world: World { cluster, topology, workloads },
            decider,
            members: FxHashMap::default(),
            holders: BTreeMap::new(),
            labels: BTreeMap::new(),
            topology_fault: None,
            clashes: BTreeMap::new(),
            revision: 0,
        }
    }

    /// The node of a name.
    pub(super) fn node(&self, name: &str) -> Option<NodeId> {
        self.world.cluster.node_named(name)
    }

    /// Changes what a node is like. An error: its GPUs are others; the picture must be made anew.
    pub(super) fn set_class(&mut self, name: &str, class: &NodeClass) -> Result<(), Misfit> {
        let Some(node) = self.node(name) else { return Ok(()) };
        if self.world.cluster.class(node) == class {
            return Ok(());
        }
        self.revision += 1;
        self.world.cluster.set_class(node, class)
    }

    /// The labels by which a node was put into the topology.
    pub(super) fn labels(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.labels.get(name)
    }

    /// Changes the marks of a node.
    pub(super) fn set_features(&mut self, name: &str, features: octavo_engine::node::Marks) {
        let Some(node) = self.node(name) else { return };
        let class = NodeClass { marks: features, ..self.world.cluster.class(node).clone() };
        // Its GPUs stay as they are.
        let _ = self.set_class(name, &class);
    }

    /// Closes and opens GPUs of a node.
    pub(super) fn set_closed(&mut self, name: &str, closed: u64) {
        let Some(node) = self.node(name) else { return };
        for gpu in 0..self.world.cluster.class(node).gpus {
            let is_open = closed >> gpu & 1 == 0;
            let gpu_state = self.world.cluster.gpus(node).get(usize::from(gpu));
            if gpu_state.is_some_and(|free| free.is_closed == is_open) {
                self.revision += 1;
                // The GPU is there: it was just looked at.
                let _ = self.world.cluster.set_gpu_open(node, gpu, is_open);
            }
        }
    }

    /// Memory of one GPU of a node, in MiB.
    pub(super) fn memory_mib(&self, node: NodeId) -> u32 {
        let cluster = &self.world.cluster;
        let model = cluster.models().get(usize::from(cluster.class(node).model.0));
        model.map_or(0, |model| model.memory_mib)
    }

    /// What a holder has, as it was told last.
    pub(super) fn desired(&self, holder: &str) -> Option<&DesiredMember> {
        self.members.get(holder).map(|cached| &cached.desired)
    }

    /// The member that a holder is.
    pub(super) fn member(&self, holder: &str) -> Option<MemberId> {
        self.members.get(holder).map(|cached| cached.id)
    }

    /// Who is who.
    pub(super) fn holders(&self) -> &BTreeMap<MemberId, Holder> {
        &self.holders
    }

    /// The holder that a member is.
    pub(super) fn holder(&self, id: MemberId) -> Option<&Holder> {
        self.holders.get(&id)
    }

    /// Tells what a holder ought to have; `None`: nothing.
    pub(super) fn set_desired(&mut self, holder: &Holder, desired: Option<DesiredMember>) {
        match (&desired, self.members.get_mut(holder)) {
            (None, None) => return,
            (Some(desired), Some(cached)) if cached.desired == *desired && !cached.lacks_gpus => {
                return;
            }
            (Some(desired), Some(cached))
                if cached.desired.has_same_placement(desired) && !cached.lacks_gpus =>
            {
                // Nobody comes or goes, which the packing policy would learn from.
                cached.desired = desired.clone();
                self.workload(&desired.workload);
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
            // Others have its GPUs as well. What it takes beside them still counts.
            self.clashes.insert(Arc::clone(holder), misfit.to_string());
            placement.gpus.clear();
            lacks_gpus = true;
            if self.world.cluster.place_running(resources, &placement).is_err() {
                return;
            }
        }
        let id = self.free_slot(workload);
        let member = Member { shape: Arc::clone(&desired.shape), placement };
        self.world.workloads.set_member(id, Some(member));
        self.holders.insert(id, Arc::clone(holder));
        self.members.insert(Arc::clone(holder), CachedMember { desired, id, lacks_gpus });
    }

    /// Takes away what a holder has.
    fn remove(&mut self, holder: &Holder) {
        self.clashes.remove(holder);
        let Some(cached) = self.members.remove(holder) else { return };
        self.holders.remove(&cached.id);
        let Some(member) = self.world.workloads.set_member(cached.id, None) else { return };
        let released = self.world.cluster.release(&member.shape.resources, &member.placement);
        debug_assert!(released.is_ok(), "who has something was given it: {released:?}");
        self.decider.released(&member.shape, &member.placement);
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

    /// Shows a workload as one that may not be disturbed. What it said of itself before.
    pub(super) fn spare(&mut self, id: WorkloadId) -> Option<Profile> {
        let original = self.world.workloads.workload(id)?.profile.clone();
        self.set_profile(
            id,
            Profile { is_preemptible: false, is_movable: false, ..original.clone() },
        );
        Some(original)
    }

    /// Shows a workload again as it was.
    pub(super) fn restore_spared(&mut self, id: WorkloadId, original: Profile) {
        self.set_profile(id, original);
    }

    fn set_profile(&mut self, id: WorkloadId, profile: Profile) {
        let workloads = &mut self.world.workloads;
        if let Some((min, bonds)) =
            workloads.workload(id).map(|workload| (workload.min_members, workload.bonds))
        {
            workloads.describe(id, profile, min, bonds);
        }
    }

    /// The workload of a want. What its newest member says of it holds.
    fn workload(&mut self, desired: &DesiredWorkload) -> WorkloadId {
        let DesiredWorkload { profile, min_members, bonds } = desired;
        let workloads = &mut self.world.workloads;
        if let Some(id) = workloads.named(&profile.name) {
            let is_same = workloads.workload(id).is_some_and(|workload| {
                (workload.min_members, workload.bonds) == (*min_members, *bonds)
                    && workload.profile == **profile
            });
            if !is_same {
                workloads.describe(id, (**profile).clone(), *min_members, *bonds);
            }
            return id;
        }
        let profile = (**profile).clone();
        let (min_members, bonds) = (*min_members, *bonds);
        let workload = Workload { profile, min_members, bonds, members: Vec::new() };
        workloads.add(workload).unwrap_or_default()
    }

    /// The first rank of a workload that nobody has.
    fn free_slot(&self, workload: WorkloadId) -> MemberId {
        let members = self.world.workloads.workload(workload).map(|workload| &workload.members);
        let free = members.and_then(|members| members.iter().position(Option::is_none));
        let next = free.unwrap_or(members.map_or(0, Vec::len));
        MemberId { workload, member: u32::try_from(next).unwrap_or(u32::MAX) }
    }
}

/// The topology of labels; where they contradict one another, domains are told apart by their path.
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
