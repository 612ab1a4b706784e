//! Checks pools for contradictions.

use std::collections::{BTreeMap, BTreeSet};

use crate::slice::{CounterSet, Slice};

/// A contradiction within a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum PoolDefect {
    /// Two devices have one name.
    #[error("two devices are named {0}")]
    DuplicateDevice(String),
    /// Two counter sets have one name.
    #[error("two counter sets are named {0}")]
    DuplicateCounterSet(String),
    /// A device draws from a missing counter set.
    #[error("device {device} draws from counter set {set}, which the pool does not have")]
    UnknownCounterSet {
        /// The device.
        device: String,
        /// The counter set.
        set: String,
    },
    /// A device draws from a missing counter.
    #[error("device {device} draws from counter {counter}, which counter set {set} does not have")]
    UnknownCounter {
        /// The device.
        device: String,
        /// The counter set.
        set: String,
        /// The counter.
        counter: String,
    },
}

/// The first defect of a pool. `here` are the slices that a node can use and all with counters. Of
/// the slices `elsewhere` only the draws of devices are checked.
pub(super) fn check<'a>(
    here: impl Iterator<Item = &'a Slice> + Clone,
    elsewhere: impl Iterator<Item = &'a Slice>,
) -> Result<(), PoolDefect> {
    let mut names = BTreeSet::new();
    for slice in here.clone().filter(|slice| slice.counters.is_empty()) {
        for device in &slice.devices {
            if !names.insert(device.name.as_str()) {
                return Err(PoolDefect::DuplicateDevice(device.name.clone()));
            }
        }
    }
    let mut sets: BTreeMap<&str, &CounterSet> = BTreeMap::new();
    for set in here.clone().flat_map(|slice| &slice.counters) {
        if sets.insert(&set.name, set).is_some() {
            return Err(PoolDefect::DuplicateCounterSet(set.name.clone()));
        }
    }
    for device in here.chain(elsewhere).flat_map(|slice| &slice.devices) {
        for consumed in &device.consumes {
            let Some(set) = sets.get(consumed.counter_set.as_str()) else {
                return Err(PoolDefect::UnknownCounterSet {
                    device: device.name.clone(),
                    set: consumed.counter_set.clone(),
                });
            };
            let is_unknown = |counter: &&String| !set.counters.contains_key(counter.as_str());
            if let Some(counter) = consumed.counters.keys().find(is_unknown) {
                return Err(PoolDefect::UnknownCounter {
                    device: device.name.clone(),
                    set: consumed.counter_set.clone(),
                    counter: counter.clone(),
                });
            }
        }
    }
    Ok(())
}
