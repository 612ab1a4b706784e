//! The state of a cluster at one moment, as plain values.
//!
//! Pure functions compute all reports from a [`ClusterSnapshot`]. A live cluster, a recording and a
//! test's fixture therefore give the same report.

mod holders;
mod pools;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use octavo_dra::Quantity;
use octavo_dra::slice::Device;
use serde::Serialize;

use crate::explain::{AllocatorInput, Event};

pub use holders::{Holder, Holders, Share};
pub use pools::{Pool, newest_generations};

/// The driver whose devices are shown.
pub const DRIVER: &str = octavo_api::names::DRIVER;

/// The objects of a cluster that show the holders of devices.
#[derive(Clone, Debug, Default)]
pub struct ClusterSnapshot {
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Pools of [`DRIVER`] by name, each in its newest generation.
    pub pools: BTreeMap<String, Pool>,
    /// Claims by name.
    pub claims: BTreeMap<ObjectName, Claim>,
    /// Pods by name; only the requested ones.
    pub pods: BTreeMap<ObjectName, Pod>,
    /// Device classes by name.
    pub classes: BTreeMap<String, Class>,
    /// Existing claim templates; only the requested ones.
    pub templates: BTreeSet<ObjectName>,
    /// The same objects as an allocator takes them; only for a pod that waits for a node.
    pub allocator: Option<AllocatorInput>,
    /// Warnings of the agents about their nodes, by node and oldest first; only for a pod that waits
    /// for a node.
    pub node_warnings: BTreeMap<String, Vec<Event>>,
    /// Objects that could not be read, so that no report claims more than was seen.
    pub gaps: Vec<Gap>,
}

/// Name of an object in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ObjectName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Relevant facts about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Whether its condition `Ready` is true.
    pub ready: bool,
    /// Whether it was cordoned (`spec.unschedulable`).
    pub cordoned: bool,
    /// Extended resources that device plugins serve there (`status.allocatable`).
    pub plugin_resources: BTreeSet<String>,
}

/// A `ResourceClaim` (`resource.k8s.io/v1`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Its requests.
    pub requests: Vec<Request>,
    /// Its allocation, if any.
    pub allocation: Option<Allocation>,
    /// Pods that may use it, by name; all are in the claim's namespace.
    pub reserved_for: Vec<String>,
    /// Device status reported by drivers.
    pub devices: Vec<DeviceStatus>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// One request of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Name, unique in the claim.
    pub name: String,
    /// Alternatives, best first; more than one for `firstAvailable`.
    pub alternatives: Vec<RequestAlternative>,
}

/// Devices that would serve a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestAlternative {
    /// Name of the `DeviceClass`.
    pub class: String,
    /// How many devices; absent for allocation mode `All`.
    pub count: Option<i64>,
    /// CEL expressions as written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<String>,
    /// Requested amounts of a shared device, as written.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, String>,
    /// Whether it only monitors and holds nothing (`adminAccess`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub admin_access: bool,
    /// Whether it tolerates some taints of devices.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tolerates: bool,
}

/// Devices that a claim was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The devices.
    pub devices: Vec<AllocatedDevice>,
    /// When.
    pub at: Option<Timestamp>,
}

/// One device of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatedDevice {
    /// Request that it serves, with a sub-request after a slash.
    pub request: String,
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Share of the device, where it may be given in parts.
    pub share_id: Option<String>,
    /// Amounts of the device's capacities that it has, where it may be given in parts.
    pub consumed: BTreeMap<String, Quantity>,
    /// Whether the claim only monitors the device.
    pub admin_access: bool,
}

/// A driver's report on a device of a claim (`status.devices`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Share of the device, where it may be given in parts.
    pub share_id: Option<String>,
    /// UUID of a device created for the claim, such as a MIG device.
    pub uuid: Option<String>,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// A condition, without its times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason, a constant.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A `DeviceClass`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// CEL expressions as written.
    pub selectors: Vec<String>,
    /// Extended resource that stands for one device of the class.
    pub extended_resource: Option<String>,
}

