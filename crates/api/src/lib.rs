//! The public API of Octavo: custom resources, opaque configs, the config of the device plugin, and names of labels, taints,
//! conditions and reasons.
//!
//! ```text
//! claim.status.allocation.devices.config[]  --decode-->  OpaqueConfig  --for_request-->  config of a request
//! an operation that cannot be done          ---------->  Refusal       ---------------->  condition, event, metric label, text
//! ```
//!
//! No I/O.

#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod compute_domain;
mod condition;
pub mod config;
pub mod crds;
mod fields;
pub mod health_policy;
pub mod health_taint;
pub mod imex;
pub mod maintenance;
pub mod mig_config;
pub mod names;
pub mod node_health;
pub mod placement_policy;
pub mod plugin_config;
pub mod pod_group;
pub mod reasons;
pub mod refusal;

pub use compute_domain::{ComputeDomain, ComputeDomainClique};
pub use condition::Condition;
pub use config::{ConfigEntry, ConfigError, ConfigSource, DecodedConfig, OpaqueConfig};
pub use health_policy::{HealthPolicy, HealthPolicySpec, HealthPolicyStatus};
pub use maintenance::{Maintenance, MaintenanceSpec, MaintenanceStatus};
pub use node_health::{NodeHealth, NodeHealthSpec, NodeHealthStatus};
pub use placement_policy::{PlacementPolicy, PlacementPolicySpec, PlacementPolicyStatus};
pub use pod_group::{PodGroup, PodGroupSpec, PodGroupStatus};
pub use refusal::Refusal;
