//! Conversion of devices and slices to and from the API's objects.

mod amounts;
mod device;
mod nodes;
#[cfg(test)]
mod tests;

use k8s_openapi::api::resource::v1 as api;
use octavo_dra::{NodeScope, NodeSelector, Slice};

pub(crate) use amounts::counter_set_to_api;
pub(crate) use device::device_to_api;
pub use nodes::{node_selector_from_api, node_selector_to_api};

/// Why a `ResourceSlice` has no meaning in this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SliceError {
    /// An amount is not a quantity.
    #[error("{of} has for {name} the amount {value:?}, which is not a quantity")]
    Quantity {
        /// The device or counter set with the amount.
        of: String,
        /// Name of the capacity or counter.
        name: String,
        /// The amount.
        value: String,
    },
    /// A taint's effect is unknown.
    #[error("device {device} has a taint with the unknown effect {effect:?}")]
    Effect {
        /// Name of the device.
        device: String,
        /// The effect.
        effect: String,
    },
    /// A node selector's operator is unknown.
    #[error("a node selector has the unknown operator {0:?}")]
    Operator(String),
}

/// Reads a slice of any driver.
///
/// Attributes with list values (KEP-5491) are skipped. As in Kubernetes, a slice without a known
/// node scope matches no node; a later version may know its scope.
pub fn from_api(slice: &api::ResourceSlice) -> Result<Slice, SliceError> {
    let spec = &slice.spec;
    let devices = spec.devices.iter().flatten();
    let counters = spec.shared_counters.iter().flatten();
    let nodes = nodes::scope(
        spec.node_name.as_deref(),
        spec.node_selector.as_ref(),
        spec.all_nodes,
        spec.per_device_node_selection,
    )?;
    Ok(Slice {
        name: slice.metadata.name.clone().unwrap_or_default(),
        driver: spec.driver.clone(),
        pool: spec.pool.name.clone(),
        generation: spec.pool.generation,
        slice_count: spec.pool.resource_slice_count,
        nodes: nodes.unwrap_or_else(|| NodeScope::Selector(NodeSelector::default())),
        counters: counters.map(amounts::counter_set_from_api).collect::<Result<_, _>>()?,
        devices: devices.map(device::device_from_api).collect::<Result<_, _>>()?,
    })
}

/// Writes a slice as the API's spec.
pub fn to_api(slice: &Slice) -> api::ResourceSliceSpec {
    let mut spec = api::ResourceSliceSpec {
        driver: slice.driver.clone(),
        pool: api::ResourcePool {
            name: slice.pool.clone(),
            generation: slice.generation,
            resource_slice_count: slice.slice_count,
        },
        ..api::ResourceSliceSpec::default()
    };
    match &slice.nodes {
        NodeScope::Node(name) => spec.node_name = Some(name.clone()),
        NodeScope::Selector(selector) => spec.node_selector = Some(node_selector_to_api(selector)),
        NodeScope::All => spec.all_nodes = Some(true),
        NodeScope::PerDevice => spec.per_device_node_selection = Some(true),
    }
    // A slice has counters or devices; one with neither is an empty list of devices.
    if slice.counters.is_empty() {
        spec.devices = Some(slice.devices.iter().map(device_to_api).collect());
    } else {
        spec.shared_counters = Some(slice.counters.iter().map(counter_set_to_api).collect());
    }
    spec
}
