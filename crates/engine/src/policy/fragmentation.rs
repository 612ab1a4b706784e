//! Fragmentation: the free GPU capacity of a node that typical pods cannot use. The source is Weng
//! et al., "Beware of Fragmentation", USENIX ATC 2023, and the authors' simulator,
//! hkust-adsl/kubernetes-scheduler-simulator.
//!
//! [`TypicalPods`] selects the typical pods. [`measure`] computes the unusable capacity of one node
//! and its cause. This module keeps the amounts for a whole cluster.
//!
//! Beyond the paper: a partitioned GPU counts with the compute that no instance holds, which shares
//! and whole-GPU pods cannot use. A closed GPU counts as 0.

pub mod amounts;
pub mod measure;
#[cfg(test)]
pub(crate) mod tests;
pub mod typical;

use std::sync::Arc;

pub use amounts::{Amounts, Usability};
pub use measure::NodeResidual;
pub use typical::{TypicalPods, TypicalShape};

use crate::cluster::Cluster;
use crate::cluster::log::{Changes, ClusterId, Cursor};
use crate::cluster::states::StateId;
use crate::gpu::GpuFree;
use crate::node::NodeId;

use crate::placement::{GpuPart, Placement};
use crate::shape::Shape;

/// The fragmentation of one cluster, kept as it changes.
#[derive(Clone, Debug)]
pub struct Fragmentation {
    typical: Arc<TypicalPods>,
    /// The cluster whose states are known.
    cluster_id: ClusterId,
    /// By slot of the state: the generation and the amounts.
    by_slot: Vec<Option<(u32, Amounts)>>,
    /// The contribution of each node to the sum.
    by_node: Vec<Amounts>,
    sum: Amounts,
    read: Cursor,
}

impl Fragmentation {
    /// Measures by these typical pods. Other typical pods need a new instance.
    pub fn new(typical: Arc<TypicalPods>) -> Self {
        let sum = typical.nothing();
        let (by_slot, by_node, read) = (Vec::new(), Vec::new(), Cursor::default());
        Self { typical, cluster_id: ClusterId::default(), by_slot, by_node, sum, read }
    }

    /// The pods it measures by.
    pub fn typical(&self) -> &Arc<TypicalPods> {
        &self.typical
    }

    /// The amounts of a node in this state; zero for a state without nodes.
    pub fn of_state(&mut self, cluster: &Cluster, id: StateId) -> Amounts {
        let cluster_id = cluster.log().cluster_id();
        if std::mem::replace(&mut self.cluster_id, cluster_id) != cluster_id {
            self.by_slot.clear();
        }
        let slot = id.slot as usize;
        if let Some((generation, amounts)) = self.by_slot.get(slot).copied().flatten()
            && generation == id.generation
        {
            return amounts;
        }
        let Some(state) = cluster.states().state(id) else { return self.typical.nothing() };
        let amounts = self.typical.amounts(&NodeResidual::of_state(cluster, state));
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some((id.generation, amounts));
        amounts
    }

    /// The amounts of all nodes. Only nodes that changed since the last call for this cluster are
    /// read.
    pub fn total(&mut self, cluster: &Cluster) -> Amounts {
        match cluster.log().read(&mut self.read) {
            Changes::All => {
                (self.by_node, self.sum) = (Vec::new(), self.typical.nothing());
                cluster.nodes().for_each(|node| self.refresh(cluster, node));
            }
            Changes::Nodes(nodes) => nodes.iter().for_each(|node| self.refresh(cluster, *node)),
        }
        self.sum
    }

    /// The increase of fragments by a planned placement, in whole thousandths of GPUs. Negative if
    /// it uses fragments.
    ///
    /// The sum is exact until it is rounded, so equal amounts yield equal results.
    pub fn increase(&self, cluster: &Cluster, placement: &Placement, shape: &Shape) -> i64 {
        let node = placement.node;
        let before = NodeResidual::of_node(cluster, node);
        let gpus = without(before.gpus, &placement.gpus);
        let cpu_milli = before.cpu_milli - shape.resources.cpu_milli;
        let after = NodeResidual { cpu_milli, gpus: &gpus, ..before };
        let growth = self.typical.amounts(&after).minus(&self.typical.amounts(&before));
        growth.rounded_fragment()
    }

    fn refresh(&mut self, cluster: &Cluster, node: NodeId) {
        let index = node.0 as usize;
        if self.by_node.len() <= index {
            self.by_node.resize(index + 1, self.typical.nothing());
        }
        let now = self.of_state(cluster, cluster.state(node));
        self.sum = self.sum.minus(&self.by_node[index]).plus(&now);
        self.by_node[index] = now;
    }
}

/// Free capacity of GPUs without these parts. Parts that exceed the free capacity are clamped.
pub(crate) fn without(gpus: &[GpuFree], parts: &[GpuPart]) -> smallvec::SmallVec<[GpuFree; 8]> {
    let mut left: smallvec::SmallVec<[GpuFree; 8]> = gpus.into();
    for part in parts {
        if let Some(gpu) = left.get_mut(usize::from(part.gpu)) {
            gpu.milli = gpu.milli.saturating_sub(part.milli);
            gpu.memory_mib = gpu.memory_mib.saturating_sub(part.memory_mib);
            gpu.slices = gpu.slices.plus(part.slices);
            gpu.best_effort += u16::from(part.is_best_effort());
        }
    }
    left
}
