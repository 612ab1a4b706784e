//! The cluster as columns: the free capacity of each node, updated incrementally.
//!
//! This module decides nothing. Every change moves a node from one [`states::NodeState`] to another
//! and is appended to the [`log`]. Caches of per-node figures (bounds, scores) therefore read only
//! the changed nodes.

mod hardware;
pub mod log;
pub mod states;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use octavo_health::risk::RiskClass;

use crate::gpu::{GpuFree, GpuModel, MigProfile, ModelId};
use crate::node::{ClassId, NodeClass, NodeId, NodeSpec};
use crate::placement::{GpuPart, Placement};
use crate::resources::Resources;
use log::Log;
use states::{NodeState, StateId, States};

/// Most GPUs of one node.
pub const MAX_GPUS: u16 = 64;
/// The maximum number of GPU models of a cluster: a [`crate::gpu::ModelSet`] has one bit for each.
pub const MAX_MODELS: usize = 64;

/// Nodes and what is free of them.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    models: Vec<GpuModel>,
    classes: Vec<NodeClass>,
    class_ids: BTreeMap<NodeClass, ClassId>,
    names: Vec<Arc<str>>,
    ids: BTreeMap<Arc<str>, NodeId>,
    node_classes: Vec<ClassId>,
    is_open: Vec<bool>,
    free: Vec<Resources>,
    /// GPUs of all nodes in one list; those of node `n` start at `gpu_starts[n]`.
    gpus: Vec<GpuFree>,
    gpu_starts: Vec<usize>,
    /// By node: the number of idle GPUs, and a bit mask of closed GPUs. Scans over all nodes need
    /// little else.
    idle_gpus: Vec<u16>,
    closed_gpus: Vec<u64>,
    /// Nodes with a GPU of more than the usual risk.
    risky: BTreeSet<NodeId>,
    node_states: Vec<StateId>,
    states: States,
    log: Log,
    totals: Totals,
}

/// Sums over all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Compute of all GPUs in thousandths of a GPU.
    pub gpu_milli: i64,
    /// Compute that is given out.
    pub used_milli: i64,
    /// GPUs.
    pub gpus: i64,
    /// GPUs of which nothing is given out; closed ones count.
    pub unused_gpus: i64,
    /// Capacity of plain resources.
    pub capacity: Resources,
    /// Free plain resources.
    pub free: Resources,
}

/// Why a node or a placement is invalid for a cluster. The cluster is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// Two nodes of one name.
    #[error("node {0:?} is listed twice; node names must be unique")]
    DuplicateNode(Arc<str>),
    /// Two models with one name.
    #[error("GPU model {0:?} is listed twice; different GPUs of one product need different names")]
    DuplicateModel(String),
    /// A MIG profile that cannot be.
    #[error("MIG profile {profile:?} of {model:?}: {defect}")]
    Profile {
        /// The GPU model.
        model: String,
        /// The profile.
        profile: String,
        /// The defect.
        defect: &'static str,
    },
    /// A class with other GPUs, for a node whose GPUs are in use.
    #[error(
        "node {0:?} has other GPUs than its new class, and pods use them; remove it and add it again"
    )]
    OtherGpus(Arc<str>),
    /// A node of a model that is not in the table.
    #[error("node {node:?} has GPUs of model number {}, but there are {models} models", model.0)]
    UnknownModel {
        /// The node.
        node: Arc<str>,
        /// Its model.
        model: ModelId,
        /// How many models there are.
        models: usize,
    },
    /// More models or GPUs than fit.
    #[error("{what}: {count}, but at most {most} are possible")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// No such node.
    #[error("there is no node number {}", .0.0)]
    NoNode(NodeId),
    /// Plain resources are not free.
    #[error("node {node:?} has insufficient resources: {wanted:?} wanted, {free:?} free")]
    Resources {
        /// The node.
        node: Arc<str>,
        /// The request.
        wanted: Resources,
        /// The free amounts.
        free: Resources,
    },
    /// A part of a GPU is not free, or was released without being held.
    #[error("node {node:?} cannot {verb} {part:?} of its GPU; free: {free:?}")]
    Gpu {
        /// The node.
        node: Arc<str>,
        /// `allocate`, `release`, `open or close`, or `set the risk of`.
        verb: &'static str,
        /// The part.
        part: GpuPart,
        /// The free capacity of the GPU; none: no such GPU.
        free: Option<GpuFree>,
    },
}

