//! Claims, classes and slices of dynamic resource allocation.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ClaimUid, Meta, PodUid};

/// A `ResourceClaim` (`resource.k8s.io/v1`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// Metadata.
    pub meta: Meta,
    /// The part that allocators use.
    pub claim: octavo_dra::Claim,
    /// Why this version cannot allocate it: it contains an unknown request. Its requests are then
    /// empty; its allocation is still present.
    pub fault: Option<String>,
    /// The claim's own configs (`spec.devices.config`).
    pub config: Vec<ClaimConfig>,
    /// Allocated devices with binding conditions, and their state.
    pub conditions: Vec<DeviceConditions>,
    /// `status.allocation.allocationTimestamp`, seconds since 1970.
    pub allocated: Option<i64>,
    /// The consumers (`status.reservedFor`).
    pub reserved_for: Vec<Consumer>,
    /// Whether a scheduler made it for extended resources
    /// (annotation `resource.kubernetes.io/extended-resource-claim: "true"`).
    pub is_extended: bool,
}

/// An allocated device that must become ready before the pod is bound (KEP-5007).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceConditions {
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Condition types that must all be true.
    pub awaited: Vec<String>,
    /// Condition types that must not be true.
    pub failures: Vec<String>,
    /// True conditions of the device in the claim's status (`status.devices[].conditions`): message
    /// by type.
    pub holding: BTreeMap<String, String>,
}

/// An opaque config, as written.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimConfig {
    /// Names of its requests; empty for all.
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

impl Claim {
    /// Its UID.
    pub fn uid(&self) -> ClaimUid {
        Arc::clone(&self.meta.uid).into()
    }
}

impl Consumer {
    /// Its UID as that of a pod. The UID of another kind of consumer is no pod's.
    pub fn pod_uid(&self) -> PodUid {
        Arc::clone(&self.uid).into()
    }
}

/// A `DeviceClass`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceClass {
    /// Metadata.
    pub meta: Meta,
    /// The part that allocators use.
    pub class: octavo_dra::Class,
    /// Configs for claims of the class (`spec.config`), without requests.
    pub config: Vec<ClaimConfig>,
}

/// A `ResourceSlice`.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceSlice {
    /// Metadata.
    pub meta: Meta,
    /// The part that allocators use.
    pub slice: octavo_dra::Slice,
}
