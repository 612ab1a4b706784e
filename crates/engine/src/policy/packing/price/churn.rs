//! Whether a cluster is filling or steady: how many pods leave while others come.

/// Arrivals after which older counts are halved.
const HALVING_ARRIVALS: u64 = 512;

/// How many pods leave for each that comes, lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Churn {
    pub(super) came: u64,
    pub(super) left: u64,
    pub(super) since: u64,
    pub(super) is_steady: bool,
}

impl Churn {
    /// The churn of a well-used cluster whose pods were not seen to come: about as many leave as
    /// come.
    pub(super) fn of_well_used() -> Self {
        let (came, left) = (HALVING_ARRIVALS, HALVING_ARRIVALS);
        Self { came, left, since: 0, is_steady: true }
    }

    /// Records an arrival; returns whether the cluster has become steady or ceased to be so. It
    /// becomes steady if half as many pods leave as come, and ceases at a quarter.
    pub(super) fn record_arrival(&mut self) -> bool {
        self.came += 1;
        self.since += 1;
        if self.since < HALVING_ARRIVALS {
            return false;
        }
        let times = if self.is_steady { 4 } else { 2 };
        let is_steady = self.left.saturating_mul(times) >= self.came;
        (self.came, self.left, self.since) = (self.came / 2, self.left / 2, 0);
        std::mem::replace(&mut self.is_steady, is_steady) != is_steady
    }

    /// A pod left.
    pub(super) fn record_departure(&mut self) {
        self.left += 1;
    }
}
