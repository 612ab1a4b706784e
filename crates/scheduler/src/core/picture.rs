//! The engine's picture of the cluster, kept from what is known: nodes by name, and for each holder
//! (a pod, or a claim that no placed pod owns) what it has.
//!
//! Holders are told again and again as they ought to be; what is so already costs a look-up. So the
//! order in which pods, claims and slices are seen does not matter, and nothing is counted twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::node::NodeClass;
use octavo_engine::planner::Planner;
use octavo_engine::snapshot::PackingRecord;
use octavo_engine::topology::{Level, TopologyError};
use octavo_engine::workload::{Coupling, Member, MemberId, Profile, WorkloadId};
use octavo_engine::{
    Cluster, ClusterError, GpuModel, NodeId, NodeSpec, Placement, Shape, Topology, Workload,
    Workloads, World,
};
use rustc_hash::FxHashMap;

/// Who holds something: the UID of a pod, or `claim:` and the UID of a claim.
pub(super) type Holder = Arc<str>;

/// What a holder ought to have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Want {
    /// The workload that it is a member of.
    pub(super) workload: WorkloadWant,
    /// What it asked for.
    pub(super) shape: Arc<Shape>,
    /// Name of its node.
    pub(super) node: Arc<str>,
    /// What it has of the node's GPUs.
    pub(super) gpus: octavo_engine::placement::GpuParts,
}

impl Want {
    /// Whether the same member has the same, whatever its workload says of itself.
    fn is_same_place(&self, other: &Self) -> bool {
        self.workload.profile.name == other.workload.profile.name
            && (&self.shape, &self.node, &self.gpus) == (&other.shape, &other.node, &other.gpus)
    }
}

/// A workload as its members see it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WorkloadWant {
    pub(super) profile: Arc<Profile>,
    pub(super) min_members: u32,
    pub(super) coupling: Coupling,
}

impl WorkloadWant {
    /// Whether its members may leave for others where they might not as it was before.
    pub(super) fn may_be_disturbed_more_than(&self, before: &Self) -> bool {
        let (now, then) = (&self.profile, &before.profile);
        now.is_preemptible && (!then.is_preemptible || now.priority < then.priority)
            || now.is_movable && (!then.is_movable || now.topology != then.topology)
            || self.min_members < before.min_members
            || (before.coupling.is_whole && !self.coupling.is_whole)
            || (before.coupling.is_fixed && !self.coupling.is_fixed)
    }
}

/// What a holder has in the picture.
#[derive(Clone, Debug)]
struct Held {
    want: Want,
    id: MemberId,
    /// Whether its GPU parts could not be placed, because others have them.
    is_short: bool,
}

/// The engine's world, and who is who in it.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) world: World,
    pub(super) planner: Planner,
    held: FxHashMap<Holder, Held>,
    who: BTreeMap<MemberId, Holder>,
    /// By node: the labels that say where it is.
    labels: BTreeMap<Arc<str>, BTreeMap<String, String>>,
    /// Levels whose labels contradict one another, in words; they are taken by their path.
    pub(super) topology_fault: Option<String>,
    /// Holders whose GPUs others have, too.
    pub(super) clashes: BTreeMap<Holder, String>,
    /// Number of changes since it was made.
    pub(super) edits: u64,
}

/// A node as the picture needs it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeWant {
    pub(super) spec: NodeSpec,
    /// GPUs on which nothing new may be placed, as bits.
    pub(super) closed: u64,
}

impl NodeWant {
    /// The same without its GPUs.
    pub(super) fn without_gpus(&self) -> Self {
        let class = NodeClass { gpus: 0, ..self.spec.class.clone() };
        Self { spec: NodeSpec { class, ..self.spec.clone() }, closed: 0 }
    }
}

impl Picture {
    /// A picture of these nodes, with nobody in them. `learned` is what the packing policy knew in the
    /// picture before; of models that are gone it is of no use.
    pub(super) fn new(
        models: &[GpuModel],
        levels: &[Level],
        nodes: &[NodeWant],
        learned: Option<&PackingRecord>,
    ) -> Result<Self, ClusterError> {
        let specs = nodes.iter().map(|node| node.spec.clone()).collect();
        let cluster = Cluster::new(models.to_vec(), specs)?;
        let by_name: BTreeMap<&str, &NodeWant> =
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
        let mut picture = Self {
            world,
            planner,
            held: FxHashMap::default(),
            who: BTreeMap::new(),
            labels: nodes
                .iter()
                .map(|n| (Arc::clone(&n.spec.name), n.spec.labels.clone()))
                .collect(),
            topology_fault,
            clashes: BTreeMap::new(),
            edits: 0,
        };
        for node in nodes {
            picture.set_closed(&node.spec.name, node.closed);
        }
        Ok(picture)
    }

    /// A picture without nodes.
    pub(super) fn empty(planner: Planner) -> Self {
        let topology = Topology::flat(0);
        let (cluster, workloads) = (Cluster::default(), Workloads::default());
        Self {
            world: World { cluster, topology, workloads },
            planner,
            held: FxHashMap::default(),
            who: BTreeMap::new(),
            labels: BTreeMap::new(),
            topology_fault: None,
            clashes: BTreeMap::new(),
            edits: 0,
        }
    }

    /// The node of a name.
    pub(super) fn node(&self, name: &str) -> Option<NodeId> {
        self.world.cluster.node_named(name)
    }

