//! The cost of disrupting running pods, and its comparison.

use std::cmp::Ordering;

/// The cost of a set of victims, compared in the order of its fields. Costs add up, so the least
/// sum can be computed node by node. The exception is the highest priority. Among sums that are
/// equal up to it, the computed one may lose a little more work than the minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DisruptionCost {
    /// Pods that are moved or evicted.
    pub pods: i64,
    /// Evicted pods among them: for equal pods, moves are preferred to evictions.
    pub evicted: i64,
    /// The highest priority of evicted pods; none without evictions. It comes before lost work: a
    /// more important pod is not evicted because it has just written a checkpoint.
    pub highest: Option<i32>,
    /// Lost work: seconds at risk times thousandths of the GPUs that lose them.
    pub lost: i64,
    /// Sum of the priorities of evicted pods: for equal pods, lower priorities are evicted.
    pub priority: i64,
    /// Thousandths of GPUs of these pods: for equal pods, smaller ones are preferred.
    pub milli: i64,
    /// Smaller for newer workloads: for equal pods, the newest are evicted.
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

    /// The cost without history: pods with equal results are interchangeable.
    #[must_use]
    pub fn without_age(self) -> Self {
        Self { age: 0, ..self }
    }

    /// Compares two costs per member: this one for `gain` members, the other for `other_gain`.
    pub(super) fn cmp_each(self, gain: u32, other: Self, other_gain: u32) -> Ordering {
        let key = |price: Self, by: u32| {
            let times = |amount: i64| i128::from(amount) * i128::from(by);
            let Self { pods, evicted, highest, lost, priority, milli, age } = price;
            ([pods, evicted].map(times), highest, [lost, priority, milli, age].map(times))
        };
        key(self, other_gain).cmp(&key(other, gain))
    }
}
