//! Nodes before and after a decision, without changing the cluster.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::cluster::states::{self, NodeState};
use crate::gpu::GpuFree;
use crate::node::NodeId;
use crate::placement::Placement;
use crate::resources::Resources;

/// The effect of a decision on the nodes that it touches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    nodes: BTreeMap<NodeId, Touched>,
}

/// The resulting free capacity of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Plain resources.
    pub free: Resources,
    /// GPUs by index.
    pub gpus: SmallVec<[GpuFree; 8]>,
}

impl Change {
    /// Allocates `placement` for a pod with these requests. The search has checked that it is free;
    /// parts that are not free are ignored.
    pub fn place(&mut self, cluster: &Cluster, requests: &Resources, placement: &Placement) {
        let node = self.touch(cluster, placement.node);
        node.free = node.free.minus(requests);
        for part in &placement.gpus {
            if let Some(gpu) = node.gpus.get_mut(usize::from(part.gpu)) {
                *gpu = gpu.without(part).unwrap_or(*gpu);
            }
        }
    }

    /// Takes back what a pod with these requests has.
    pub fn release(&mut self, cluster: &Cluster, requests: &Resources, placement: &Placement) {
        let memory = cluster.models().get(usize::from(cluster.class(placement.node).model.0));
        let memory = memory.map_or(0, |model| model.memory_mib);
        let node = self.touch(cluster, placement.node);
        node.free = node.free.plus(requests);
        for part in &placement.gpus {
            if let Some(gpu) = node.gpus.get_mut(usize::from(part.gpu)) {
                *gpu = gpu.with(part, memory).unwrap_or(*gpu);
            }
        }
    }

    /// The nodes that are touched, ascending.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Touched)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// The state of each touched node before and after.
    pub fn states<'a>(
        &'a self,
        cluster: &'a Cluster,
    ) -> impl Iterator<Item = (NodeId, &'a NodeState, NodeState)> {
        self.nodes().filter_map(|(id, node)| {
            let before = cluster.states().state(cluster.state(id))?;
            let mut gpus = node.gpus.clone();
            if cluster.class(id).links.is_flat() {
                states::sort(&mut gpus);
            }
            let (class, is_open) = (before.class, before.is_open);
            Some((id, before, NodeState { class, is_open, free: node.free, gpus }))
        })
    }

    fn touch(&mut self, cluster: &Cluster, node: NodeId) -> &mut Touched {
        self.nodes.entry(node).or_insert_with(|| Touched {
            free: cluster.free(node),
            gpus: cluster.gpus(node).into(),
        })
    }
}
