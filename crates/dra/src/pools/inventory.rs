//! An index of all slices of a cluster or of a node, from which the pools of a node are made.

use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use super::equivalence::EquivalenceClasses;
use super::{NodePool, PoolRef, validity};
use crate::features::{Feature, Features};
use crate::slice::{Device, NodeScope, Slice};

/// Identity of a device: driver, pool and name. Two generations of a pool, or slices for different
/// nodes, may each have a device with the same identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DeviceId(pub(crate) usize);

/// A device as a slice publishes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published<'a> {
    /// The device.
    pub(crate) device: &'a Device,
    /// Index of the slice that lists it.
    pub(crate) slice: usize,
    /// Its identity.
    pub(crate) id: DeviceId,
}

/// The place of a device in the slices.
#[derive(Clone, Copy, Debug)]
struct DeviceLocation {
    slice: usize,
    /// Its index in the slice.
    position: usize,
    id: DeviceId,
}

/// The slices of one generation of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolGeneration {
    /// Index of the pool.
    pub(crate) pool: usize,
    /// Its slices, by name.
    pub(crate) slices: Range<usize>,
    /// Their devices.
    pub(crate) devices: Range<usize>,
    /// Whether any device has binding conditions.
    pub(super) has_binding: bool,
    /// Whether all slices together are free of contradictions, and thus any subset of them;
    /// computed on first use.
    is_valid: OnceLock<bool>,
    /// For each device the first device of its equivalence class; computed on first use.
    representatives: OnceLock<Box<[usize]>>,
}

/// Slices and their index.
#[derive(Clone, Debug)]
pub(crate) struct Inventory<'a> {
    /// By driver, pool, generation and name.
    pub(crate) slices: Arc<[&'a Slice]>,
    index: Arc<InventoryIndex>,
}

/// The index of slices. It does not borrow them, so it can be kept.
#[derive(Debug)]
pub(crate) struct InventoryIndex {
    pub(super) features: Features,
    /// The generation of each slice.
    pub(super) generation_of: Vec<usize>,
    /// The devices of each slice.
    pub(crate) devices_of: Vec<Range<usize>>,
    locations: Vec<DeviceLocation>,
    pub(crate) generations: Vec<PoolGeneration>,
    /// The generations of each pool, oldest first.
    pub(super) pools: Vec<Range<usize>>,
    /// The devices of each pool, by name.
    by_name: Vec<Box<[usize]>>,
    /// Device slices of one node.
    pub(super) by_node: BTreeMap<String, Vec<usize>>,
    /// Device slices that more than one node may reach.
    pub(super) shared: Vec<usize>,
    /// Slices with counters, by pool. They belong to every node.
    pub(super) counters: BTreeMap<usize, Vec<usize>>,
    /// Pools with counters that are unusable whichever of their device slices a node can reach.
    unusable_pools: OnceLock<Vec<NodePool>>,
}

impl Deref for Inventory<'_> {
    type Target = InventoryIndex;

    fn deref(&self) -> &InventoryIndex {
        &self.index
    }
}

impl<'a> Inventory<'a> {
    /// Indexes slices in any order.
    pub(crate) fn new(slices: impl IntoIterator<Item = &'a Slice>, features: Features) -> Self {
        let slices = sorted(slices);
        let index = Arc::new(InventoryIndex::new(&slices, features));
        Self { slices, index }
    }

    /// Combines slices with the index that was made of them; `None` if the slices differ from it.
    pub(crate) fn with_index(
        slices: impl IntoIterator<Item = &'a Slice>,
        index: &Arc<InventoryIndex>,
    ) -> Option<Self> {
        let slices = sorted(slices);
        let counts = slices.iter().map(|slice| slice.devices.len());
        let is_same = counts.eq(index.devices_of.iter().map(ExactSizeIterator::len));
        is_same.then(|| Self { slices, index: Arc::clone(index) })
    }

    /// The index of the slices.
    pub(crate) fn index(&self) -> &Arc<InventoryIndex> {
        &self.index
    }

    /// A device by index.
    pub(crate) fn published(&self, device: usize) -> Published<'a> {
        let DeviceLocation { slice, position, id } = self.locations[device];
        Published { device: &self.slices[slice].devices[position], slice, id }
    }

    /// The first device of the same equivalence class and generation.
    pub(crate) fn representative(&self, device: usize) -> usize {
        let generation = &self.generations[self.generation_of[self.locations[device].slice]];
        let representatives = generation.representatives.get_or_init(|| {
            let mut representatives = EquivalenceClasses::default();
            let devices = generation.devices.clone().map(|device| {
                let published = self.published(device);
                representatives.first(
                    &self.slices[published.slice].driver,
                    published.device,
                    device,
                )
            });
            devices.collect()
        });
        representatives[device - generation.devices.start]
    }

    /// Whether all slices of a generation together are free of contradictions.
    pub(super) fn is_valid(&self, generation: usize) -> bool {
        let generation = &self.generations[generation];
        *generation.is_valid.get_or_init(|| {
            let slices = self.slices[generation.slices.clone()].iter().copied();
            validity::check(slices, std::iter::empty()).is_ok()
        })
    }

    /// Pools with counters that are unusable whichever of their device slices a node can reach.
    pub(super) fn unusable_pools(&self) -> &[NodePool] {
        self.index.unusable_pools.get_or_init(|| {
            let pools = self.counters.iter().filter_map(|(pool, here)| self.pool(*pool, here));
            pools.filter(|pool| !pool.is_ready()).collect()
        })
    }

    /// The identity of a listed device, by its names.
    pub(crate) fn id(&self, driver: &str, pool: &str, device: &str) -> Option<DeviceId> {
        let names = |pool: &Range<usize>| {
            let first = self.slices[self.generations[pool.start].slices.start];
            (first.driver.as_str(), first.pool.as_str())
        };
        let pool = self.pools.binary_search_by_key(&(driver, pool), names).ok()?;
        let devices = &self.by_name[pool];
        let name = |index: &usize| self.published(*index).device.name.as_str();
        let found = devices.binary_search_by_key(&device, name).ok()?;
        Some(self.locations[devices[found]].id)
    }

    /// The pool of a generation, by name.
    pub(crate) fn pool_ref_of(&self, generation: usize) -> PoolRef {
        let slice = self.slices[self.generations[generation].slices.start];
        PoolRef { driver: slice.driver.clone(), pool: slice.pool.clone() }
    }
}

