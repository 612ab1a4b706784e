//! A driver's devices and the slices that publish them (`resource.k8s.io/v1` `ResourceSlice`).

use std::collections::BTreeMap;

use crate::Quantity;

/// A device as it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// DNS label, unique in the pool.
    pub name: String,
    /// Attributes by name; a name without a domain belongs to the driver's domain.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Capacities by name.
    pub capacity: BTreeMap<String, Quantity>,
    /// Taints, in order of key.
    pub taints: Vec<DeviceTaint>,
}

/// The value of a device attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttributeValue {
    /// A whole number.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// Text of at most 64 characters.
    String(String),
    /// A semantic version of at most 64 characters.
    Version(String),
}

/// A taint on a device (KEP-5055).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceTaint {
    /// Qualified name.
    pub key: String,
    /// Value, may be empty.
    pub value: String,
    /// What it does to pods.
    pub effect: TaintEffect,
}

/// What a device taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaintEffect {
    /// Informs only.
    None,
    /// No new allocation without a toleration.
    NoSchedule,
    /// Pods without a toleration are evicted, too.
    NoExecute,
}

/// One `ResourceSlice`'s content: a part of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Name of the driver.
    pub driver: String,
    /// Name of the pool.
    pub pool: String,
    /// Generation of the pool that this slice belongs to.
    pub generation: i64,
    /// Number of slices in the pool at this generation.
    pub slice_count: i64,
    /// The node that has the devices.
    pub node: String,
    /// The devices, in the order in which an allocator should try them.
    pub devices: Vec<Device>,
}
