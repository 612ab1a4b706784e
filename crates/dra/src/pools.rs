//! Slices become pools, and pools what one node can use of them.
//!
//! A pool's newest generation counts. A pool of which slices are missing is *incomplete*: its driver
//! is at work on it, and nothing is allocated from it. A pool that contradicts itself is *invalid*.
//! Order decides what a first fit takes: pools by driver and name, those with binding conditions
//! last; slices by name; devices as their slice lists them.

mod gather;
mod inventory;
mod kinds;
#[cfg(test)]
mod tests;
mod validity;

use std::fmt;

pub(crate) use gather::{GatherError, NodePool, PoolState, is_reachable};
pub(crate) use inventory::{DeviceId, Index, Inventory, Published};
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
