//! Where a pod is: a node and parts of its GPUs.

use smallvec::SmallVec;

use crate::gpu::Slices;
use crate::node::NodeId;

/// Where a pod is or is to be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// The node.
    pub node: NodeId,
    /// Parts of its GPUs, in order of index; MIG instances of one GPU one after another.
    pub gpus: GpuParts,
}

/// Parts of a node's GPUs.
pub type GpuParts = SmallVec<[GpuPart; 2]>;

/// What a pod has of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuPart {
    /// Index of the GPU in its node.
    pub gpu: u16,
    /// Compute in thousandths of the GPU.
    pub milli: u16,
    /// Memory slices of a MIG instance; none otherwise.
    pub slices: Slices,
    /// Memory in MiB.
    pub memory_mib: u32,
}

impl GpuPart {
    /// Whether this is a share without a guarantee of compute: of memory alone.
    pub fn is_best_effort(&self) -> bool {
        self.milli == 0 && self.memory_mib > 0 && self.slices.is_empty()
    }
}
