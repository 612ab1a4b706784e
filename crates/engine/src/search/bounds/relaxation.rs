//! Relaxed bounds: with empty nodes, or with unlimited GPUs or plain resources. They name the
//! scarce resource of a refused gang.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::gpu::GpuFree;
use crate::node::{ClassId, NodeId};
use crate::shape::Shape;

/// A relaxed assumption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Relaxation {
    /// Nothing runs on the nodes. What is closed stays closed.
    Empty,
    /// The pods ask for no plain resources.
    GpusOnly,
    /// The pods request no GPUs, but are allowed only where the shape is allowed.
    PlainResourcesOnly,
}

/// A shape under a relaxation. Nodes are evaluated one by one, and only in what the relaxation
/// needs. If few nodes are equal, caching pays little, and their states are not contiguous in
/// memory.
#[derive(Debug)]
pub(crate) struct RelaxedFit<'a> {
    cluster: &'a Cluster,
    shape: &'a Shape,
    relaxation: Relaxation,
    /// Of empty nodes: by class and closed GPUs as bits.
    empty: BTreeMap<(ClassId, u64), u32>,
    /// The most recent entry: neighbours are mostly equal.
    last: Option<((ClassId, u64), u32)>,
}

impl<'a> RelaxedFit<'a> {
    pub(crate) fn new(cluster: &'a Cluster, shape: &'a Shape, relaxation: Relaxation) -> Self {
        Self { cluster, shape, relaxation, empty: BTreeMap::new(), last: None }
    }

    /// How many pods fit a node.
    pub(crate) fn times(&mut self, node: NodeId) -> u32 {
        let cluster = self.cluster;
        if node.0 as usize >= cluster.node_count() || !cluster.is_open(node) {
            return 0;
        }
        let class = cluster.class(node);
        if !fit::is_allowed(class, self.shape) {
            return 0;
        }
        match self.relaxation {
            Relaxation::Empty => self.of_empty(node),
            Relaxation::GpusOnly => fit::times_by_gpus(cluster, node, &self.shape.gpus),
            Relaxation::PlainResourcesOnly => self.shape.resources.times_in(&cluster.free(node)),
        }
    }

    /// Empty nodes of a class differ only in closed GPUs.
    fn of_empty(&mut self, node: NodeId) -> u32 {
        let cluster = self.cluster;
        let key = (cluster.class_id(node), cluster.closed_gpus(node));
        if let Some((last, times)) = self.last
            && last == key
        {
            return times;
        }
        let times = *self.empty.entry(key).or_insert_with(|| {
            let class = cluster.class(node);
            let idle = cluster.models().get(usize::from(class.model.0)).map(GpuFree::idle);
            let gpus: SmallVec<[GpuFree; 8]> = cluster
                .gpus(node)
                .iter()
                .map(|gpu| GpuFree { is_closed: gpu.is_closed, ..idle.unwrap_or(*gpu) })
                .collect();
            let state = NodeState { class: key.0, is_open: true, free: class.capacity, gpus };
            fit::times(cluster, &state, self.shape)
        });
        self.last = Some((key, times));
        times
    }
}
