//! What users and other controllers see: opaque configs, names of labels, taints, conditions and reasons.
//!
//! ```text
//! claim.status.allocation.devices.config[]  --decode-->  OpaqueConfig  --for_request-->  what a request gets
//! anything that cannot be done              ---------->  Refusal       ---------------->  condition, event, metric label, text
//! ```
//!
//! Nothing here does I/O.

#![forbid(unsafe_code)]

pub mod config;
pub mod names;
pub mod refusal;

pub use config::{ConfigEntry, ConfigError, ConfigSource, DecodedConfig, OpaqueConfig};
pub use refusal::Refusal;
