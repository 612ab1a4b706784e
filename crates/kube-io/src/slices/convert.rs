//! Devices and slices as pure values, to and from the API's objects.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use octavo_dra::{AttributeValue, Device, DeviceTaint, Quantity, Slice, TaintEffect};

/// Why a `ResourceSlice` has no meaning for Octavo.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SliceError {
    /// A capacity is no quantity.
    #[error("device {device} has the capacity {name} of {value:?}, which is no quantity")]
    Capacity {
        /// Name of the device.
        device: String,
        /// Name of the capacity.
        name: String,
        /// The value.
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
}

/// Reads a slice of any driver.
///
/// Attributes whose value is a list (KEP-5491) are left out, and so is what belongs to
/// partitionable devices; a slice that is not one node's has an empty node name.
pub fn from_api(slice: &api::ResourceSlice) -> Result<Slice, SliceError> {
    let spec = &slice.spec;
    let devices = spec.devices.iter().flatten().map(device_from_api).collect::<Result<_, _>>()?;
    Ok(Slice {
        driver: spec.driver.clone(),
        pool: spec.pool.name.clone(),
        generation: spec.pool.generation,
        slice_count: spec.pool.resource_slice_count,
        node: spec.node_name.clone().unwrap_or_default(),
        devices,
    })
}

/// Writes a slice as the API's spec.
pub fn to_api(slice: &Slice) -> api::ResourceSliceSpec {
    api::ResourceSliceSpec {
        driver: slice.driver.clone(),
        node_name: Some(slice.node.clone()),
        pool: api::ResourcePool {
            name: slice.pool.clone(),
            generation: slice.generation,
            resource_slice_count: slice.slice_count,
        },
        devices: Some(slice.devices.iter().map(device_to_api).collect()),
        ..api::ResourceSliceSpec::default()
    }
}

/// Writes a device as the API's.
pub(crate) fn device_to_api(device: &Device) -> api::Device {
    let attributes: BTreeMap<_, _> = device
        .attributes
        .iter()
        .map(|(name, value)| (name.clone(), attribute_to_api(value)))
        .collect();
    let capacity: BTreeMap<_, _> = device
        .capacity
        .iter()
        .map(|(name, value)| {
            let value = ApiQuantity(value.to_string());
            (name.clone(), api::DeviceCapacity { request_policy: None, value })
        })
        .collect();
    let taints: Vec<_> = device.taints.iter().map(taint_to_api).collect();
    api::Device {
        name: device.name.clone(),
        attributes: (!attributes.is_empty()).then_some(attributes),
        capacity: (!capacity.is_empty()).then_some(capacity),
        taints: (!taints.is_empty()).then_some(taints),
        ..api::Device::default()
    }
}

fn device_from_api(device: &api::Device) -> Result<Device, SliceError> {
    let attributes = device
        .attributes
        .iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.clone(), attribute_from_api(value)?)))
        .collect();
    let mut capacity = BTreeMap::new();
    for (name, value) in device.capacity.iter().flatten() {
        let text = &value.value.0;
        let quantity: Quantity = text.parse().map_err(|_| SliceError::Capacity {
            device: device.name.clone(),
            name: name.clone(),
            value: text.clone(),
        })?;
        capacity.insert(name.clone(), quantity);
    }
    let mut taints = Vec::new();
    for taint in device.taints.iter().flatten() {
        taints.push(taint_from_api(&device.name, taint)?);
    }
    taints.sort();
    Ok(Device { name: device.name.clone(), attributes, capacity, taints })
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

#[cfg(test)]
mod tests;
