//! What a share asks of the GPU's time.

use octavo_api::config::ShareClass;

/// Thousandths of a percent of a GPU's time: 100,000 is the whole time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MilliPercent(pub u32);

/// What a share may have of the GPU's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The part that it has while it wants it; 0 is a small part of the time that others leave. A best-effort share has
    /// no such part, whatever the number: it is its weight beside other best-effort shares.
    pub request: MilliPercent,
    /// The part that it never exceeds, even on an idle GPU. `None` is no limit: such a share is *elastic*. A share
    /// whose limit is its request is *strict*.
    pub limit: Option<MilliPercent>,
    /// Who goes first.
    pub class: ShareClass,
}

impl MilliPercent {
    /// The whole time of a GPU.
    pub const WHOLE: Self = Self(100_000);

    /// This part of a time.
    pub(crate) fn of(self, time: u64) -> i64 {
        scale(time, u64::from(self.0), u64::from(Self::WHOLE.0))
    }
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
    pub(crate) fn guaranteed(&self) -> MilliPercent {
        match self.class {
            ShareClass::BestEffort => MilliPercent(0),
            ShareClass::LatencyCritical | ShareClass::Normal => self.request,
        }
    }
}
