//! Work: streams and what runs in them.

pub(crate) mod callbacks;
pub(crate) mod capture;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod launch;
pub(crate) mod module;
pub(crate) mod ptx;
pub(crate) mod stream;
