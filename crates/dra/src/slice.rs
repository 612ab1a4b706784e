//! A driver's devices and the slices that publish them (`resource.k8s.io/v1` `ResourceSlice`).

use std::collections::BTreeMap;

use octavo_cel::DeviceFields;

use crate::node::NodeSelector;
use crate::{AttributeValue, Quantity};

/// A device as it is published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// DNS label, unique in the pool.
    pub name: String,
    /// Attributes by name; a name without a domain belongs to the driver's domain.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Capacities by name; a name without a domain belongs to the driver's domain.
    pub capacity: BTreeMap<String, Capacity>,
    /// Taints, in order of key.
    pub taints: Vec<DeviceTaint>,
    /// What an allocation of the device takes from the pool's counter sets (KEP-4815). However
    /// often a device is allocated that allows several allocations, it takes this once.
    pub consumes: Vec<CounterConsumption>,
    /// Whether several claims may be given it at once, each a part of its capacity (KEP-5075).
    pub allow_multiple: bool,
    /// Where the device can be reached; only in slices of scope [`NodeScope::PerDevice`].
    pub nodes: Option<NodeScope>,
    /// Whether an allocation binds the pod to its node though the device is reachable from others.
    pub binds_to_node: bool,
    /// Conditions that must be true before a pod is bound (KEP-5007).
    pub binding_conditions: Vec<String>,
    /// Conditions any of which means that binding failed.
    pub binding_failure_conditions: Vec<String>,
}

/// A capacity of a device, and how claims may take parts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// How much there is.
    pub value: Quantity,
    /// How requests for a part are rounded and bounded; without it any part may be taken, and a
    /// claim that does not say takes all.
    pub policy: Option<RequestPolicy>,
}

/// How requests for a part of a capacity are rounded and bounded (KEP-5075,
/// `CapacityRequestPolicy`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestPolicy {
    /// What a claim takes that does not say; absent: all.
    pub default: Option<Quantity>,
    /// What may be taken.
    pub allowed: AllowedAmounts,
}

/// Amounts of a capacity that claims may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedAmounts {
    /// Any.
    #[default]
    Any,
    /// One of these, ascending; a request is rounded up to the next.
    Values(Vec<Quantity>),
    /// A range; a request is rounded up to the next step from the minimum.
    Range {
        /// Least.
        min: Quantity,
        /// Most; absent: the capacity.
        max: Option<Quantity>,
        /// Distance between two amounts; absent: any amount in the range.
        step: Option<Quantity>,
    },
}

/// Counters of a pool from which its devices draw (KEP-4815).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterSet {
    /// DNS label, unique in the pool.
    pub name: String,
    /// Totals by counter name.
    pub counters: BTreeMap<String, Quantity>,
}

/// What a device takes from a counter set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterConsumption {
    /// Name of the counter set.
    pub counter_set: String,
    /// Amounts by counter name.
    pub counters: BTreeMap<String, Quantity>,
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

/// From which nodes devices can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodeScope {
    /// From one.
    Node(String),
    /// From those that a selector matches.
    Selector(NodeSelector),
    /// From all.
    #[default]
    All,
    /// Each device says it for itself (`perDeviceNodeSelection`).
    PerDevice,
}

/// One `ResourceSlice`'s content: a part of a pool. It has counter sets or devices, not both
/// (Kubernetes 1.35 and later).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Name of the object: allocators take a pool's slices in the order of their names.
    pub name: String,
    /// Name of the driver.
    pub driver: String,
    /// Name of the pool.
    pub pool: String,
    /// Generation of the pool that this slice belongs to.
    pub generation: i64,
    /// Number of slices in the pool at this generation.
    pub slice_count: i64,
    /// From which nodes the devices can be reached.
    pub nodes: NodeScope,
    /// Counter sets of the pool.
    pub counters: Vec<CounterSet>,
    /// The devices, in the order in which an allocator should try them.
    pub devices: Vec<Device>,
}

impl Capacity {
    /// A capacity that is taken as a whole.
    pub fn whole(value: Quantity) -> Self {
        Self { value, policy: None }
    }
}

impl DeviceFields for Device {
    fn name(&self) -> &str {
        &self.name
    }

    fn allows_multiple_allocations(&self) -> bool {
        self.allow_multiple
    }

    fn attributes(&self) -> &BTreeMap<String, AttributeValue> {
        &self.attributes
    }

    fn capacity(&self, name: &str) -> Option<Quantity> {
        self.capacity.get(name).map(|capacity| capacity.value)
    }

    fn capacities(&self) -> Box<dyn Iterator<Item = (&str, Quantity)> + '_> {
        Box::new(self.capacity.iter().map(|(name, capacity)| (&**name, capacity.value)))
    }
}

impl Slice {
    /// The one node that has the devices, where there is one.
    pub fn node(&self) -> Option<&str> {
        match &self.nodes {
            NodeScope::Node(name) => Some(name),
            _ => None,
        }
    }
}
