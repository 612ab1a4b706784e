//! Objectives: cost terms of a decision and their weights.

pub mod cost;
mod cost_model;
pub mod energy;
pub mod fairness;
pub mod policy;

use std::fmt;

pub use cost_model::CostModel;
use serde::{Deserialize, Serialize};

/// A cost term by which decisions are compared. Less is better. A policy names it as `unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CostTerm {
    /// Running pods that are moved or evicted.
    PodsDisturbed,
    /// Hops of a ring through the members in rank order ([`crate::Topology::hops`]).
    Hops,
    /// Points of the members' preferences that the chosen nodes miss, summed over members
    /// ([`crate::gang::Group::penalties`]).
    PreferencesMissed,
    /// Failures that are expected within a million hours beyond those of usual GPUs, summed over the
    /// GPUs that members get ([`crate::GpuFree::excess_hazard_ppm`]).
    GpuRisk,
    /// Expected thousandths of GPUs that typical pods can no longer use, over the shapes requested
    /// so far. It is the increase of the fragmentation measure of FGD (Weng et al., USENIX ATC
    /// 2023).
    GpuMilliStranded,
    /// Millionths of a GPU's future use that the placement costs, by the price of the packing
    /// policy.
    PackingPrice,
    /// Power in watts that the placement adds.
    Watts,
    /// Price of what is given in cents per hour.
    CentsPerHour,
    /// Thousandths of GPUs by which tenants fall short of their fair share, summed over tenants
    /// with waiting demand.
    FairnessDeficit,
    /// Expected loss of GPU-seconds per hour: the hazard of the nodes, and that of the GPUs beyond the
    /// usual one, times the cost of a failure for the workload.
    ExpectedLostGpuSeconds,
}

/// The cost of a decision in each term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CostVector([i64; CostTerm::ALL.len()]);

/// A cost in one term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Amount {
    /// The cost term.
    pub unit: CostTerm,
    /// The cost.
    pub value: i64,
}

impl CostTerm {
    /// All terms.
    pub const ALL: [Self; 10] = [
        Self::PodsDisturbed,
        Self::Hops,
        Self::PreferencesMissed,
        Self::GpuRisk,
        Self::GpuMilliStranded,
        Self::PackingPrice,
        Self::Watts,
        Self::CentsPerHour,
        Self::FairnessDeficit,
        Self::ExpectedLostGpuSeconds,
    ];

    /// Name as in a policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::PodsDisturbed => "podsDisturbed",
            Self::Hops => "hops",
            Self::PreferencesMissed => "preferencesMissed",
            Self::GpuRisk => "gpuRisk",
            Self::GpuMilliStranded => "gpuMilliStranded",
            Self::PackingPrice => "packingPrice",
            Self::Watts => "watts",
            Self::CentsPerHour => "centsPerHour",
            Self::FairnessDeficit => "fairnessDeficit",
            Self::ExpectedLostGpuSeconds => "expectedLostGpuSeconds",
        }
    }

    /// The term with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }
}

impl fmt::Display for CostTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl CostVector {
    /// The cost in one term.
    pub fn of(&self, unit: CostTerm) -> i64 {
        self.0[unit as usize]
    }

    /// Sets the cost in one term.
    pub fn set(&mut self, unit: CostTerm, value: i64) {
        self.0[unit as usize] = value;
    }

    /// Adds to the cost in one term.
    pub fn add(&mut self, unit: CostTerm, value: i64) {
        self.0[unit as usize] = self.of(unit).saturating_add(value);
    }

    /// Sums in each term.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for unit in CostTerm::ALL {
            self.add(unit, other.of(unit));
        }
        self
    }

    /// Terms and costs, in the order of [`CostTerm::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (CostTerm, i64)> + '_ {
        CostTerm::ALL.into_iter().map(|unit| (unit, self.of(unit)))
    }
}
