//! Pods of the simulated nodes: watch, workers, statuses and containers.

mod allocated_resources;
pub(crate) mod cdi;
pub(crate) mod containers;
pub(crate) mod dispatch;
pub(crate) mod plan;
pub(crate) mod processes;
pub(crate) mod status;
mod volumes;
pub(crate) mod worker;
