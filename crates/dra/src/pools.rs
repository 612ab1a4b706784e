//! Groups slices into pools, and selects the part of each pool that a node can use.
//!
//! Only a pool's newest generation counts. A pool with missing slices is *incomplete*: its driver
//! is still writing it, and nothing is allocated from it. A pool that contradicts itself is
//! *invalid*.
//!
//! The order determines the first fit: pools by driver and name, those with binding conditions
//! last; slices by name; devices as listed in their slice.

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