impl InventoryIndex {
    /// Indexes sorted slices.
    fn new(slices: &[&Slice], features: Features) -> Self {
        let mut all = Self {
            features,
            generation_of: Vec::with_capacity(slices.len()),
            devices_of: Vec::with_capacity(slices.len()),
            locations: Vec::new(),
            generations: Vec::new(),
            pools: Vec::new(),
            by_name: Vec::new(),
            by_node: BTreeMap::new(),
            shared: Vec::new(),
            counters: BTreeMap::new(),
            unusable_pools: OnceLock::new(),
        };
        all.index_devices(slices);
        all.name_devices(slices);
        all.index_nodes(slices);
        all
    }

    /// The features for which the index was made.
    pub(crate) fn features(&self) -> Features {
        self.features
    }

    /// Number of devices.
    pub(crate) fn device_count(&self) -> usize {
        self.locations.len()
    }

    /// Fills devices, generations and pools.
    fn index_devices(&mut self, slices: &[&Slice]) {
        for (index, slice) in slices.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| slices[before]);
            let is_same_pool = before.is_some_and(|before| {
                (&before.driver, &before.pool) == (&slice.driver, &slice.pool)
            });
            if !is_same_pool {
                self.pools.push(self.generations.len()..self.generations.len());
            }
            if !is_same_pool || before.is_some_and(|before| before.generation != slice.generation) {
                self.generations.push(PoolGeneration {
                    pool: self.pools.len() - 1,
                    slices: index..index,
                    devices: self.locations.len()..self.locations.len(),
                    has_binding: false,
                    is_valid: OnceLock::new(),
                    representatives: OnceLock::new(),
                });
            }
            let pool = self.pools.len() - 1;
            let first = self.locations.len();
            let location = |position| DeviceLocation { slice: index, position, id: DeviceId(0) };
            self.locations.extend((0..slice.devices.len()).map(location));
            self.devices_of.push(first..self.locations.len());
            let generation = self.generations.len() - 1;
            self.generation_of.push(generation);
            self.pools[pool].end = generation + 1;
            let generation = &mut self.generations[generation];
            generation.slices.end = index + 1;
            generation.devices.end = self.locations.len();
            generation.has_binding |=
                slice.devices.iter().any(|device| !device.binding_conditions.is_empty());
        }
    }

    /// Assigns identities to devices.
    fn name_devices(&mut self, slices: &[&Slice]) {
        let mut next = 0;
        for pool in &self.pools {
            let devices =
                pool.clone().flat_map(|generation| self.generations[generation].devices.clone());
            let mut devices: Vec<usize> = devices.collect();
            let name = |location: DeviceLocation| {
                slices[location.slice].devices[location.position].name.as_str()
            };
            devices.sort_by_key(|device| name(self.locations[*device]));
            let mut before = None;
            for &device in &devices {
                let name = name(self.locations[device]);
                if before.is_some_and(|before| before != name) {
                    next += 1;
                }
                before = Some(name);
                self.locations[device].id = DeviceId(next);
            }
            next += 1;
            self.by_name.push(devices.into());
        }
    }

    /// Fills the indexes over nodes.
    fn index_nodes(&mut self, slices: &[&Slice]) {
        let is_partitionable = self.features.has(Feature::PartitionableDevices);
        for (index, slice) in slices.iter().enumerate() {
            match &slice.nodes {
                _ if !slice.counters.is_empty() => {
                    if is_partitionable {
                        let pool = self.generations[self.generation_of[index]].pool;
                        self.counters.entry(pool).or_default().push(index);
                    }
                }
                NodeScope::PerDevice if !is_partitionable => {}
                NodeScope::Node(node) => self.by_node.entry(node.clone()).or_default().push(index),
                _ => self.shared.push(index),
            }
        }
    }
}

/// Slices by driver, pool, generation and name.
fn sorted<'a>(slices: impl IntoIterator<Item = &'a Slice>) -> Arc<[&'a Slice]> {
    let mut slices: Vec<&Slice> = slices.into_iter().collect();
    slices.sort_by_key(|slice| (&slice.driver, &slice.pool, slice.generation, &slice.name));
    slices.into()
}
