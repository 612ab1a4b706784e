//! What is left in a pool's counters (KEP-4815).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::allocated_devices::AllocatedDevices;
use crate::claim::Claim;
use crate::pools::Inventory;

/// The counters of one generation of a pool, and what its devices draw from them. Amounts are in
/// billionths.
#[derive(Debug)]
pub(super) struct PoolCounters {
    /// Counter set and counter, in order of name.
    pub(super) names: Vec<(String, String)>,
    /// What there is of each.
    totals: Vec<i128>,
    /// What each device of the generation draws, by counter.
    draws: Vec<Vec<(usize, i128)>>,
    first_device: usize,
}

/// What is left of the counters beside the allocated claims.
#[derive(Debug)]
pub(super) struct RemainingCounters<'a> {
    pub(super) pool_counters: Arc<PoolCounters>,
    /// What is left, in billionths; below zero when claims have more than there is.
    pub(super) left: Vec<i128>,
    /// A counter with less than nothing left. The pool then gives nothing that draws on counters.
    overdrawn: Option<usize>,
    /// The claims whose devices draw, by counter; found when somebody asks.
    consumers: OnceLock<Vec<Vec<&'a Claim>>>,
}

/// A counter that has too little left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CounterShortage {
    /// The counter, as an index.
    pub(super) counter: usize,
    /// How much would be drawn, in billionths.
    pub(super) wanted: i128,
    /// How much is left, in billionths.
    pub(super) left: i128,
}

impl PoolCounters {
    /// The counters of an edition.
    pub(super) fn new(inventory: &Inventory<'_>, generation: usize) -> Self {
        let generation = &inventory.generations[generation];
        let mut counters: BTreeMap<(&str, &str), i128> = BTreeMap::new();
        for slice in &inventory.slices[generation.slices.clone()] {
            for set in &slice.counters {
                for (counter, total) in &set.counters {
                    counters.insert((&set.name, counter), total.nanos());
                }
            }
        }
        let names: Vec<(&str, &str)> = counters.keys().copied().collect();
        let draws = |device: usize| {
            let mut drawn: BTreeMap<usize, i128> = BTreeMap::new();
            for consumed in &inventory.published(device).device.consumes {
                for (counter, amount) in &consumed.counters {
                    let name = (consumed.counter_set.as_str(), counter.as_str());
                    if let Ok(index) = names.binary_search(&name) {
                        let drawn = drawn.entry(index).or_default();
                        *drawn = drawn.saturating_add(amount.nanos());
                    }
                }
            }
            drawn.into_iter().collect()
        };
        let draws = generation.devices.clone().map(draws).collect();
        let owned = |(set, counter): &(&str, &str)| ((*set).to_owned(), (*counter).to_owned());
        let names = names.iter().map(owned).collect();
        let totals = counters.into_values().collect();
        Self { names, totals, draws, first_device: generation.devices.start }
    }
}

impl<'a> RemainingCounters<'a> {
    /// What is left of the counters of an edition. All its devices count, also those for other nodes.
    pub(super) fn new(
        pool_counters: Arc<PoolCounters>,
        inventory: &Inventory<'_>,
        allocated: &AllocatedDevices<'_>,
    ) -> Self {
        let mut left = pool_counters.totals.clone();
        for (device, drawn) in (pool_counters.first_device..).zip(&pool_counters.draws) {
            if drawn.is_empty() {
                continue;
            }
            let published = inventory.published(device);
            let is_listed = inventory.slices[published.slice].counters.is_empty();
            if is_listed && allocated.of(published.id).is_some() {
                for &(counter, amount) in drawn {
                    left[counter] = left[counter].saturating_sub(amount);
                }
            }
        }
        let overdrawn = left.iter().position(|&left| left < 0);
        Self { pool_counters, left, overdrawn, consumers: OnceLock::new() }
    }

    /// What a device draws, by counter.
    pub(super) fn draws(&self, device: usize) -> &[(usize, i128)] {
        &self.pool_counters.draws[device - self.pool_counters.first_device]
    }

    /// The claims whose devices draw from a counter; a claim with several is there several times.
    pub(super) fn consumers(
        &self,
        counter: usize,
        inventory: &Inventory<'a>,
        allocated: &AllocatedDevices<'a>,
    ) -> &[&'a Claim] {
        let by_counter = self.consumers.get_or_init(|| {
            let mut by_counter = vec![Vec::new(); self.left.len()];
            for (device, draws) in
                (self.pool_counters.first_device..).zip(&self.pool_counters.draws)
            {
                let id = inventory.published(device).id;
                let Some(usage) = allocated.of(id) else { continue };
                for &(counter, _) in draws {
                    by_counter[counter].extend(&usage.claims);
                }
            }
            by_counter
        });
        &by_counter[counter]
    }

    /// Whether a device can draw beside what is drawn tentatively already.
    pub(super) fn check(
        &self,
        device: usize,
        drawn: Option<&[i128]>,
    ) -> Result<(), CounterShortage> {
        let drawn = |counter: usize| drawn.map_or(0, |drawn| drawn[counter]);
        for &(counter, wanted) in self.draws(device) {
            let left = self.left[counter].saturating_sub(drawn(counter));
            if wanted > left {
                return Err(CounterShortage { counter, wanted, left });
            }
        }
        match self.overdrawn {
            None => Ok(()),
            Some(counter) => Err(CounterShortage { counter, wanted: 0, left: self.left[counter] }),
        }
    }
}
