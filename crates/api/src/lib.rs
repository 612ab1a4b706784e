//! What users and other controllers see: custom resources, opaque configs, names of labels, taints,
//! conditions and reasons.
//!
//! ```text
//! claim.status.allocation.devices.config[]  --decode-->  OpaqueConfig  --for_request-->  what a request gets
//! anything that cannot be done              ---------->  Refusal       ---------------->  condition, event, metric label, text
//! ```
//!
//! Nothing here does I/O.

#![forbid(unsafe_code)]

mod condition;
pub mod config;
pub mod crds;
pub mod names;
pub mod placement_policy;
pub mod pod_group;
pub mod refusal;

pub use condition::Condition;
pub use config::{ConfigEntry, ConfigError, ConfigSource, DecodedConfig, OpaqueConfig};
pub use placement_policy::{PlacementPolicy, PlacementPolicySpec, PlacementPolicyStatus};
pub use pod_group::{PodGroup, PodGroupSpec, PodGroupStatus};
pub use refusal::Refusal;
