//! Claims, classes and slices of dynamic resource allocation.

use std::sync::Arc;

use super::Meta;

/// A `ResourceClaim` (`resource.k8s.io/v1`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// Metadata.
    pub meta: Meta,
    /// What allocators look at.
    pub claim: octavo_dra::Claim,
    /// Configs of the claim's own (`spec.devices.config`).
    pub config: Vec<ClaimConfig>,
    /// Who may use it (`status.reservedFor`).
    pub reserved_for: Vec<Consumer>,
    /// Whether a scheduler made it for extended resources
    /// (annotation `resource.kubernetes.io/extended-resource-claim: "true"`).
    pub is_extended: bool,
}

/// An opaque config as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimConfig {
    /// Requests that it is for; none: all.
    pub requests: Vec<String>,
    /// Driver.
    pub driver: String,
    /// Parameters.
    pub parameters: serde_json::Value,
}

/// A consumer of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Consumer {
    /// API group; empty for pods.
    pub api_group: String,
    /// Resource: `pods`.
    pub resource: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: Arc<str>,
}

/// A `DeviceClass`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceClass {
    /// Metadata.
    pub meta: Meta,
    /// What allocators look at.
    pub class: octavo_dra::Class,
    /// Configs that claims of the class get (`spec.config`); their requests are empty.
    pub config: Vec<ClaimConfig>,
}

/// A `ResourceSlice`.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceSlice {
    /// Metadata.
    pub meta: Meta,
    /// What allocators look at.
    pub slice: octavo_dra::Slice,
}
