//! Devices with their attributes and taints.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1 as api;
use octavo_dra::{AttributeValue, Device, DeviceTaint, NodeScope, TaintEffect};

use super::{SliceError, amounts, nodes};

/// Writes a device as the API's.
pub(crate) fn device_to_api(device: &Device) -> api::Device {
    let attributes = device.attributes.iter();
    let attributes: BTreeMap<_, _> =
        attributes.map(|(name, value)| (name.clone(), attribute_to_api(value))).collect();
    let capacity = device.capacity.iter();
    let capacity: BTreeMap<_, _> =
        capacity.map(|(name, value)| (name.clone(), amounts::capacity_to_api(value))).collect();
    let mut written = api::Device {
        name: device.name.clone(),
        attributes: (!attributes.is_empty()).then_some(attributes),
        capacity: (!capacity.is_empty()).then_some(capacity),
        taints: listed(&device.taints, taint_to_api),
        consumes_counters: listed(&device.consumes, amounts::consumption_to_api),
        allow_multiple_allocations: device.allow_multiple.then_some(true),
        binds_to_node: device.binds_to_node.then_some(true),
        binding_conditions: listed(&device.binding_conditions, Clone::clone),
        binding_failure_conditions: listed(&device.binding_failure_conditions, Clone::clone),
        ..api::Device::default()
    };
    match &device.nodes {
        Some(NodeScope::Node(name)) => written.node_name = Some(name.clone()),
        Some(NodeScope::Selector(selector)) => {
            written.node_selector = Some(nodes::node_selector_to_api(selector));
        }
        Some(NodeScope::All) => written.all_nodes = Some(true),
        Some(NodeScope::PerDevice) | None => {}
    }
    written
}

pub(super) fn device_from_api(device: &api::Device) -> Result<Device, SliceError> {
    let attributes = device.attributes.iter().flatten();
    let attributes =
        attributes.filter_map(|(name, value)| Some((name.clone(), attribute_from_api(value)?)));
    let capacity = device.capacity.iter().flatten().map(|(name, value)| {
        Ok((name.clone(), amounts::capacity_from_api(&device.name, name, value)?))
    });
    let taints = device.taints.iter().flatten();
    let mut taints = taints
        .map(|taint| taint_from_api(&device.name, taint))
        .collect::<Result<Vec<_>, SliceError>>()?;
    taints.sort();
    let consumed = device.consumes_counters.iter().flatten();
    let consumed = consumed.map(|consumed| amounts::consumption_from_api(&device.name, consumed));
    let (node, selector) = (device.node_name.as_deref(), device.node_selector.as_ref());
    Ok(Device {
        name: device.name.clone(),
        attributes: attributes.collect(),
        capacity: capacity.collect::<Result<_, SliceError>>()?,
        taints,
        consumes: consumed.collect::<Result<_, SliceError>>()?,
        allow_multiple: device.allow_multiple_allocations == Some(true),
        nodes: nodes::scope(node, selector, device.all_nodes, None)?,
        binds_to_node: device.binds_to_node == Some(true),
        binding_conditions: device.binding_conditions.clone().unwrap_or_default(),
        binding_failure_conditions: device.binding_failure_conditions.clone().unwrap_or_default(),
    })
}

/// A list that is absent if it is empty, as in the API.
fn listed<T, U>(list: &[T], write: impl Fn(&T) -> U) -> Option<Vec<U>> {
    (!list.is_empty()).then(|| list.iter().map(write).collect())
}

fn attribute_to_api(value: &AttributeValue) -> api::DeviceAttribute {
    let mut attribute = api::DeviceAttribute::default();
    match value {
        AttributeValue::Int(value) => attribute.int = Some(*value),
        AttributeValue::Bool(value) => attribute.bool = Some(*value),
        AttributeValue::String(value) => attribute.string = Some(value.clone()),
        AttributeValue::Version(value) => attribute.version = Some(value.clone()),
    }
    attribute
}

fn attribute_from_api(value: &api::DeviceAttribute) -> Option<AttributeValue> {
    let int = value.int.map(AttributeValue::Int);
    int.or_else(|| value.bool.map(AttributeValue::Bool))
        .or_else(|| value.string.clone().map(AttributeValue::String))
        .or_else(|| value.version.clone().map(AttributeValue::Version))
}

fn taint_to_api(taint: &DeviceTaint) -> api::DeviceTaint {
    let effect = match taint.effect {
        TaintEffect::None => "None",
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    api::DeviceTaint {
        key: taint.key.clone(),
        value: (!taint.value.is_empty()).then(|| taint.value.clone()),
        effect: effect.to_owned(),
        time_added: None,
    }
}

fn taint_from_api(device: &str, taint: &api::DeviceTaint) -> Result<DeviceTaint, SliceError> {
    let effect = match taint.effect.as_str() {
        "None" => TaintEffect::None,
        "NoSchedule" => TaintEffect::NoSchedule,
        "NoExecute" => TaintEffect::NoExecute,
        other => {
            return Err(SliceError::Effect { device: device.to_owned(), effect: other.to_owned() });
        }
    };
    let value = taint.value.clone().unwrap_or_default();
    Ok(DeviceTaint { key: taint.key.clone(), value, effect })
}
