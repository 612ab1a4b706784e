//! The node agent: publishes a node's GPUs and prepares them for containers.

#![forbid(unsafe_code)]

mod args;
pub mod cdi;
mod checkpoint;
mod checkpoint_hooks;
pub mod claims;
mod compute_domain;
pub mod config;
mod device_plugin;
pub mod devices;
mod drain_gate;
mod fabric;
mod feature_labels;
mod gpu_mode;
mod handover;
pub mod health;
mod keyed_mutex;
pub mod kubelet;
mod metrics;
mod mig_layout;
mod monitor;
mod mps;
mod node;
mod pause;
mod problems;
mod run;
#[cfg(test)]
mod testing;

pub use args::AgentArgs;
pub use metrics::metrics_reference;
pub use node::{DraDriver, PreparedDevice};
pub use run::run;
