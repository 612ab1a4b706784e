//! Claims, classes and slices of dynamic resource allocation.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Meta;

/// A `ResourceClaim` (`resource.k8s.io/v1`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// Metadata.
    pub meta: Meta,
    /// What allocators look at.
    pub claim: octavo_dra::Claim,
    /// Why this version cannot allocate it: it asks for something unknown. Its requests are empty
    /// then; what it has been allocated is still told.
    pub fault: Option<String>,
    /// Configs of the claim's own (`spec.devices.config`).
    pub config: Vec<ClaimConfig>,
    /// Allocated devices with binding conditions, and how these stand.
    pub conditions: Vec<DeviceConditions>,
    /// `status.allocation.allocationTimestamp`, seconds since 1970.
    pub allocated: Option<i64>,
    /// Who may use it (`status.reservedFor`).
    pub reserved_for: Vec<Consumer>,
    /// Whether a scheduler made it for extended resources
    /// (annotation `resource.kubernetes.io/extended-resource-claim: "true"`).
    pub is_extended: bool,
}

/// An allocated device that a pod must wait for before it is bound (KEP-5007).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceConditions {
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Types of conditions that must all hold.
    pub awaited: Vec<String>,
    /// Types of conditions of which none may hold.
    pub failures: Vec<String>,
    /// Conditions of the device in the claim's status that hold (`status.devices[].conditions` with
    /// status `True`): type and message.
    pub holding: BTreeMap<String, String>,
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
