//! How many pods leave while others come.

/// Arrivals after which older counts are halved.
const HALVING_ARRIVALS: u64 = 512;
/// The minimum change of the churn, in percent, before the new value is used.
const MIN_CHANGE_PERCENT: i64 = 25;

/// How many pods leave for each that comes, lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Churn {
    pub(super) came: u64,
    pub(super) left: u64,
    pub(super) since: u64,
    pub(super) used: i64,
}

impl Churn {
    /// Records an arrival; returns whether the churn in use has changed.
    pub(super) fn record_arrival(&mut self) -> bool {
        self.came += 1;
        self.since += 1;
        if self.since < HALVING_ARRIVALS {
            return false;
        }
        let percent = self.left.saturating_mul(100) / self.came.max(1);
        let percent = i64::try_from(percent).unwrap_or(100).min(100);
        (self.came, self.left, self.since) = (self.came / 2, self.left / 2, 0);
        let has_changed = (percent - self.used).abs() >= MIN_CHANGE_PERCENT;
        if has_changed {
            self.used = percent;
        }
        has_changed
    }

    /// A pod left.
    pub(super) fn record_departure(&mut self) {
        self.left += 1;
    }

    /// Departures per hundred arrivals, as in use: 0 to 100.
    pub(super) fn percent(&self) -> i64 {
        self.used
    }
}
