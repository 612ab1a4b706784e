//! What a share asks of the GPU's time.

use octavo_api::config::{ComputePart, ShareClass};

/// What a share may have of the GPU's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The part that it has while it wants it; 0 is a small part of the time that others leave. A best-effort share has
    /// no such part, whatever the number: it is its weight beside other best-effort shares.
    pub request: ComputePart,
    /// The part that it never exceeds, even on an idle GPU. `None` is no limit: such a share is *elastic*. A share
    /// whose limit is its request is *strict*.
    pub limit: Option<ComputePart>,
    /// Who goes first.
    pub class: ShareClass,
    /// Shortest turn while others wait for it, in nanoseconds. `None` is that of its class.
    pub quantum: Option<u64>,
}

/// This part of a time.
pub(crate) fn part_of(part: ComputePart, time: u64) -> i64 {
    scale(time, u64::from(part.0), u64::from(ComputePart::WHOLE.0))
}

/// `time * part / whole`, rounded down; `whole` is not 0.
pub(crate) fn scale(time: u64, part: u64, whole: u64) -> i64 {
    let scaled = u128::from(time) * u128::from(part) / u128::from(whole.max(1));
    i64::try_from(scaled).unwrap_or(i64::MAX)
}

impl Terms {
    /// The least weight of a share, so that one without a request is served at all: a percent.
    const MIN_WEIGHT: u32 = 1_000;

    /// Its part among shares that want time that is left.
    pub(crate) fn weight(&self) -> u64 {
        u64::from(self.request.0.max(Self::MIN_WEIGHT))
    }

    /// The part that is due to it before any time is left for others.
    pub(crate) fn guaranteed(&self) -> ComputePart {
        match self.class {
            ShareClass::BestEffort => ComputePart(0),
            ShareClass::LatencyCritical | ShareClass::Normal => self.request,
        }
    }
}
