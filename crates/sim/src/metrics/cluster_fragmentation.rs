//! Fragmentation of a whole cluster, kept as it changes.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use octavo_engine::cluster::log::{Changes, Cursor};
use octavo_engine::fragmentation::{Amounts, NodeResidual, TypicalPods};
use octavo_engine::{Cluster, NodeId};

/// Free capacity of a cluster by what keeps typical pods from it.
#[derive(Clone, Debug)]
pub(crate) struct ClusterFragmentation {
    typical: Arc<TypicalPods>,
    /// The contribution of each node to the sum.
    by_node: Vec<Amounts>,
    sum: Amounts,
    read: Cursor,
}

impl ClusterFragmentation {
    /// Measures by these typical pods.
    pub(crate) fn new(typical: Arc<TypicalPods>) -> Self {
        let sum = typical.nothing();
        Self { typical, by_node: Vec::new(), sum, read: Cursor::default() }
    }

    /// The amounts of all nodes. Only nodes that changed since the last call for this cluster are
    /// read.
    pub(crate) fn total(&mut self, cluster: &Cluster) -> Amounts {
        match cluster.log().read(&mut self.read) {
            Changes::All => {
                self.sum = self.typical.nothing();
                self.by_node = vec![self.sum; cluster.node_count()];
                cluster.nodes().for_each(|node| self.refresh(cluster, node));
            }
            Changes::Nodes(nodes) => nodes.iter().for_each(|node| self.refresh(cluster, *node)),
        }
        self.sum
    }

    fn refresh(&mut self, cluster: &Cluster, node: NodeId) {
        let index = node.0 as usize;
        if self.by_node.len() <= index {
            self.by_node.resize(index + 1, self.typical.nothing());
        }
        let now = self.typical.amounts(&NodeResidual::of_node(cluster, node));
        self.sum = self.sum.minus(&self.by_node[index]).plus(&now);
        self.by_node[index] = now;
    }
}
