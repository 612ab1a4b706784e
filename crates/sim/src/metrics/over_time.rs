use serde::Serialize;

use super::float;

/// Sums over the time from the first event to the last. Waiting is not modelled: a skipped pod
/// loses all its GPU-seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OverTime {
    /// From the first event to the last.
    pub seconds: u64,
    /// Requested GPU-seconds.
    pub gpu_seconds_wanted: f64,
    /// GPU-seconds that were given.
    pub gpu_seconds_given: f64,
    /// Given over wanted GPU-seconds; `None` if none were wanted.
    pub given_ratio: Option<f64>,
    /// Mean of the allocated GPUs over time, as a ratio of all GPUs.
    pub allocated_ratio_mean: Option<f64>,
    /// Peak of the allocated GPUs, as a ratio of all GPUs.
    pub allocated_ratio_peak: f64,
}

/// Adds up levels that hold until the next event.
#[derive(Clone, Debug, Default)]
pub(super) struct Integral {
    span: Option<(u64, u64)>,
    wanted: u128,
    given: u128,
    peak: u64,
}

impl Integral {
    /// Adds the time from the last event to this one, at this demand and allocation in thousandths.
    pub(super) fn advance(&mut self, at: u64, wanted: u64, given: u64) {
        let (first, last) = self.span.unwrap_or((at, at));
        let seconds = u128::from(at.saturating_sub(last));
        self.wanted += u128::from(wanted) * seconds;
        self.given += u128::from(given) * seconds;
        self.span = Some((first, at.max(last)));
    }

    pub(super) fn note_peak(&mut self, given: u64) {
        self.peak = self.peak.max(given);
    }

    /// The sums, if there was any time.
    pub(super) fn finish(&self, capacity: u64) -> Option<OverTime> {
        let (first, last) = self.span?;
        let seconds = last - first;
        let wanted = gpu_seconds(self.wanted);
        let given = gpu_seconds(self.given);
        let offered = float(capacity) / 1000.0 * float(seconds);
        Some(OverTime {
            seconds,
            gpu_seconds_wanted: wanted,
            gpu_seconds_given: given,
            given_ratio: (wanted > 0.0).then(|| given / wanted),
            allocated_ratio_mean: (offered > 0.0).then(|| given / offered),
            allocated_ratio_peak: super::ratio(self.peak, capacity).unwrap_or_default(),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure to read; sums are whole until here")]
fn gpu_seconds(milli_seconds: u128) -> f64 {
    milli_seconds as f64 / 1000.0
}
