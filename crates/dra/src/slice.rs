//! Devices and the slices that publish them (`resource.k8s.io/v1` `ResourceSlice`).

use std::collections::BTreeMap;

use octavo_cel::DeviceFields;

use crate::node::NodeSelector;
use crate::{AttributeValue, Quantity};

/// A published device.
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
    /// Draws on the pool's counter sets (KEP-4815). A device that allows multiple allocations draws
    /// only once.
    pub consumes: Vec<CounterConsumption>,
    /// Whether several claims may each hold a share of its capacity (KEP-5075).
    pub allow_multiple: bool,
    /// The nodes that can reach the device; only in slices with [`NodeScope::PerDevice`].
    pub nodes: Option<NodeScope>,
    /// Whether an allocation restricts the pod to its node, even if other nodes reach the device.
    pub binds_to_node: bool,
    /// Conditions that must be true before a pod is bound (KEP-5007).
    pub binding_conditions: Vec<String>,
    /// Conditions any of which means that the device failed to become ready.
    pub binding_failure_conditions: Vec<String>,
}

/// A capacity of a device and the policy for requests of shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The total.
    pub value: Quantity,
    /// Rounding and bounds of requests. Without a policy a request may take any amount, and takes
    /// all if it names none.
    pub policy: Option<RequestPolicy>,
}

/// Rounding and bounds of capacity requests (KEP-5075, `CapacityRequestPolicy`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestPolicy {
    /// The amount for claims that name none; absent for the whole capacity.
    pub default: Option<Quantity>,
    /// The allowed amounts.
    pub allowed: AllowedAmounts,
}

/// Amounts of a capacity that claims may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedAmounts {
    /// Any amount.
    #[default]
    Any,
    /// One of these, ascending. A request is rounded up to the next one.
    Values(Vec<Quantity>),
    /// A range. A request is rounded up to the next step above the minimum.
    Range {
        /// Minimum.
        min: Quantity,
        /// Maximum; absent for the capacity.
        max: Option<Quantity>,
        /// Distance between two amounts; absent for any amount in the range.
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

/// A device's draw on one counter set.
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
    /// Effect on pods.
    pub effect: TaintEffect,
}

/// Effect of a device taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaintEffect {
    /// Informative only.
    None,
    /// New allocations need a toleration.
    NoSchedule,
    /// New allocations need a toleration, and pods without one are evicted.
    NoExecute,
}

/// The nodes that can reach devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodeScope {
    /// One node.
    Node(String),
    /// Nodes that match a selector.
    Selector(NodeSelector),
    /// All nodes.
    #[default]
    All,
    /// Given by each device (`perDeviceNodeSelection`).
    PerDevice,
}

/// The content of one `ResourceSlice`, which is a part of a pool. It holds counter sets or devices,
/// but not both (Kubernetes 1.35 and later).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Name of the object. Allocators take a pool's slices in order of name.
    pub name: String,
    /// Name of the driver.
    pub driver: String,
    /// Name of the pool.
    pub pool: String,
    /// Generation of the pool that this slice belongs to.
    pub generation: i64,
    /// Number of slices in the pool at this generation.
    pub slice_count: i64,
    /// The nodes that can reach the devices.
    pub nodes: NodeScope,
    /// Counter sets of the pool.
    pub counters: Vec<CounterSet>,
    /// The devices, in search order for allocators.
    pub devices: Vec<Device>,
}

impl Capacity {
    /// A capacity without a policy.
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
    /// The node of a slice that is local to one.
    pub fn node(&self) -> Option<&str> {
        match &self.nodes {
            NodeScope::Node(name) => Some(name),
            _ => None,
        }
    }
}
