//! All slices of a cluster, indexed: what a node's pools are made from.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::kinds::Kinds;
use super::{NodePool, PoolRef, validity};
use crate::features::{Feature, Features};
use crate::slice::{Device, NodeScope, Slice};

/// A device's identity: driver, pool and name. Two generations of a pool, and slices for different
/// nodes, may each have a device of one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DeviceId(pub(crate) usize);

/// A device as a slice publishes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published<'a> {
    /// The device.
    pub(crate) device: &'a Device,
    /// The slice that lists it, as an index.
    pub(crate) slice: usize,
    /// Its identity.
    pub(crate) id: DeviceId,
    /// Devices of a kind look the same to every selector.
    pub(crate) kind: usize,
}

/// The slices of one generation of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Edition {
    /// The pool, as an index.
    pub(crate) pool: usize,
    /// Its slices, by name.
    pub(crate) slices: Range<usize>,
    /// Their devices.
    pub(crate) devices: Range<usize>,
    /// Whether all slices together are free of contradiction; then every choice of them is.
    pub(super) is_sound: bool,
    /// Whether any device has binding conditions.
    pub(super) has_binding: bool,
}

/// Indexed slices.
#[derive(Debug)]
pub(crate) struct Inventory<'a> {
    pub(super) features: Features,
    /// By driver, pool, generation and name.
    pub(crate) slices: Vec<&'a Slice>,
    /// The edition of each slice.
    pub(super) edition_of: Vec<usize>,
    /// The devices of each slice.
    pub(crate) devices_of: Vec<Range<usize>>,
    pub(crate) devices: Vec<Published<'a>>,
    pub(crate) editions: Vec<Edition>,
    /// The editions of each pool, oldest first.
    pub(super) pools: Vec<Range<usize>>,
    ids: HashMap<(usize, &'a str), DeviceId>,
    kinds: usize,
    /// Device slices of one node.
    pub(super) by_node: BTreeMap<&'a str, Vec<usize>>,
    /// Device slices that more than one node may reach.
    pub(super) shared: Vec<usize>,
    /// Slices with counters, by pool. They count for every node.
    pub(super) counters: BTreeMap<usize, Vec<usize>>,
    /// Pools with counters that no allocation is made from whatever else a node can reach of them.
    pub(super) troubled: Vec<NodePool>,
}

impl<'a> Inventory<'a> {
    /// Indexes slices; their order does not matter.
    pub(crate) fn new(slices: impl IntoIterator<Item = &'a Slice>, features: Features) -> Self {
        let mut slices: Vec<&Slice> = slices.into_iter().collect();
        slices.sort_by_key(|slice| (&slice.driver, &slice.pool, slice.generation, &slice.name));
        let mut all = Self {
            features,
            edition_of: Vec::with_capacity(slices.len()),
            devices_of: Vec::with_capacity(slices.len()),
            devices: Vec::new(),
            editions: Vec::new(),
            pools: Vec::new(),
            ids: HashMap::new(),
            kinds: 0,
            by_node: BTreeMap::new(),
            shared: Vec::new(),
            counters: BTreeMap::new(),
            troubled: Vec::new(),
            slices,
        };
        all.index_devices();
        all.index_nodes();
        all.troubled =
            all.counters.iter().filter_map(|(pool, here)| all.pool(*pool, here)).collect();
        all.troubled.retain(|pool| !pool.is_ready());
        all
    }

    /// Fills devices, editions and pools.
    fn index_devices(&mut self) {
        let mut kinds = Kinds::default();
        for index in 0..self.slices.len() {
            let slice = self.slices[index];
            let before = index.checked_sub(1).map(|before| self.slices[before]);
            let is_same_pool = before.is_some_and(|before| {
                (&before.driver, &before.pool) == (&slice.driver, &slice.pool)
            });
            if !is_same_pool {
                self.pools.push(self.editions.len()..self.editions.len());
            }
            if !is_same_pool || before.is_some_and(|before| before.generation != slice.generation) {
                self.editions.push(Edition {
                    pool: self.pools.len() - 1,
                    slices: index..index,
                    devices: self.devices.len()..self.devices.len(),
                    is_sound: true,
                    has_binding: false,
                });
            }
            let pool = self.pools.len() - 1;
            let first = self.devices.len();
            for device in &slice.devices {
                let next = DeviceId(self.ids.len());
                let id = *self.ids.entry((pool, &device.name)).or_insert(next);
                let kind = kinds.of(&slice.driver, device);
                self.devices.push(Published { device, slice: index, id, kind });
            }
            self.devices_of.push(first..self.devices.len());
            let edition = self.editions.len() - 1;
            self.edition_of.push(edition);
            self.pools[pool].end = edition + 1;
            self.editions[edition].slices.end = index + 1;
            self.editions[edition].devices.end = self.devices.len();
        }
        self.kinds = kinds.count();
        for edition in &mut self.editions {
            let slices = self.slices[edition.slices.clone()].iter().copied();
            edition.is_sound = validity::check(slices.clone(), std::iter::empty()).is_ok();
            let mut devices = slices.flat_map(|slice| &slice.devices);
            edition.has_binding = devices.any(|device| !device.binding_conditions.is_empty());
        }
    }

    /// Fills the indexes over nodes.
    fn index_nodes(&mut self) {
        let is_partitionable = self.features.has(Feature::PartitionableDevices);
        for (index, slice) in self.slices.iter().enumerate() {
            match &slice.nodes {
                _ if !slice.counters.is_empty() => {
                    if is_partitionable {
                        let pool = self.editions[self.edition_of[index]].pool;
                        self.counters.entry(pool).or_default().push(index);
                    }
                }
                NodeScope::PerDevice if !is_partitionable => {}
                NodeScope::Node(node) => self.by_node.entry(node).or_default().push(index),
                _ => self.shared.push(index),
            }
        }
    }

    /// How many kinds of devices there are.
    pub(crate) fn kinds(&self) -> usize {
        self.kinds
    }

    /// The identity of a device by its names, where a slice lists it.
    pub(crate) fn id(&self, driver: &str, pool: &str, device: &str) -> Option<DeviceId> {
        let names = |pool: &Range<usize>| {
            let first = self.slices[self.editions[pool.start].slices.start];
            (first.driver.as_str(), first.pool.as_str())
        };
        let pool = self.pools.binary_search_by_key(&(driver, pool), names).ok()?;
        self.ids.get(&(pool, device)).copied()
    }

    /// The name of the pool that an edition belongs to.
    pub(crate) fn pool_ref_of(&self, edition: usize) -> PoolRef {
        let slice = self.slices[self.editions[edition].slices.start];
        PoolRef { driver: slice.driver.clone(), pool: slice.pool.clone() }
    }
}
