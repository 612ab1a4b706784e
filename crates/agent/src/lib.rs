//! The node agent: publishes a node's GPUs and prepares them for containers.

#![forbid(unsafe_code)]

mod args;
pub mod cdi;
mod checkpoint;
pub mod claims;
pub mod config;
pub mod devices;
pub mod enforcement;
mod failpoint;
mod handover;
pub mod health;
pub mod kubelet;
mod metrics;
mod monitor;
mod node;
mod run;
pub mod standalone_share;
#[cfg(test)]
mod testing;
mod watchdog;

pub use args::AgentArgs;
pub use metrics::metrics_reference;
pub use node::{ClaimRef, DRIVER_NAME, NodePaths, PreparedDevice};
pub use run::run;