/// Relevant facts about a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// The node that it is bound to.
    pub node: Option<String>,
    /// The scheduler that places it.
    pub scheduler: String,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Condition `PodScheduled`.
    pub scheduled: Option<Condition>,
    /// Gates that keep it from the scheduler.
    pub gates: Vec<String>,
    /// Claims that it names.
    pub claims: Vec<PodClaim>,
    /// Extended resources in the limits of its containers.
    pub extended: Vec<ExtendedResource>,
    /// Claim that the scheduler made for its extended resources.
    pub extended_claim: Option<String>,
}

/// An entry of `spec.resourceClaims` and its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim {
    /// Name inside the pod.
    pub name: String,
    /// Origin of the claim.
    pub source: ClaimSource,
    /// Name of the `ResourceClaim`, if known.
    pub claim: Option<String>,
}

/// Origin of a pod's claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind", content = "name")]
pub enum ClaimSource {
    /// A `ResourceClaim` of that name.
    ResourceClaim(String),
    /// Made for the pod from the `ResourceClaimTemplate` of that name.
    ResourceClaimTemplate(String),
    /// Made by the scheduler for extended resources in the limits.
    ExtendedResource(String),
}

/// A container's limit of an extended resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedResource {
    /// Container.
    pub container: String,
    /// Whether it is an init container.
    pub init: bool,
    /// Name of the resource.
    pub resource: String,
    /// How many.
    pub count: i64,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// The missing objects.
    pub kind: GapKind,
    /// Why; the API server's message if it denied the request.
    pub message: String,
}

/// Which objects are missing from a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum GapKind {
    /// Nodes.
    Nodes,
    /// `ResourceSlices`.
    Slices,
    /// `ResourceClaims` of other namespaces than the pod's.
    ClaimsElsewhere,
    /// `DeviceClasses`.
    Classes,
    /// `ResourceClaimTemplates`.
    Templates,
    /// Events.
    Events,
    /// Events of nodes.
    NodeEvents,
    /// The explanation of Octavo's scheduler.
    Scheduler,
    /// Objects of any kind that were read and not understood.
    Unreadable,
    /// Pods.
    Pods,
    /// Pods of the daemons of `ComputeDomains`.
    DaemonPods,
    /// `DaemonSets`.
    DaemonSets,
    /// `ComputeDomainCliques`.
    Cliques,
    /// The lease of the controller.
    Lease,
    /// `HealthPolicies`.
    HealthPolicies,
    /// `Maintenances`.
    Maintenances,
}

impl ClusterSnapshot {
    /// Whether objects of this kind are missing.
    pub fn lacks(&self, kind: GapKind) -> bool {
        self.gaps.iter().any(|gap| gap.kind == kind)
    }

    /// UUIDs of devices that exist only while a claim holds them, by pool and device, as the driver
    /// reported them in the claims.
    pub fn reported_uuids(&self) -> BTreeMap<(&str, &str), &str> {
        let statuses = self.claims.values().flat_map(|claim| &claim.devices);
        let ours = statuses.filter(|status| status.driver == DRIVER);
        ours.filter_map(|status| Some(((&*status.pool, &*status.device), status.uuid.as_deref()?)))
            .collect()
    }

    /// A published device.
    pub fn device(&self, pool: &str, device: &str) -> Option<&Device> {
        self.pools.get(pool)?.devices.iter().find(|found| found.name == device)
    }
}

impl ObjectName {
    /// A name in a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for GapKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Nodes => "nodes",
            Self::Slices => "resourceslices",
            Self::ClaimsElsewhere => "resourceclaims of other namespaces",
            Self::Classes => "deviceclasses",
            Self::Templates => "resourceclaimtemplates",
            Self::Events => "events",
            Self::NodeEvents => "events of nodes",
            Self::Scheduler => "the explanation of Octavo's scheduler",
            Self::Unreadable => "objects that cannot be parsed",
            Self::Pods => "pods",
            Self::DaemonPods => "pods of the daemons",
            Self::DaemonSets => "daemonsets",
            Self::Cliques => "computedomaincliques",
            Self::Lease => "the lease of the controller",
            Self::HealthPolicies => "healthpolicies",
            Self::Maintenances => "maintenances",
        })
    }
}
