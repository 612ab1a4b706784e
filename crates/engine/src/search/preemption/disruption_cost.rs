//! What it costs to disturb running pods, and how two such costs are compared.

use std::cmp::Ordering;

/// What victims cost. Compared in the order of its fields; prices add up, so the least sum over
/// nodes can be looked for node by node. The highest priority does not add up: of sums that are
/// equal up to it, the one found node by node may lose a little more work than the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DisruptionCost {
    /// Pods that are moved or evicted.
    pub pods: i64,
    /// Pods of them that are evicted: of as many pods, rather move than evict.
    pub evicted: i64,
    /// The highest priority of evicted pods; none: nobody is evicted. Work lost below comes after it:
    /// who is more important does not go because it has just saved its work.
    pub highest: Option<i32>,
    /// Work that is lost: seconds at risk times thousandths of the GPUs that lose them.
    pub lost: i64,
    /// Sum of the priorities of evicted pods: of as many pods, the lower priority goes.
    pub priority: i64,
    /// Thousandths of GPUs that these pods have: of as many pods, the smaller ones.
    pub milli: i64,
    /// Less the newer the evicted workloads are: of equal pods, those that came last go.
    pub age: i64,
}

impl DisruptionCost {
    /// Nothing.
    pub const ZERO: Self =
        Self { pods: 0, evicted: 0, highest: None, lost: 0, priority: 0, milli: 0, age: 0 };

    /// Both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            pods: self.pods.saturating_add(other.pods),
            evicted: self.evicted.saturating_add(other.evicted),
            highest: self.highest.max(other.highest),
            lost: self.lost.saturating_add(other.lost),
            priority: self.priority.saturating_add(other.priority),
            milli: self.milli.saturating_add(other.milli),
            age: self.age.saturating_add(other.age),
        }
    }

    /// The price without what is equal only by history: pods of one such price are alike.
    #[must_use]
    pub fn without_age(self) -> Self {
        Self { age: 0, ..self }
    }

    /// Compares two prices by what is had for each: `gain` members for this one, `other_gain` for
    /// the other.
    pub(super) fn cmp_each(self, gain: u32, other: Self, other_gain: u32) -> Ordering {
        let key = |price: Self, by: u32| {
            let times = |amount: i64| i128::from(amount) * i128::from(by);
            let Self { pods, evicted, highest, lost, priority, milli, age } = price;
            ([pods, evicted].map(times), highest, [lost, priority, milli, age].map(times))
        };
        key(self, other_gain).cmp(&key(other, gain))
    }
}
