//! How many pods leave while others come.

/// Arrivals after which what was counted so far counts half.
const BLOCK: u64 = 512;
/// By how many hundredths turnover must differ from what was used before it is used.
const STEP: i64 = 25;

/// How many pods leave for each that comes, lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turnover {
    pub(super) came: u64,
    pub(super) left: u64,
    pub(super) since: u64,
    pub(super) used: i64,
}

impl Turnover {
    /// A pod came. Whether turnover is now another than the one in use.
    pub(super) fn came(&mut self) -> bool {
        self.came += 1;
        self.since += 1;
        if self.since < BLOCK {
            return false;
        }
        let percent = self.left.saturating_mul(100) / self.came.max(1);
        let percent = i64::try_from(percent).unwrap_or(100).min(100);
        (self.came, self.left, self.since) = (self.came / 2, self.left / 2, 0);
        let is_other = (percent - self.used).abs() >= STEP;
        if is_other {
            self.used = percent;
        }
        is_other
    }

    /// A pod left.
    pub(super) fn left(&mut self) {
        self.left += 1;
    }

    /// Pods that leave for each hundred that come, as it is used: 0 to 100.
    pub(super) fn percent(&self) -> i64 {
        self.used
    }
}
