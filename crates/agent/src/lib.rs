//! The node agent: publishes a node's GPUs and prepares them for containers.

#![forbid(unsafe_code)]

mod args;
pub mod by_hand;
pub mod cdi;
mod checkpoint;
pub mod claims;
pub mod config;
mod crash;
pub mod devices;
mod endpoint;
pub mod enforcement;
mod handover;
pub mod health;
mod health_stream;
pub mod hook;
mod metrics;
mod monitor;
mod node;
mod plugin;
pub mod registration;
mod run;
mod share_files;
mod socket;
#[cfg(test)]
mod testing;
mod watchdog;

pub use args::AgentArgs;
pub use node::{ClaimRef, DRIVER_NAME, NodePaths, PreparedDevice};
pub use run::run;
