//! What disruptions use of eviction limits, and the cheapest alternatives by what they use.

use smallvec::SmallVec;

use super::disruption_cost::DisruptionCost;

/// Index of a limit in [`super::victims::VictimPool::limits`].
pub(super) type LimitIndex = u32;

/// Alternatives to keep of those that differ in cost and in the limits that they use.
pub(super) const MAX_ALTERNATIVES: usize = 16;

/// How many pods count against each limit, by limit in ascending order. Others have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EvictionUses(SmallVec<[(LimitIndex, u32); 2]>);

impl EvictionUses {
    /// Counts more pods against a limit.
    pub(super) fn add(&mut self, limit: LimitIndex, pods: u32) {
        match self.0.binary_search_by_key(&limit, |(limit, _)| *limit) {
            Ok(found) => self.0[found].1 += pods,
            Err(place) => self.0.insert(place, (limit, pods)),
        }
    }

    /// Counts all of these pods `times` times, as far as their limits are meant.
    pub(super) fn add_all(
        &mut self,
        other: &Self,
        times: u32,
        is_meant: impl Fn(LimitIndex) -> bool,
    ) {
        for (limit, pods) in &other.0 {
            if times > 0 && is_meant(*limit) {
                self.add(*limit, pods * times);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LimitIndex, u32)> {
        self.0.iter().copied()
    }

    /// Limits that are used more than `left` allows.
    pub(super) fn exceeded(
        &self,
        left: impl Fn(LimitIndex) -> u32,
    ) -> impl Iterator<Item = LimitIndex> {
        self.iter().filter(move |(limit, pods)| *pods > left(*limit)).map(|(limit, _)| limit)
    }

    /// Whether no limit is used more than `left` allows.
    pub(super) fn is_within(&self, left: impl Fn(LimitIndex) -> u32) -> bool {
        self.exceeded(left).next().is_none()
    }

    /// Whether no limit is used more than `other` uses it.
    fn is_at_most(&self, other: &Self) -> bool {
        let mut rest = other.iter();
        self.iter().all(|(limit, pods)| {
            let found = rest.by_ref().find(|(used, _)| *used >= limit);
            found.is_some_and(|(used, most)| used == limit && pods <= most)
        })
    }
}

impl FromIterator<LimitIndex> for EvictionUses {
    /// One pod for each.
    fn from_iter<T: IntoIterator<Item = LimitIndex>>(limits: T) -> Self {
        let mut uses = Self::default();
        limits.into_iter().for_each(|limit| uses.add(limit, 1));
        uses
    }
}

/// Alternatives, the cheapest first. A more expensive one uses less of some limit. Without limits
/// there is one at most.
#[derive(Clone, Debug)]
pub(super) struct Alternatives<T>(SmallVec<[(DisruptionCost, EvictionUses, T); 1]>);

impl<T> Default for Alternatives<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<T> Alternatives<T> {
    /// Whether one of these costs no more and uses no more.
    pub(super) fn covers(&self, cost: DisruptionCost, uses: &EvictionUses) -> bool {
        self.0.iter().any(|(known, used, _)| *known <= cost && used.is_at_most(uses))
    }

    /// Adds an alternative unless another one is as good; drops those that are not better. Of too
    /// many the one in the middle by cost is dropped. The cheapest stays. One that uses no limit
    /// stays, too, since it is the most expensive.
    pub(super) fn add(
        &mut self,
        cost: DisruptionCost,
        uses: EvictionUses,
        value: impl FnOnce() -> T,
    ) {
        if self.covers(cost, &uses) {
            return;
        }
        self.0.retain(|(known, used, _)| !(cost <= *known && uses.is_at_most(used)));
        let place = self.0.partition_point(|(known, ..)| *known <= cost);
        self.0.insert(place, (cost, uses, value()));
        if self.0.len() > MAX_ALTERNATIVES {
            self.0.remove(MAX_ALTERNATIVES / 2);
        }
    }

    /// The work to compare these uses with all alternatives.
    pub(super) fn work(&self, uses: &EvictionUses) -> u64 {
        1 + (self.0.len() * uses.0.len()) as u64
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(DisruptionCost, EvictionUses, T)> {
        self.0.iter()
    }

    pub(super) fn into_iter(
        self,
    ) -> impl DoubleEndedIterator<Item = (DisruptionCost, EvictionUses, T)> {
        self.0.into_iter()
    }
}
