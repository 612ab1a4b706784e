//! MIG: profiles of a GPU model and where instances of them may lie.

use serde::{Deserialize, Serialize};

/// Memory slices of a GPU as a set: bit `n` is slice `n` (an A100 or H100 has eight).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Slices(pub u16);

/// A MIG profile of a GPU model (`nvmlDeviceGetGpuInstanceProfileInfo`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigProfile {
    /// Name, such as `1g.10gb`.
    pub name: String,
    /// Share of the GPU's compute in thousandths.
    pub milli: u16,
    /// Memory of an instance in MiB.
    pub memory_mib: u32,
    /// Memory slices of an instance.
    pub size: u8,
    /// Memory slices at which an instance may start, ascending.
    pub starts: Vec<u8>,
    /// How many instances of the profile a GPU may have at once, where the places alone do not say
    /// it (`1g.10gb+me`: one).
    #[serde(default)]
    pub most: Option<u8>,
}

impl Slices {
    /// None.
    pub const NONE: Self = Self(0);

    /// Slices `start` to `start + size - 1`.
    pub fn range(start: u8, size: u8) -> Self {
        let wide = ((1_u32 << size.min(16)) - 1) << start.min(16);
        Self(u16::try_from(wide & 0xffff).unwrap_or(u16::MAX))
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the two have a slice in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// All slices of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The slices without those of `other`.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl MigProfile {
    /// Places of instances, in the order of their starts.
    pub fn places(&self) -> impl Iterator<Item = Slices> + '_ {
        self.starts.iter().map(|start| Slices::range(*start, self.size))
    }

    /// The most instances that a GPU with these slices taken can still have, one profile alone.
    /// Places of one profile have one size, so taking the lowest first is the best there is.
    pub fn times_in(&self, taken: Slices) -> u32 {
        let mut taken = taken;
        let mut times = 0;
        for place in self.places() {
            if !place.overlaps(taken) {
                taken = taken.plus(place);
                times += 1;
            }
        }
        times.min(self.most.map_or(u32::MAX, u32::from))
    }
}
