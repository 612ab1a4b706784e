//! The amounts left in a pool's counters (KEP-4815).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::allocated_devices::AllocatedDevices;
use crate::claim::Claim;
use crate::pools::Inventory;

/// The counters of one pool generation and the draws of its devices, in billionths.
#[derive(Debug)]
pub(super) struct PoolCounters {
    /// Counter set and counter, in order of name.
    pub(super) names: Vec<(String, String)>,
    /// Total of each counter.
    totals: Vec<i128>,
    /// The draws of each device of the generation, by counter.
    draws: Vec<Vec<(usize, i128)>>,
    first_device: usize,
}

/// The counters that allocated claims leave.
#[derive(Debug)]
pub(super) struct RemainingCounters<'a> {
    pub(super) pool_counters: Arc<PoolCounters>,
    /// Amounts left in billionths; negative if claims hold more than the total.
    pub(super) left: Vec<i128>,
    /// A counter below zero. No device of the pool that draws on counters can then be allocated.
    overdrawn: Option<usize>,
    /// The claims whose devices draw from each counter; computed on first use.
    consumers: OnceLock<Vec<Vec<&'a Claim>>>,
}

/// A counter with too little left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CounterShortage {
    /// Index of the counter.
    pub(super) counter: usize,
    /// The draw in billionths.
    pub(super) wanted: i128,
    /// The amount left in billionths.
    pub(super) left: i128,
}

impl PoolCounters {
    /// The counters of a pool generation.
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
    /// Subtracts the draws of all allocated devices of the generation, including devices for other
    /// nodes.
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

    /// The draws of a device, by counter.
    pub(super) fn draws(&self, device: usize) -> &[(usize, i128)] {
        &self.pool_counters.draws[device - self.pool_counters.first_device]
    }

    /// The claims whose devices draw from a counter, once for each such device.
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

    /// Whether the counters allow a device beside the draws of a partial allocation.
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
