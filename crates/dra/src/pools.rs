//! Slices become pools, and pools what one node can use of them.
//!
//! A pool's newest generation counts. A pool of which slices are missing is *incomplete*: its driver
//! is at work on it, and nothing is allocated from it. A pool that contradicts itself is *invalid*.
//! Order decides what a first fit takes: pools by driver and name, those with binding conditions
//! last; slices by name; devices as their slice lists them.

mod equivalence;
mod inventory;
mod node_pools;
#[cfg(test)]
mod tests;
mod validity;

use std::fmt;

pub(crate) use inventory::{DeviceId, Inventory, InventoryIndex, Published};
pub(crate) use node_pools::{NodePool, NodePoolsError, PoolState, is_reachable};
pub use validity::PoolDefect;

/// A pool by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolRef {
    /// Name of its driver.
    pub driver: String,
    /// Name of the pool.
    pub pool: String,
}

impl fmt::Display for PoolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.driver, self.pool)
    }
}
