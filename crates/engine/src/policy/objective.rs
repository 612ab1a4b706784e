//! Objectives: what a decision costs, in named units, and how units are weighed.

pub mod cost;
pub mod energy;
pub mod fairness;
pub mod policy;

use std::fmt;

use serde::{Deserialize, Serialize};

/// A unit in which decisions are compared. Less is better in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CostTerm {
    /// Running pods that are moved or evicted.
    PodsDisturbed,
    /// Hops of a ring through the members in the order of their ranks
    /// ([`crate::Topology::hops`]).
    Hops,
    /// Thousandths of GPUs that typical pods can no longer use, by expectation over the shapes that
    /// were asked for so far: the increase of the fragmentation measure of FGD (Weng et al., USENIX
    /// ATC 2023).
    GpuMilliStranded,
    /// Millionths of a GPU's future use that the placement costs, as the packing policy prices it.
    PackingPrice,
    /// Power in watts that the placement adds.
    Watts,
    /// Price of what is given in cents per hour.
    CentsPerHour,
    /// Thousandths of GPUs by which tenants fall short of their fair share, summed over those who
    /// want more.
    FairnessDeficit,
    /// GPU-seconds that are lost per hour by expectation: hazard of the nodes times what a failure
    /// costs the workload.
    ExpectedLostGpuSeconds,
}

/// What a decision costs in each unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CostVector([i64; CostTerm::ALL.len()]);

impl CostTerm {
    /// All units.
    pub const ALL: [Self; 8] = [
        Self::PodsDisturbed,
        Self::Hops,
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
            Self::GpuMilliStranded => "gpuMilliStranded",
            Self::PackingPrice => "packingPrice",
            Self::Watts => "watts",
            Self::CentsPerHour => "centsPerHour",
            Self::FairnessDeficit => "fairnessDeficit",
            Self::ExpectedLostGpuSeconds => "expectedLostGpuSeconds",
        }
    }

    /// The unit of that name.
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
    /// What it costs in one unit.
    pub fn of(&self, unit: CostTerm) -> i64 {
        self.0[unit as usize]
    }

    /// Sets the cost in one unit.
    pub fn set(&mut self, unit: CostTerm, value: i64) {
        self.0[unit as usize] = value;
    }

    /// Adds to the cost in one unit.
    pub fn add(&mut self, unit: CostTerm, value: i64) {
        self.0[unit as usize] = self.of(unit).saturating_add(value);
    }

    /// Sums in every unit.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for unit in CostTerm::ALL {
            self.add(unit, other.of(unit));
        }
        self
    }

    /// Units and costs, in the order of [`CostTerm::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (CostTerm, i64)> + '_ {
        CostTerm::ALL.into_iter().map(|unit| (unit, self.of(unit)))
    }
}
