//! Access to a published device: attributes by their short names, and the meaning of its taints.

use octavo_api::names::{CAPACITY_MEMORY, TAINT_OWNER};
use octavo_dra::AttributeValue;
use octavo_dra::Quantity;
use octavo_dra::slice::{Capacity, Device, DeviceTaint, TaintEffect};

use crate::snapshot::DRIVER;

/// A text attribute of the driver, named without its domain; both ways of publishing it are read.
pub(crate) fn text<'a>(device: &'a Device, name: &str) -> Option<&'a str> {
    match attribute(device, name)? {
        AttributeValue::String(text) | AttributeValue::Version(text) => Some(text),
        AttributeValue::Int(_) | AttributeValue::Bool(_) => None,
    }
}

/// Whether the device is a whole GPU. A device without a type counts as one.
pub(crate) fn is_gpu(device: &Device) -> bool {
    text(device, "type").is_none_or(|kind| kind == "gpu")
}

/// The published memory of the device, such as `81559Mi`.
pub(crate) fn memory(device: &Device) -> Option<String> {
    Some(capacity(device, CAPACITY_MEMORY)?.value.to_string())
}

/// Total memory for shares of the device. It is the amount of a claim that requests none.
pub(crate) fn shareable_memory(device: &Device) -> Option<Quantity> {
    let memory = capacity(device, CAPACITY_MEMORY)?;
    let default = memory.policy.as_ref().and_then(|policy| policy.default);
    Some(default.unwrap_or(memory.value))
}

/// A capacity by its short name; both ways of publishing it are read.
pub(crate) fn capacity<'a>(device: &'a Device, name: &str) -> Option<&'a Capacity> {
    device.capacity.get(name).or_else(|| device.capacity.get(&format!("{DRIVER}/{name}")))
}

/// The scheduler that alone gives the device: all others keep away.
pub(crate) fn scheduler(device: &Device) -> Option<&str> {
    let owned = device.taints.iter().find(|taint| taint.key == TAINT_OWNER)?;
    Some(&owned.value)
}

/// Taints that keep new pods away, whichever scheduler they have.
pub(crate) fn blocking_taints(device: &Device) -> Vec<String> {
    let blocks = |taint: &&DeviceTaint| {
        matches!(taint.effect, TaintEffect::NoSchedule | TaintEffect::NoExecute)
            && taint.key != TAINT_OWNER
    };
    device.taints.iter().filter(blocks).map(taint_text).collect()
}

/// `key=value:Effect`, as people write taints.
pub(crate) fn taint_text(taint: &DeviceTaint) -> String {
    let effect = match taint.effect {
        TaintEffect::None => "None",
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    if taint.value.is_empty() {
        format!("{}:{effect}", taint.key)
    } else {
        format!("{}={}:{effect}", taint.key, taint.value)
    }
}

fn attribute<'a>(device: &'a Device, name: &str) -> Option<&'a AttributeValue> {
    device.attributes.get(name).or_else(|| device.attributes.get(&format!("{DRIVER}/{name}")))
}
