//! Residual capacity of a node's GPUs, in the terms of the price model.

use smallvec::SmallVec;

use crate::gpu::{GpuFree, GpuModel, WHOLE};
use crate::shape::GpuDemand;

/// The residual of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GpuResidual {
    /// Unallocated thousandths: of compute or of memory, whichever is scarcer. For a partitioned
    /// GPU: of compute, which perhaps no instance can use.
    pub(super) milli: u16,
    /// Whether the GPU can be given whole.
    pub(super) is_idle: bool,
    /// The GPU itself.
    pub(super) gpu: GpuFree,
}

/// GPUs of a node.
pub(super) type GpuResiduals = SmallVec<[GpuResidual; 8]>;

impl GpuResidual {
    /// The residual of a GPU of a model.
    pub(super) fn of(gpu: GpuFree, model: Option<&GpuModel>) -> Self {
        let milli = match model {
            _ if gpu.is_closed => 0,
            _ if !gpu.slices.is_empty() => gpu.milli,
            Some(model) if model.memory_mib > 0 => gpu.milli.min(part(gpu.memory_mib, model)),
            _ => gpu.open_milli(),
        };
        Self { milli, is_idle: gpu.is_idle(), gpu }
    }
}

/// The residuals of GPUs of a model.
pub(super) fn residuals(gpus: &[GpuFree], model: Option<&GpuModel>) -> GpuResiduals {
    gpus.iter().map(|gpu| GpuResidual::of(*gpu, model)).collect()
}

/// Thousandths of a GPU of the model that one part of a request takes: of its compute or its
/// memory, whichever is more. None if the model lacks the profile.
pub(super) fn size(demand: &GpuDemand, model: &GpuModel) -> Option<u16> {
    match demand {
        GpuDemand::None => None,
        GpuDemand::Whole { .. } => Some(WHOLE),
        GpuDemand::Share { milli, memory_mib, .. } => {
            let memory = if model.memory_mib == 0 { 0 } else { part_up(*memory_mib, model) };
            Some((*milli).max(memory).min(WHOLE))
        }
        GpuDemand::Mig { profile, .. } => model.profile(profile).map(|profile| profile.milli),
    }
}

/// Memory in thousandths of a GPU's, rounded down.
fn part(memory_mib: u32, model: &GpuModel) -> u16 {
    let part = u64::from(memory_mib) * u64::from(WHOLE) / u64::from(model.memory_mib.max(1));
    u16::try_from(part).unwrap_or(WHOLE).min(WHOLE)
}

/// The same, rounded up.
fn part_up(memory_mib: u32, model: &GpuModel) -> u16 {
    let wide = u64::from(memory_mib) * u64::from(WHOLE);
    u16::try_from(wide.div_ceil(u64::from(model.memory_mib.max(1)))).unwrap_or(WHOLE).min(WHOLE)
}
