//! Fragmentation: the free GPU capacity of a node that typical pods cannot use. The source is Weng
//! et al., "Beware of Fragmentation", USENIX ATC 2023, and the authors' simulator,
//! hkust-adsl/kubernetes-scheduler-simulator.
//!
//! [`TypicalPods`] selects the typical pods. [`measure`] computes the unusable capacity of one node
//! and its cause.
//!
//! Beyond the paper: a partitioned GPU counts with the compute that no instance holds, which shares
//! and whole-GPU pods cannot use. A closed GPU counts as 0.

pub mod amounts;
pub mod measure;
#[cfg(test)]
mod tests;
pub mod typical;

pub use amounts::{Amounts, Usability};
pub use measure::NodeResidual;
pub use typical::{TypicalPods, TypicalShape};

use crate::gpu::GpuFree;
use crate::placement::GpuPart;

/// Free capacity of GPUs without these parts. Parts that exceed the free capacity are clamped.
pub fn without(gpus: &[GpuFree], parts: &[GpuPart]) -> smallvec::SmallVec<[GpuFree; 8]> {
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
