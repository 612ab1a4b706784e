//! The engine's model of a GPU: its model and its free capacity.

pub mod mig;

use octavo_health::risk::{Rate, RiskClass};
use serde::{Deserialize, Serialize};

use crate::placement::GpuPart;

pub use mig::{MigProfile, Slices};

/// A whole GPU's compute, in thousandths.
pub const WHOLE: u16 = 1000;

/// Index of a GPU model in [`crate::Cluster::models`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(pub u8);

/// A set of GPU models; a cluster has at most 64 models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelSet(pub u64);

/// A GPU model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuModel {
    /// Name, as in the nodes' labels or the trace.
    pub name: String,
    /// Memory of one GPU in MiB. 0: unknown and not counted.
    #[serde(default)]
    pub memory_mib: u32,
    /// Power of an idle GPU in watts.
    #[serde(default)]
    pub idle_watts: u32,
    /// Power of a GPU that works, in watts.
    #[serde(default)]
    pub full_watts: u32,
    /// MIG profiles, if GPUs of this model can be partitioned, in the order of the profile names.
    #[serde(default)]
    pub mig: Vec<MigProfile>,
}

/// Free capacity of one GPU. A GPU is either shared, in thousandths and MiB, or partitioned into
/// MIG instances. One excludes the other until the GPU is idle again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuFree {
    /// Compute that is left, in thousandths of the GPU.
    pub milli: u16,
    /// Memory slices that MIG instances hold.
    pub slices: Slices,
    /// Whether new pods are kept away: the GPU is tainted, unhealthy or held.
    pub is_closed: bool,
    /// Shares without guaranteed compute. They take no milli, but the GPU is not idle.
    pub best_effort: u16,
    /// Memory that is left, in MiB.
    pub memory_mib: u32,
    /// How likely it fails. GPUs of less risk are taken first.
    pub risk: RiskClass,
}

impl ModelSet {
    /// Every model.
    pub const ALL: Self = Self(u64::MAX);

    /// Whether a model is in the set.
    pub fn has(self, model: ModelId) -> bool {
        self.0 >> model.0 & 1 == 1
    }

    /// The set with one more model.
    #[must_use]
    pub fn with(self, model: ModelId) -> Self {
        Self(self.0 | 1 << model.0)
    }
}

impl GpuFree {
    /// An idle GPU of a model.
    pub fn idle(model: &GpuModel) -> Self {
        let memory_mib = model.memory_mib;
        Self {
            milli: WHOLE,
            slices: Slices::NONE,
            is_closed: false,
            best_effort: 0,
            memory_mib,
            risk: RiskClass::Usual,
        }
    }

    /// Whether nothing of the GPU is allocated. It may be closed.
    pub fn is_unused(&self) -> bool {
        self.milli == WHOLE && self.slices.is_empty() && self.best_effort == 0
    }

    /// Whether the GPU can be given whole.
    pub fn is_idle(&self) -> bool {
        self.is_unused() && !self.is_closed
    }

    /// The free capacity after a part is allocated. `None` if the part is not free, or if shares
    /// and MIG instances would mix.
    pub fn without(mut self, part: &GpuPart) -> Option<Self> {
        let is_cut = !part.slices.is_empty();
        if !self.is_unused() && is_cut == self.slices.is_empty()
            || part.slices.overlaps(self.slices)
        {
            return None;
        }
        self.milli = self.milli.checked_sub(part.milli)?;
        self.memory_mib = self.memory_mib.checked_sub(part.memory_mib)?;
        self.best_effort = self.best_effort.checked_add(u16::from(part.is_best_effort()))?;
        self.slices = self.slices.plus(part.slices);
        Some(self)
    }

    /// The free capacity after a part is released, for a GPU with `memory_mib` of memory. `None` if
    /// the part was not allocated.
    pub fn with(mut self, part: &GpuPart, memory_mib: u32) -> Option<Self> {
        let has_slices = self.slices.0 & part.slices.0 == part.slices.0;
        self.milli = self.milli.checked_add(part.milli).filter(|milli| *milli <= WHOLE)?;
        let memory = self.memory_mib.checked_add(part.memory_mib);
        self.memory_mib = memory.filter(|memory| has_slices && *memory <= memory_mib)?;
        self.best_effort = self.best_effort.checked_sub(u16::from(part.is_best_effort()))?;
        self.slices = self.slices.minus(part.slices);
        Some(self)
    }

    /// By how much its chance to fail within an hour is above that of a usual GPU, in parts per million.
    pub fn excess_hazard_ppm(&self) -> u32 {
        let excess = self.risk.excess(Rate::GPU).millionths_an_hour();
        u32::try_from(excess).unwrap_or(u32::MAX)
    }

    /// Compute available to shares, in thousandths: 0 for a closed or a partitioned GPU.
    pub fn open_milli(&self) -> u16 {
        if self.is_closed || !self.slices.is_empty() { 0 } else { self.milli }
    }
}
