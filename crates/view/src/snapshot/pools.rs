//! From slices to pools: only the newest generation of a pool counts.

use std::collections::BTreeMap;

use octavo_dra::slice::{Device, Slice};

/// The devices of a pool in its newest generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// The node that has the devices; empty if the pool is not bound to one.
    pub node: String,
    /// Generation.
    pub generation: i64,
    /// Number of slices that the pool announces.
    pub slices_announced: i64,
    /// How many of them were there.
    pub slices_seen: i64,
    /// Devices, in the order in which the slices were given. Empty while slices are missing.
    pub devices: Vec<Device>,
}

impl Pool {
    /// Whether all slices of the generation are present. Schedulers allocate nothing from an
    /// incomplete pool (KEP-4381).
    pub fn is_complete(&self) -> bool {
        self.slices_seen == self.slices_announced
    }
}

/// Groups slices by pool and keeps each pool's newest generation. Slices are taken in the order
/// given; those of older generations are leftovers of a change and are dropped.
pub fn newest_generations(slices: impl IntoIterator<Item = Slice>) -> BTreeMap<String, Pool> {
    let mut pools: BTreeMap<String, Pool> = BTreeMap::new();
    for slice in slices {
        let pool = pools.entry(slice.pool.clone()).or_default();
        if pool.slices_seen == 0 || slice.generation > pool.generation {
            *pool = Pool {
                node: slice.node().unwrap_or_default().to_owned(),
                generation: slice.generation,
                slices_announced: slice.slice_count,
                ..Pool::default()
            };
        }
        if slice.generation == pool.generation {
            pool.slices_seen += 1;
            pool.devices.extend(slice.devices);
        }
    }
    for pool in pools.values_mut() {
        if !pool.is_complete() {
            pool.devices.clear();
        }
    }
    pools
}

#[cfg(test)]
mod tests;
