//! MIG: profiles of a GPU model and the possible placements of instances.

use serde::{Deserialize, Serialize};

use crate::placement::GpuPart;

/// The slices that MIG instances hold, as a bit set. Bit `n` is memory slice `n` (an A100 or H100
/// has eight). The last bit is the media engines, which one instance of a `+me` profile holds
/// exclusively.
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
    /// Whether an instance holds the GPU's media engines (`1g.10gb+me`). At most one such instance
    /// fits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_media: bool,
}

impl Slices {
    /// None.
    pub const NONE: Self = Self(0);
    /// The media engines.
    pub const MEDIA: Self = Self(1 << 15);
    /// Most memory slices of a GPU.
    pub const MAX_SLICES: u8 = 15;

    /// Slices `start` to `start + size - 1`.
    pub fn range(start: u8, size: u8) -> Self {
        let wide = ((1_u32 << size.min(Self::MAX_SLICES)) - 1) << start.min(Self::MAX_SLICES);
        Self(u16::try_from(wide & 0x7fff).unwrap_or(Self::NONE.0))
    }

    /// The first memory slice; none if there is none.
    pub fn first(self) -> Option<u8> {
        let first = self.minus(Self::MEDIA).0.trailing_zeros();
        u8::try_from(first).ok().filter(|first| *first < Self::MAX_SLICES)
    }

    /// How many memory slices there are.
    pub fn count(self) -> u8 {
        u8::try_from(self.minus(Self::MEDIA).0.count_ones()).unwrap_or(Self::MAX_SLICES)
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
    /// Placements of instances, in the order of their starts.
    pub fn places(&self) -> impl Iterator<Item = Slices> + '_ {
        let engines = if self.has_media { Slices::MEDIA } else { Slices::NONE };
        self.starts.iter().map(move |start| Slices::range(*start, self.size).plus(engines))
    }

    /// An instance on these slices of a GPU.
    pub(crate) fn part(&self, gpu: u16, slices: Slices) -> GpuPart {
        GpuPart { gpu, milli: self.milli, slices, memory_mib: self.memory_mib }
    }

    /// A defect of the profile as text. Counts of fitting instances rely on valid profiles.
    pub fn defect(&self) -> Option<&'static str> {
        let is_ascending = self.starts.windows(2).all(|pair| pair[0] < pair[1]);
        let end = self.starts.last().map_or(0, |last| last.saturating_add(self.size));
        if self.size == 0 || end > Slices::MAX_SLICES {
            Some("its places are not within 1 to 15 memory slices")
        } else if !is_ascending {
            Some("its starts are not ascending")
        } else if self.starts.is_empty()
            || self.milli == 0
            || self.milli > super::WHOLE
            || self.times_in(Slices::NONE) * u32::from(self.milli) > u32::from(super::WHOLE)
        {
            Some("its instances together have none or more than all of the compute")
        } else {
            None
        }
    }

    /// The maximum number of instances of this profile alone, given the taken slices. All
    /// placements have one size, so the lowest-first choice is optimal.
    pub fn times_in(&self, taken: Slices) -> u32 {
        let mut taken = taken;
        let mut times = 0;
        for place in self.places() {
            if !place.overlaps(taken) {
                taken = taken.plus(place);
                times += 1;
            }
        }
        times
    }
}
