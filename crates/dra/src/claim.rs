//! Claims and classes of devices (`resource.k8s.io/v1` `ResourceClaim`, `DeviceClass`).

use std::collections::BTreeMap;

use crate::Quantity;
use crate::node::NodeSelector;
use crate::slice::TaintEffect;

/// A claim: its requests and, once allocated, its allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Requests, in the order of allocation.
    pub requests: Vec<Request>,
    /// Constraints between its devices.
    pub constraints: Vec<Constraint>,
    /// The allocation; `None` until it is allocated.
    pub allocation: Option<Allocation>,
}

/// A request for devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// DNS label, unique in the claim.
    pub name: String,
    /// Its alternatives, or the one form that it has.
    pub ask: Ask,
}

/// The `exactly` or `firstAvailable` of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// One device request.
    Exactly(DeviceRequest),
    /// Alternatives with their names; the first that can be allocated counts (KEP-4816). Results
    /// name it `<request>/<name>`.
    FirstAvailable(Vec<(String, DeviceRequest)>),
}

/// A request for devices of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Name of the class.
    pub class: String,
    /// CEL expressions that a device must satisfy, beside those of the class.
    pub selectors: Vec<String>,
    /// How many devices.
    pub count: Count,
    /// Whether access is for administration, which excludes no other use (KEP-5018).
    pub admin_access: bool,
    /// Tolerated taints.
    pub tolerations: Vec<Toleration>,
    /// Requested shares of capacities, by the name as the device writes it (KEP-5075).
    pub capacity: BTreeMap<String, Quantity>,
}

/// How many devices a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Exactly this many.
    Exactly(u64),
    /// All that match, at least one (`allocationMode: All`).
    All,
}

/// A toleration of device taints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    /// Key; `None` matches every key.
    pub key: Option<String>,
    /// The value that a taint must have; `None` for any (operator `Exists`).
    pub value: Option<String>,
    /// Effect; `None` matches every effect.
    pub effect: Option<TaintEffect>,
    /// For how many seconds `NoExecute` is tolerated; `None` for ever. The allocator ignores it,
    /// and the allocation carries it to the controller that evicts.
    pub seconds: Option<i64>,
}

/// A constraint between the devices of several requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Names of requests or `<request>/<subrequest>`; empty for all requests.
    pub requests: Vec<String>,
    /// The relation that must hold.
    pub rule: Rule,
}

/// The relation between devices that a constraint requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// All devices have the same value of this fully qualified attribute (`matchAttribute`).
    Match(String),
    /// All devices have this fully qualified attribute with different values (`distinctAttribute`,
    /// KEP-5075).
    Distinct(String),
}

/// A class of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Name.
    pub name: String,
    /// CEL expressions that each of its devices satisfies.
    pub selectors: Vec<String>,
    /// Extended resource that the class serves (KEP-5004), beside
    /// `deviceclass.resource.kubernetes.io/<name>`.
    pub extended_resource: Option<String>,
}

/// The devices of an allocated claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The devices.
    pub results: Vec<AllocationResult>,
    /// The nodes that can reach all of the devices; `None` for any node.
    pub nodes: Option<NodeSelector>,
}

/// A device, or a share of one, in an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationResult {
    /// `<request>` or `<request>/<subrequest>`.
    pub request: String,
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Whether the access is for administration.
    pub admin_access: bool,
    /// ID of the share, for devices that allow multiple allocations.
    pub share_id: Option<String>,
    /// Amounts of capacities, for devices that allow multiple allocations.
    pub consumed: BTreeMap<String, Quantity>,
}

impl Default for Count {
    fn default() -> Self {
        Self::Exactly(1)
    }
}
