//! Selects the pools that a node can use.

use std::collections::BTreeMap;

use super::{Inventory, PoolDefect, validity};
use crate::features::Feature;
use crate::node::{Node, NodeSelectorError};
use crate::slice::NodeScope;

/// A pool as one node can use it.
#[derive(Clone, Debug)]
pub(crate) struct NodePool {
    /// Index of the newest generation.
    pub(crate) generation: usize,
    /// Whether the pool can be used.
    pub(crate) state: PoolState,
    /// The slices whose devices the node can reach, by name.
    pub(crate) slices: Vec<usize>,
}

/// Whether a pool can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolState {
    /// Complete and valid.
    Ready,
    /// Slices are missing.
    Incomplete,
    /// It contradicts itself.
    Invalid(PoolDefect),
}

/// A slice with a malformed node selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodePoolsError {
    /// Name of the slice.
    pub(crate) slice: String,
    /// What is wrong.
    pub(crate) error: NodeSelectorError,
}

impl NodePool {
    /// Whether devices can be allocated from it.
    pub(crate) fn is_ready(&self) -> bool {
        self.state == PoolState::Ready
    }
}

/// Whether a scope includes a node. False for [`NodeScope::PerDevice`], which the caller resolves.
pub(crate) fn is_reachable(scope: &NodeScope, node: &Node) -> Result<bool, NodeSelectorError> {
    match scope {
        NodeScope::Node(name) => Ok(*name == node.name),
        NodeScope::Selector(selector) => selector.matches(node),
        NodeScope::All => Ok(true),
        NodeScope::PerDevice => Ok(false),
    }
}

impl Inventory<'_> {
    /// The pools of a node, in search order.
    pub(crate) fn node_pools(&self, node: &Node) -> Result<Vec<NodePool>, NodePoolsError> {
        let mut here: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut add = |slice: usize| {
            here.entry(self.generations[self.generation_of[slice]].pool).or_default().push(slice);
        };
        self.by_node.get(node.name.as_str()).into_iter().flatten().copied().for_each(&mut add);
        for &slice in &self.shared {
            if self.is_slice_reachable(slice, node)? {
                add(slice);
            }
        }
        let mut pools = Vec::new();
        for (&pool, slices) in &mut here {
            slices.extend(self.counters.get(&pool).into_iter().flatten());
            slices.sort_unstable();
            pools.extend(self.pool(pool, slices));
        }
        // Kubernetes counts slices with counters to every node, so these pools block requests for
        // all devices.
        for unusable_pools in self.unusable_pools() {
            if !here.contains_key(&self.generations[unusable_pools.generation].pool) {
                pools.push(unusable_pools.clone());
            }
        }
        pools.sort_by_key(|pool| (self.has_binding(pool), self.generations[pool.generation].pool));
        Ok(pools)
    }

    /// A pool made of those of its slices that apply to a node (`here`, by index). `None` if a
    /// newer generation replaces them.
    pub(super) fn pool(&self, pool: usize, here: &[usize]) -> Option<NodePool> {
        let generation = *here.iter().map(|&slice| &self.generation_of[slice]).max()?;
        let here: Vec<usize> =
            here.iter().copied().filter(|&slice| self.generation_of[slice] == generation).collect();
        let has_counters = |slice: usize| !self.slices[slice].counters.is_empty();
        // If slices disagree on their number, the one local to the node counts.
        let is_local = |slice: &&usize| {
            !has_counters(**slice) && matches!(self.slices[**slice].nodes, NodeScope::Node(_))
        };
        let first = *here.iter().find(is_local).or(here.first())?;
        let wanted = usize::try_from(self.slices[first].slice_count).unwrap_or(usize::MAX);
        let all = self.generations[generation].slices.clone();
        let mut elsewhere = Vec::new();
        let mut is_complete = here.len() == wanted;
        if !is_complete {
            // Slices for other nodes complete the pool, or show that a newer generation exists.
            if self.pools[pool].end != generation + 1 {
                return None;
            }
            is_complete = all.len() == wanted;
            elsewhere = all.filter(|slice| here.binary_search(slice).is_err()).collect();
        }
        let state = if is_complete {
            self.pool_state(generation, &here, &elsewhere)
        } else {
            PoolState::Incomplete
        };
        let slices = here.into_iter().filter(|&slice| !has_counters(slice)).collect();
        Some(NodePool { generation, state, slices })
    }

    fn pool_state(&self, generation: usize, here: &[usize], elsewhere: &[usize]) -> PoolState {
        if self.is_valid(generation) {
            return PoolState::Ready;
        }
        let slices = |indexes: &'_ [usize]| -> Vec<_> {
            indexes.iter().map(|&slice| self.slices[slice]).collect()
        };
        let result = validity::check(slices(here).into_iter(), slices(elsewhere).into_iter());
        match result {
            Err(PoolDefect::DuplicateDevice(device)) => {
                PoolState::Invalid(PoolDefect::DuplicateDevice(device))
            }
            Err(defect) if self.features.has(Feature::PartitionableDevices) => {
                PoolState::Invalid(defect)
            }
            _ => PoolState::Ready,
        }
    }

    fn is_slice_reachable(&self, slice: usize, node: &Node) -> Result<bool, NodePoolsError> {
        let slice = self.slices[slice];
        let error = |error| NodePoolsError { slice: slice.name.clone(), error };
        if slice.nodes != NodeScope::PerDevice {
            return is_reachable(&slice.nodes, node).map_err(error);
        }
        for scope in slice.devices.iter().filter_map(|device| device.nodes.as_ref()) {
            if is_reachable(scope, node).map_err(error)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_binding(&self, pool: &NodePool) -> bool {
        self.generations[pool.generation].has_binding
            && pool.is_ready()
            && pool.slices.iter().any(|&slice| {
                self.slices[slice]
                    .devices
                    .iter()
                    .any(|device| !device.binding_conditions.is_empty())
            })
    }
}
