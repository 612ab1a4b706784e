//! What is counted, and until when.

pub(crate) mod account;
pub(crate) mod allocation;
pub(crate) mod async_free;
pub(crate) mod captures;
pub(crate) mod context;
pub(crate) mod graph_memory;
pub(crate) mod pools;
pub(crate) mod slabs;
pub(crate) mod streams;
pub(crate) mod table;
pub(crate) mod vmm_memory;