impl Cluster {
    /// A cluster of these nodes. Ids follow the order of names, so the discovery order does not
    /// influence decisions.
    pub fn new(models: Vec<GpuModel>, nodes: Vec<NodeSpec>) -> Result<Self, ClusterError> {
        if models.len() > MAX_MODELS {
            return Err(too_many("GPU models", models.len(), MAX_MODELS));
        }
        for (number, model) in models.iter().enumerate() {
            if models[..number].iter().any(|other| other.name == model.name) {
                return Err(ClusterError::DuplicateModel(model.name.clone()));
            }
            let defect = |profile: &MigProfile| Some((profile.name.clone(), profile.defect()?));
            if let Some((profile, defect)) = model.mig.iter().find_map(defect) {
                return Err(ClusterError::Profile { model: model.name.clone(), profile, defect });
            }
        }
        let mut cluster = Self { models, ..Self::default() };
        let mut nodes = nodes;
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        for node in nodes {
            cluster.add_node(&node)?;
        }
        Ok(cluster)
    }

    /// Adds a node; it gets the next id.
    pub fn add_node(&mut self, node: &NodeSpec) -> Result<NodeId, ClusterError> {
        let class = &node.class;
        if self.ids.contains_key(&node.name) {
            return Err(ClusterError::DuplicateNode(Arc::clone(&node.name)));
        }
        let idle = self.idle_gpu(&node.name, class)?;
        let count = self.names.len();
        let id = NodeId(u32::try_from(count).map_err(|_| too_many("nodes", count, count))?);
        self.gpu_starts.push(self.gpus.len());
        self.gpus.extend(idle.iter().flat_map(|idle| (0..class.gpus).map(|_| *idle)));
        self.idle_gpus.push(class.gpus);
        self.closed_gpus.push(0);
        let class_id = self.enter_class(class);
        self.names.push(Arc::clone(&node.name));
        self.ids.insert(Arc::clone(&node.name), id);
        self.node_classes.push(class_id);
        self.is_open.push(true);
        self.free.push(class.capacity);
        let state = self.state_now(id);
        self.node_states.push(self.states.enter(state, id));
        self.log.note(id);
        self.totals.gpus += i64::from(class.gpus);
        self.totals.unused_gpus += i64::from(class.gpus);
        self.totals.gpu_milli += i64::from(class.gpus) * 1000;
        self.totals.capacity = self.totals.capacity.plus(&class.capacity);
        self.totals.free = self.totals.free.plus(&class.capacity);
        Ok(id)
    }

    /// GPU models.
    pub fn models(&self) -> &[GpuModel] {
        &self.models
    }

    /// The model of that name.
    pub fn model_named(&self, name: &str) -> Option<ModelId> {
        let index = self.models.iter().position(|model| model.name == name)?;
        u8::try_from(index).ok().map(ModelId)
    }

    /// Classes of nodes.
    pub fn classes(&self) -> &[NodeClass] {
        &self.classes
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.names.len()
    }

