//! Nodes before and after a decision, without changing the cluster.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::cluster::states::{self, NodeState};
use crate::node::NodeId;
use crate::placement::Placement;
use crate::resources::Resources;

/// The effect of a decision on the nodes that it touches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Touched nodes with what will be free; GPUs by index.
    nodes: BTreeMap<NodeId, NodeState>,
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

    /// The state of each touched node before and after, in the order of nodes.
    pub fn states<'a>(
        &'a self,
        cluster: &'a Cluster,
    ) -> impl Iterator<Item = (NodeId, &'a NodeState, NodeState)> {
        self.nodes.iter().filter_map(|(id, after)| {
            let before = cluster.states().state(cluster.state(*id))?;
            let mut after = after.clone();
            if cluster.class(*id).links.is_flat() {
                states::sort(&mut after.gpus);
            }
            Some((*id, before, after))
        })
    }

    fn touch(&mut self, cluster: &Cluster, node: NodeId) -> &mut NodeState {
        self.nodes.entry(node).or_insert_with(|| NodeState {
            class: cluster.class_id(node),
            is_open: cluster.is_open(node),
            free: cluster.free(node),
            gpus: cluster.gpus(node).into(),
        })
    }
}
