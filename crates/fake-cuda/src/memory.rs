//! A device's memory: addresses, allocations and copies.

pub(crate) mod arena;
pub(crate) mod arrays;
pub(crate) mod copy;
pub(crate) mod fabric;
pub(crate) mod heap;
pub(crate) mod ipc;
pub(crate) mod mappings;
pub(crate) mod pool;
pub(crate) mod spans;
pub(crate) mod vmm;
pub(crate) mod weak;