    /// Ids of all nodes, ascending.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..u32::try_from(self.names.len()).unwrap_or(u32::MAX)).map(NodeId)
    }

    /// Name of a node; empty for an unknown id.
    pub fn name(&self, node: NodeId) -> &str {
        self.names.get(index(node)).map_or("", |name| &**name)
    }

    /// The node of that name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.ids.get(name).copied()
    }

    /// Class of a node.
    pub fn class(&self, node: NodeId) -> &NodeClass {
        &self.classes[self.node_classes[index(node)].0 as usize]
    }

    /// Index of a node's class in [`Self::classes`].
    pub(crate) fn class_id(&self, node: NodeId) -> ClassId {
        self.node_classes[index(node)]
    }

    /// Whether pods may be placed on the node: it is ready, not cordoned and not held.
    pub fn is_open(&self, node: NodeId) -> bool {
        self.is_open[index(node)]
    }

    /// Free plain resources of a node.
    pub fn free(&self, node: NodeId) -> Resources {
        self.free[index(node)]
    }

    /// Free capacity of a node's GPUs, by index.
    pub fn gpus(&self, node: NodeId) -> &[GpuFree] {
        &self.gpus[self.gpu_range(node)]
    }

    /// Where a node's GPUs are in the list of all.
    fn gpu_range(&self, node: NodeId) -> Range<usize> {
        let end = self.gpu_starts.get(index(node) + 1).copied();
        self.gpu_starts[index(node)]..end.unwrap_or(self.gpus.len())
    }

    /// How many of a node's GPUs can be given whole.
    pub(crate) fn idle_gpus(&self, node: NodeId) -> u16 {
        self.idle_gpus[index(node)]
    }

    /// Closed GPUs of a node as a bit mask; bit 0 is GPU 0.
    pub(crate) fn closed_gpus(&self, node: NodeId) -> u64 {
        self.closed_gpus[index(node)]
    }

    /// The state of a node. Decisions distinguish nodes of one state only by topology and name.
    pub fn state(&self, node: NodeId) -> StateId {
        self.node_states[index(node)]
    }

    /// All states and the nodes in them.
    pub fn states(&self) -> &States {
        &self.states
    }

    /// The change log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Sums over all nodes.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Opens or closes a node for new pods. Running pods stay.
    pub fn set_open(&mut self, node: NodeId, is_open: bool) -> Result<(), ClusterError> {
        self.check(node)?;
        self.change(node, |cluster| cluster.is_open[index(node)] = is_open);
        Ok(())
    }

    /// Opens or closes one GPU for new pods. Existing allocations stay.
    pub fn set_gpu_open(
        &mut self,
        node: NodeId,
        gpu: u16,
        is_open: bool,
    ) -> Result<(), ClusterError> {
        self.check(node)?;
        let Some(at) = self.gpu_range(node).nth(gpu.into()) else {
            let part = GpuPart { gpu, milli: 0, slices: crate::gpu::Slices::NONE, memory_mib: 0 };
            return Err(self.gpu_error(node, "open or close", part));
        };
        self.change(node, |cluster| cluster.gpus[at].is_closed = !is_open);
        Ok(())
    }

    /// Sets the risk of one GPU.
    pub fn set_gpu_risk(
        &mut self,
        node: NodeId,
        gpu: u16,
        risk: RiskClass,
    ) -> Result<(), ClusterError> {
        self.check(node)?;
        let Some(at) = self.gpu_range(node).nth(gpu.into()) else {
            let part = GpuPart { gpu, milli: 0, slices: crate::gpu::Slices::NONE, memory_mib: 0 };
            return Err(self.gpu_error(node, "set the risk of", part));
        };
        self.change(node, |cluster| cluster.gpus[at].risk = risk);
        Ok(())
    }

    /// Nodes with a GPU of more than the usual risk.
    pub fn risky_nodes(&self) -> &BTreeSet<NodeId> {
        &self.risky
    }

    /// Allocates `placement` for a pod with these requests. Closed nodes and GPUs are accepted,
    /// because running pods are added through this method too.
    pub fn place(
        &mut self,
        requests: &Resources,
        placement: &Placement,
    ) -> Result<(), ClusterError> {
        let node = placement.node;
        self.check(node)?;
        if !requests.fits(&self.free(node)) {
            let (name, free) = (Arc::clone(&self.names[index(node)]), self.free(node));
            return Err(ClusterError::Resources { node: name, wanted: *requests, free });
        }
        self.place_unchecked_resources(requests, placement)
    }

    /// As [`Self::place`], for running pods: plain resources may become overdrawn.
    pub fn place_running(
        &mut self,
        requests: &Resources,
        placement: &Placement,
    ) -> Result<(), ClusterError> {
        self.check(placement.node)?;
        self.place_unchecked_resources(requests, placement)
    }

    fn place_unchecked_resources(
        &mut self,
        requests: &Resources,
        placement: &Placement,
    ) -> Result<(), ClusterError> {
        let node = placement.node;
        // Parts are checked in sequence on a copy: two of them may be of one GPU.
        let mut gpus: smallvec::SmallVec<[GpuFree; 8]> = self.gpus(node).into();
        for part in &placement.gpus {
            let error = || self.gpu_error(node, "allocate", *part);
            let gpu = gpus.get_mut(usize::from(part.gpu)).ok_or_else(error)?;
            *gpu = gpu.without(part).ok_or_else(error)?;
        }
        self.exchange(node, self.free(node).minus(requests), &gpus);
        Ok(())
    }

    /// Takes back what a pod with these requests was given.
    pub fn release(
        &mut self,
        requests: &Resources,
        placement: &Placement,
    ) -> Result<(), ClusterError> {
        let node = placement.node;
        self.check(node)?;
        let memory = self.models.get(usize::from(self.class(node).model.0));
        let memory = memory.map_or(0, |model| model.memory_mib);
        let mut gpus: smallvec::SmallVec<[GpuFree; 8]> = self.gpus(node).into();
        for part in &placement.gpus {
            let error = || self.gpu_error(node, "release", *part);
            let gpu = gpus.get_mut(usize::from(part.gpu)).ok_or_else(error)?;
            *gpu = gpu.with(part, memory).ok_or_else(error)?;
        }
        self.exchange(node, self.free(node).plus(requests), &gpus);
        Ok(())
    }

    /// Replaces the free amounts of a node and updates the sums.
    fn exchange(&mut self, node: NodeId, free: Resources, gpus: &[GpuFree]) {
        let (used, unused) = sums(self.gpus(node));
        let old_free = self.free(node);
        self.change(node, |cluster| {
            cluster.free[index(node)] = free;
            let range = cluster.gpu_range(node);
            cluster.gpus[range].copy_from_slice(gpus);
        });
        let (used_now, unused_now) = sums(self.gpus(node));
        self.totals.used_milli += used_now - used;
        self.totals.unused_gpus += unused_now - unused;
        self.totals.free = self.totals.free.minus(&old_free).plus(&free);
    }

    fn change(&mut self, node: NodeId, change: impl FnOnce(&mut Self)) {
        change(self);
        let (mut idle, mut closed, mut is_risky) = (0, 0, false);
        for (bit, gpu) in self.gpus(node).iter().enumerate() {
            idle += u16::from(gpu.is_idle());
            closed |= u64::from(gpu.is_closed) << bit;
            is_risky |= gpu.risk > RiskClass::Usual;
        }
        if is_risky {
            self.risky.insert(node);
        } else {
            self.risky.remove(&node);
        }
        self.idle_gpus[index(node)] = idle;
        self.closed_gpus[index(node)] = closed;
        let new = self.state_now(node);
        let old = self.node_states[index(node)];
        self.node_states[index(node)] = self.states.exchange(old, new, node);
        self.log.note(node);
    }

    fn state_now(&self, node: NodeId) -> NodeState {
        let class = self.node_classes[index(node)];
        let mut gpus = self.gpus(node).into();
        if self.classes[class.0 as usize].links.is_flat() {
            states::sort(&mut gpus);
        }
        NodeState { class, is_open: self.is_open(node), free: self.free(node), gpus }
    }

    fn check(&self, node: NodeId) -> Result<(), ClusterError> {
        if index(node) < self.names.len() { Ok(()) } else { Err(ClusterError::NoNode(node)) }
    }

    fn gpu_error(&self, node: NodeId, verb: &'static str, part: GpuPart) -> ClusterError {
        let free = self.gpus(node).get(usize::from(part.gpu)).copied();
        ClusterError::Gpu { node: Arc::clone(&self.names[index(node)]), verb, part, free }
    }
}

fn index(node: NodeId) -> usize {
    node.0 as usize
}

/// Thousandths that are given out, and GPUs of which nothing is.
fn sums(gpus: &[GpuFree]) -> (i64, i64) {
    let used = gpus.iter().map(|gpu| i64::from(crate::gpu::WHOLE - gpu.milli)).sum();
    let unused = gpus.iter().filter(|gpu| gpu.is_unused()).count();
    (used, i64::try_from(unused).unwrap_or(i64::MAX))
}

fn too_many(what: &'static str, count: usize, most: usize) -> ClusterError {
    ClusterError::TooMany { what, count, most }
}