    /// Changes what a node is like. An error: its GPUs are others; the picture must be made anew.
    pub(super) fn set_class(&mut self, name: &str, class: &NodeClass) -> Result<(), ClusterError> {
        let Some(node) = self.node(name) else { return Ok(()) };
        if self.world.cluster.class(node) == class {
            return Ok(());
        }
        self.edits += 1;
        self.world.cluster.set_class(node, class)
    }

    /// The labels by which a node was put into the topology.
    pub(super) fn labels(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.labels.get(name)
    }

    /// Changes the marks of a node.
    pub(super) fn set_marks(&mut self, name: &str, marks: octavo_engine::node::FeatureMask) {
        let Some(node) = self.node(name) else { return };
        let class = NodeClass { features: marks, ..self.world.cluster.class(node).clone() };
        // Its GPUs stay as they are.
        let _ = self.set_class(name, &class);
    }

    /// Closes and opens GPUs of a node.
    pub(super) fn set_closed(&mut self, name: &str, closed: u64) {
        let Some(node) = self.node(name) else { return };
        for gpu in 0..self.world.cluster.class(node).gpus {
            let is_open = closed >> gpu & 1 == 0;
            let is = self.world.cluster.gpus(node).get(usize::from(gpu));
            if is.is_some_and(|free| free.is_closed == is_open) {
                self.edits += 1;
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
    pub(super) fn has(&self, holder: &str) -> Option<&Want> {
        self.held.get(holder).map(|held| &held.want)
    }

    /// The member that a holder is.
    pub(super) fn member(&self, holder: &str) -> Option<MemberId> {
        self.held.get(holder).map(|held| held.id)
    }

    /// Who is who.
    pub(super) fn holders(&self) -> &BTreeMap<MemberId, Holder> {
        &self.who
    }

    /// The holder that a member is.
    pub(super) fn holder(&self, id: MemberId) -> Option<&Holder> {
        self.who.get(&id)
    }

    /// Tells what a holder ought to have; `None`: nothing.
    pub(super) fn set(&mut self, holder: &Holder, want: Option<Want>) {
        match (&want, self.held.get_mut(holder)) {
            (None, None) => return,
            (Some(want), Some(held)) if held.want == *want && !held.is_short => return,
            (Some(want), Some(held)) if held.want.is_same_place(want) && !held.is_short => {
                // Nobody comes or goes, which the packing policy would learn from.
                held.want = want.clone();
                self.workload(&want.workload);
                self.edits += 1;
                return;
            }
            _ => {}
        }
        self.edits += 1;
        self.take(holder);
        let Some(want) = want else { return };
        let Some(node) = self.node(&want.node) else { return };
        let workload = self.workload(&want.workload);
        let mut placement = Placement { node, gpus: want.gpus.clone() };
        let resources = &want.shape.resources;
        let mut is_short = false;
        if let Err(misfit) = self.world.cluster.place_running(resources, &placement) {
            // Others have its GPUs as well. What it takes beside them still counts.
            self.clashes.insert(Arc::clone(holder), misfit.to_string());
            placement.gpus.clear();
            is_short = true;
            if self.world.cluster.place_running(resources, &placement).is_err() {
                return;
            }
        }
        let id = self.slot(workload);
        let member = Member { shape: Arc::clone(&want.shape), placement };
        self.world.workloads.set_member(id, Some(member));
        self.who.insert(id, Arc::clone(holder));
        self.held.insert(Arc::clone(holder), Held { want, id, is_short });
    }

    /// Takes away what a holder has.
    fn take(&mut self, holder: &Holder) {
        self.clashes.remove(holder);
        let Some(held) = self.held.remove(holder) else { return };
        self.who.remove(&held.id);
        let Some(member) = self.world.workloads.set_member(held.id, None) else { return };
        let released = self.world.cluster.release(&member.shape.resources, &member.placement);
        debug_assert!(released.is_ok(), "who has something was given it: {released:?}");
        self.planner.released(&member.shape, &member.placement);
        let workload = held.id.workload;
        if self.world.workloads.workload(workload).is_some_and(|one| one.member_count() == 0) {
            self.world.workloads.remove(workload);
        }
    }

    /// Shows a workload as one that may not be disturbed. What it said of itself before.
    pub(super) fn spare(&mut self, id: WorkloadId) -> Option<Profile> {
        let said = self.world.workloads.workload(id)?.profile.clone();
        self.say(id, Profile { is_preemptible: false, is_movable: false, ..said.clone() });
        Some(said)
    }

    /// Shows a workload again as it was.
    pub(super) fn spare_no_more(&mut self, id: WorkloadId, said: Profile) {
        self.say(id, said);
    }

    fn say(&mut self, id: WorkloadId, profile: Profile) {
        let workloads = &mut self.world.workloads;
        if let Some((min, coupling)) =
            workloads.workload(id).map(|one| (one.min_members, one.coupling))
        {
            workloads.describe(id, profile, min, coupling);
        }
    }

    /// The workload of a want. What its newest member says of it holds.
    fn workload(&mut self, want: &WorkloadWant) -> WorkloadId {
        let WorkloadWant { profile, min_members, coupling } = want;
        let workloads = &mut self.world.workloads;
        if let Some(id) = workloads.named(&profile.name) {
            let is_same = workloads.workload(id).is_some_and(|known| {
                (known.min_members, known.coupling) == (*min_members, *coupling)
                    && known.profile == **profile
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

    /// The first rank of a workload that nobody has.
    fn slot(&self, workload: WorkloadId) -> MemberId {
        let members = self.world.workloads.workload(workload).map(|one| &one.members);
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
