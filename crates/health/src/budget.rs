//! How much may be disturbed at once, and when remedies stop altogether.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::HOUR;

/// How much of a domain remedies and evictions may disturb at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Remedies at once, in percent of the domain's nodes. A percentage above 0 allows one at least.
    pub remedies_percent: u64,
    /// Remedies at once in a rack.
    pub remedies_per_rack: u64,
    /// Nodes from which pods are evicted at once, in percent of the domain's nodes. A percentage above 0 allows one at least.
    pub evictions_percent: u64,
}

/// When remedies stop: faults of many nodes at once have a common cause, which a reset does not cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// More than this percentage of the domain's nodes.
    pub percent: u64,
    /// At least so many nodes.
    pub least: u64,
    /// Within this time, in seconds.
    pub window: u64,
    /// How long remedies stay stopped after the last such time, in seconds.
    pub hold: u64,
}

/// The circuit breaker of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Breaker {
    /// Nodes with a device that newly left service for a sign or a fault, and when the last one did.
    fenced: BTreeMap<u32, u64>,
    /// Until when remedies are stopped.
    open_until: u64,
}

/// What of a budget is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    remedies: u64,
    by_rack: BTreeMap<u32, u64>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { remedies_percent: 5, remedies_per_rack: 1, evictions_percent: 5 }
    }
}

impl Default for BreakerRules {
    fn default() -> Self {
        Self { percent: 10, least: 3, window: 300, hold: HOUR / 2 }
    }
}

impl Budget {
    /// Remedies that a domain of some nodes may have at once.
    pub fn remedies(&self, nodes: usize) -> u64 {
        part(self.remedies_percent, nodes)
    }

    /// Nodes of a domain from which pods may be evicted at once.
    pub fn evictions(&self, nodes: usize) -> u64 {
        part(self.evictions_percent, nodes)
    }

    /// Whether another remedy fits that touches some racks.
    pub(crate) fn allows(&self, used: &Use, nodes: usize, racks: &BTreeSet<u32>) -> bool {
        let in_rack = |rack: &u32| used.by_rack.get(rack).copied().unwrap_or_default();
        used.remedies < self.remedies(nodes)
            && racks.iter().all(|rack| in_rack(rack) < self.remedies_per_rack)
    }
}

impl Use {
    /// Counts a remedy that touches some racks.
    pub(crate) fn add(&mut self, racks: &BTreeSet<u32>) {
        self.remedies += 1;
        for rack in racks {
            *self.by_rack.entry(*rack).or_default() += 1;
        }
    }
}

impl Breaker {
    /// A breaker that stops remedies until a time, and remembers no fence. For a caller that stored [`Self::until`] alone.
    pub fn open_until(until: u64) -> Self {
        Self { fenced: BTreeMap::new(), open_until: until }
    }

    /// Until when remedies are stopped; a time that has passed if they are not.
    pub fn until(&self) -> u64 {
        self.open_until
    }

    /// Notes a device of a node that left service.
    pub fn note(&mut self, node: u32, now: u64) {
        let last = self.fenced.entry(node).or_insert(now);
        *last = now.max(*last);
    }

    /// Opens if devices of too many nodes of the domain left service of late.
    pub(crate) fn update(&mut self, rules: &BreakerRules, nodes: usize, now: u64) {
        // After a clock that went backwards nothing holds longer than it would have.
        self.open_until = self.open_until.min(now.saturating_add(rules.hold));
        for last in self.fenced.values_mut() {
            *last = now.min(*last);
        }
        self.fenced.retain(|_, last| now.saturating_sub(*last) < rules.window);
        let fenced = count(self.fenced.len());
        let is_storm = fenced >= rules.least
            && u128::from(fenced) * 100 > u128::from(rules.percent) * nodes as u128;
        if is_storm {
            self.open_until = self.open_until.max(now.saturating_add(rules.hold));
        }
    }

    /// Whether remedies are stopped.
    pub fn is_open(&self, now: u64) -> bool {
        now < self.open_until
    }
}

/// A percentage of some nodes, rounded down, at least 1 unless it is 0.
fn part(percent: u64, nodes: usize) -> u64 {
    if percent == 0 { 0 } else { (count(nodes).saturating_mul(percent) / 100).max(1) }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_domain_may_have_one_remedy_and_a_budget_of_zero_none() {
        let budget = Budget::default();
        assert_eq!([1, 39, 40, 1_000].map(|nodes| budget.remedies(nodes)), [1, 1, 2, 50]);
        let none = Budget { remedies_percent: 0, evictions_percent: 0, ..budget };
        assert_eq!((none.remedies(1_000), none.evictions(1_000)), (0, 0));
    }

    #[test]
    fn a_rack_has_one_remedy_at_once() {
        let budget = Budget { remedies_percent: 50, ..Budget::default() };
        let (first, both) = (BTreeSet::from([1]), BTreeSet::from([1, 2]));
        let mut used = Use::default();
        assert!(budget.allows(&used, 4, &both));
        used.add(&first);
        assert!(!budget.allows(&used, 4, &both));
        assert!(budget.allows(&used, 4, &BTreeSet::from([2])));
        used.add(&BTreeSet::from([2]));
        assert!(!budget.allows(&used, 4, &BTreeSet::from([3])), "half of four nodes are two");
    }

    #[test]
    fn many_fences_at_once_open_the_breaker() {
        let rules = BreakerRules::default();
        let opens = |nodes: usize, fences: &[(u32, u64)]| {
            let mut breaker = Breaker::default();
            for (node, at) in fences {
                breaker.note(*node, *at);
                breaker.update(&rules, nodes, *at);
            }
            breaker.is_open(fences.last().map_or(0, |(_, at)| *at))
        };
        assert!(!opens(4, &[(1, 0), (2, 0)]), "two nodes are no storm");
        assert!(opens(4, &[(1, 0), (2, 0), (3, 299)]));
        assert!(!opens(4, &[(1, 0), (2, 0), (3, 300)]), "the first is too long ago");
        assert!(!opens(30, &[(1, 0), (2, 0), (3, 0)]), "not more than a tenth");
        assert!(opens(29, &[(1, 0), (2, 0), (3, 0)]));
        assert!(!opens(4, &[(1, 0), (1, 0), (1, 0)]), "one node is one fault");
    }

    #[test]
    fn a_clock_that_goes_backwards_keeps_no_breaker_open() {
        let rules = BreakerRules::default();
        let mut breaker = Breaker::default();
        (1..=3).for_each(|node| breaker.note(node, 100_000));
        breaker.update(&rules, 3, 100_000);
        breaker.update(&rules, 3, 1_000);
        breaker.update(&rules, 3, 1_300);
        assert!(breaker.is_open(2_799) && !breaker.is_open(2_800));
    }

    #[test]
    fn the_breaker_closes_after_its_time() {
        let rules = BreakerRules::default();
        let mut breaker = Breaker::default();
        (1..=3).for_each(|node| breaker.note(node, 0));
        breaker.update(&rules, 3, 100);
        breaker.update(&rules, 3, 1_000);
        assert!(breaker.is_open(1_899) && !breaker.is_open(1_900));
    }
}
