//! What is asked for and what was given (`resource.k8s.io/v1` `ResourceClaim`, `DeviceClass`).

use std::collections::BTreeMap;

use crate::Quantity;
use crate::node::NodeSelector;
use crate::slice::TaintEffect;

/// A claim: what it asks for and, once allocated, what it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Requests, in the order in which they are served.
    pub requests: Vec<Request>,
    /// What must hold between devices.
    pub constraints: Vec<Constraint>,
    /// What it was given; `None` until it is allocated.
    pub allocation: Option<Allocation>,
}

/// A request for devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// DNS label, unique in the claim.
    pub name: String,
    /// What is asked for.
    pub ask: Ask,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Exactly this.
    Exactly(DeviceRequest),
    /// The first of these that can be had, each with its name (KEP-4816). Results name it
    /// `<request>/<name>`.
    FirstAvailable(Vec<(String, DeviceRequest)>),
}

/// A request for devices of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Name of the class.
    pub class: String,
    /// CEL expressions that a device must satisfy beside the class's.
    pub selectors: Vec<String>,
    /// How many.
    pub count: Count,
    /// Whether access is for administration: it neither excludes nor is excluded (KEP-5018).
    pub admin_access: bool,
    /// Taints that are tolerated.
    pub tolerations: Vec<Toleration>,
    /// Parts of capacities that are asked for, each by its name as the device writes it (KEP-5075).
    pub capacity: BTreeMap<String, Quantity>,
}

/// How many devices a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// This many.
    Exactly(u64),
    /// All that match, at least one (`allocationMode: All`).
    All,
}

/// A toleration of device taints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    /// Key; `None` matches every key.
    pub key: Option<String>,
    /// The value that a taint must have; `None`: any (operator `Exists`).
    pub value: Option<String>,
    /// Effect; `None` matches every effect.
    pub effect: Option<TaintEffect>,
    /// For how many seconds `NoExecute` is tolerated; `None`: for good. It is no allocator's matter, and
    /// the allocation carries it on to who evicts.
    pub seconds: Option<i64>,
}

/// What must hold between the devices of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Names of requests or `<request>/<subrequest>`; none means all.
    pub requests: Vec<String>,
    /// What must hold.
    pub rule: Rule,
}

/// What must hold between devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// All have this attribute, with the same value. Fully qualified.
    Match(String),
    /// All have this attribute, each with a value of its own (KEP-5075). Fully qualified.
    Distinct(String),
}

/// A class of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Name.
    pub name: String,
    /// CEL expressions that its devices satisfy.
    pub selectors: Vec<String>,
    /// Extended resource that the class serves (KEP-5004), beside
    /// `deviceclass.resource.kubernetes.io/<name>`.
    pub extended_resource: Option<String>,
}

/// What a claim was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The devices.
    pub results: Vec<AllocationResult>,
    /// The nodes from which all of them can be reached; `None`: any.
    pub nodes: Option<NodeSelector>,
}

/// A device, or a part of it, that a claim was given.
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
    /// Whether it was given for administration.
    pub admin_access: bool,
    /// Identity of the part, for devices that allow several allocations.
    pub share_id: Option<String>,
    /// Amounts of capacities taken, for devices that allow several allocations.
    pub consumed: BTreeMap<String, Quantity>,
}

impl Default for Count {
    fn default() -> Self {
        Self::Exactly(1)
    }
}
