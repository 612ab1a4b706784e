//! What one node can use of the pools.

use std::collections::BTreeMap;

use super::{Inventory, PoolDefect, validity};
use crate::features::Feature;
use crate::node::{Node, NodeSelectorError};
use crate::slice::NodeScope;

/// A pool as a node sees it.
#[derive(Clone, Debug)]
pub(crate) struct NodePool {
    /// The generation that counts, as an index.
    pub(crate) generation: usize,
    /// Whether anything can be allocated from it.
    pub(crate) state: PoolState,
    /// The slices whose devices the node can reach, by name.
    pub(crate) slices: Vec<usize>,
}

/// Whether anything can be allocated from a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolState {
    /// All of it is there.
    Ready,
    /// Slices are missing.
    Incomplete,
    /// It contradicts itself.
    Invalid(PoolDefect),
}

/// A slice that says in an unsound way which nodes it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodePoolsError {
    /// Name of the slice.
    pub(crate) slice: String,
    /// What is wrong.
    pub(crate) error: NodeSelectorError,
}

impl NodePool {
    /// Whether something can be allocated from it.
    pub(crate) fn is_ready(&self) -> bool {
        self.state == PoolState::Ready
    }
}

/// Whether a node is in a scope. [`NodeScope::PerDevice`] says nothing by itself.
pub(crate) fn is_reachable(scope: &NodeScope, node: &Node) -> Result<bool, NodeSelectorError> {
    match scope {
        NodeScope::Node(name) => Ok(*name == node.name),
        NodeScope::Selector(selector) => selector.matches(node),
        NodeScope::All => Ok(true),
        NodeScope::PerDevice => Ok(false),
    }
}

impl Inventory<'_> {
    /// The pools of a node, in the order in which an allocator tries them.
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
        // Upstream takes counters for a part of every node, so these stand in the way of "all".
        for unusable_pools in self.unusable_pools() {
            if !here.contains_key(&self.generations[unusable_pools.generation].pool) {
                pools.push(unusable_pools.clone());
            }
        }
        pools.sort_by_key(|pool| (self.has_binding(pool), self.generations[pool.generation].pool));
        Ok(pools)
    }

    /// A pool out of those of its slices, by index, that count for a node; `None` when a newer
    /// generation replaces them.
    pub(super) fn pool(&self, pool: usize, here: &[usize]) -> Option<NodePool> {
        let generation = *here.iter().map(|&slice| &self.generation_of[slice]).max()?;
        let here: Vec<usize> =
            here.iter().copied().filter(|&slice| self.generation_of[slice] == generation).collect();
        let has_counters = |slice: usize| !self.slices[slice].counters.is_empty();
        // Where slices disagree about their number the one nearest to the node is believed.
        let is_local = |slice: &&usize| {
            !has_counters(**slice) && matches!(self.slices[**slice].nodes, NodeScope::Node(_))
        };
        let first = *here.iter().find(is_local).or(here.first())?;
        let wanted = usize::try_from(self.slices[first].slice_count).unwrap_or(usize::MAX);
        let all = self.generations[generation].slices.clone();
        let mut elsewhere = Vec::new();
        let mut is_complete = here.len() == wanted;
        if !is_complete {
            // Slices for other nodes complete the pool, or show that this generation is over.
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
