//! The placement of a pod: a node and parts of its GPUs.

use smallvec::SmallVec;

use crate::gpu::Slices;
use crate::node::NodeId;

/// A current or planned placement of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// The node.
    pub node: NodeId,
    /// Parts of its GPUs by index; MIG instances of one GPU are adjacent.
    pub gpus: GpuParts,
}

/// Parts of a node's GPUs.
pub type GpuParts = SmallVec<[GpuPart; 2]>;

/// The part of one GPU that a pod holds.
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
    /// Whether this is a share of memory without guaranteed compute.
    pub fn is_best_effort(&self) -> bool {
        self.milli == 0 && self.memory_mib > 0 && self.slices.is_empty()
    }
}
