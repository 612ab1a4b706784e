//! From what was read of the GPUs to the devices that are published: pure.
//!
//! Names, attributes and capacities are those of NVIDIA's DRA driver, so that selectors written for
//! it match. What Octavo adds has its own domain.

use std::collections::BTreeMap;

use octavo_api::names::{TAINT_GPU_LOST, TAINT_XID};
use octavo_dra::{AttributeValue, Capacity, Device, DeviceTaint, Quantity, TaintEffect, version};
use octavo_gpu::{DriverVersions, Gpu, Inventory};

use crate::health::GpuState;

/// Taint on a device for which the driver advises an action; the value is the action.
pub const TAINT_RECOVERY_ACTION: &str = "octavo.dev/recovery-action";
/// Longest value of an attribute of type string or version.
const LONGEST_VALUE: usize = 64;

/// The device name of a whole GPU.
pub fn device_name(gpu: &Gpu) -> String {
    format!("gpu-{}", gpu.minor)
}

/// Whether a GPU is offered whole: one in MIG mode serves no process that is not in an instance.
pub fn is_offered(gpu: &Gpu) -> bool {
    gpu.mig.is_none_or(|mig| !mig.enabled)
}

/// All devices of a node, in order of their minor numbers, tainted by `health` (by GPU UUID; a GPU
/// that it does not name is well).
pub fn devices(inventory: &Inventory, health: &BTreeMap<String, GpuState>) -> Vec<Device> {
    let mut gpus: Vec<_> = inventory.gpus.iter().filter(|gpu| is_offered(gpu)).collect();
    gpus.sort_by_key(|gpu| gpu.minor);
    gpus.into_iter().map(|gpu| device(gpu, &inventory.versions, health.get(&gpu.uuid))).collect()
}

fn device(gpu: &Gpu, versions: &DriverVersions, state: Option<&GpuState>) -> Device {
    let mut attributes = Attributes(BTreeMap::new());
    attributes.text("type", "gpu");
    attributes.text("uuid", &gpu.uuid);
    attributes.text("productName", &gpu.name);
    attributes.text("brand", &gpu.brand);
    attributes.text("architecture", &gpu.architecture);
    let (major, minor) = gpu.compute_capability;
    attributes.version("cudaComputeCapability", &format!("{major}.{minor}"));
    attributes.version("driverVersion", &versions.driver);
    let (major, minor) = versions.cuda;
    attributes.version("cudaDriverVersion", &format!("{major}.{minor}"));
    if let Some(mode) = gpu.addressing_mode {
        attributes.text("addressingMode", &mode.to_string());
    }
    attributes.text("resource.kubernetes.io/pciBusID", &gpu.pci.to_string());
    if let Some(root) = &gpu.pcie_root {
        attributes.text("resource.kubernetes.io/pcieRoot", root);
    }
    if let Some(node) = gpu.numa_node {
        attributes.int("resource.kubernetes.io/numaNode", i64::from(node));
    }
    // NVLink reaches within a clique: matchAttribute on it keeps a claim on one fabric.
    if let Some(clique) = gpu.fabric.as_ref().and_then(|fabric| fabric.clique.as_ref()) {
        attributes.text("octavo.dev/fabricClique", &clique.to_string());
    }
    if let Some(module) = gpu.module {
        attributes.int("octavo.dev/module", i64::from(module));
    }
    let memory = i64::try_from(gpu.memory_bytes).unwrap_or(i64::MAX);
    Device {
        name: device_name(gpu),
        attributes: attributes.0,
        capacity: [("memory".to_owned(), Capacity::whole(Quantity::binary(memory)))].into(),
        taints: state.map(taints).unwrap_or_default(),
        ..Device::default()
    }
}

/// The taints of a GPU in a state: none unless something must be done about it.
fn taints(state: &GpuState) -> Vec<DeviceTaint> {
    let taint = |key: &str, value: String| DeviceTaint {
        key: key.to_owned(),
        value,
        effect: TaintEffect::NoSchedule,
    };
    let mut taints = Vec::new();
    if state.is_lost {
        taints.push(taint(TAINT_GPU_LOST, String::new()));
    }
    if let Some(xid) = state.xid {
        taints.push(taint(TAINT_XID, xid.to_string()));
    }
    // Without an XID or a loss it is the driver's advice alone that keeps pods away, as after a
    // restart of the agent.
    if let (Some(advice), []) = (state.advice, taints.as_slice()) {
        taints.push(taint(TAINT_RECOVERY_ACTION, advice.to_owned()));
    }
    taints
}

/// Attributes under construction: what the API would refuse is left out or cut, because one bad
/// value would cost the node all its devices.
struct Attributes(BTreeMap<String, AttributeValue>);

impl Attributes {
    fn text(&mut self, name: &str, value: &str) {
        let end =
            (0..=LONGEST_VALUE.min(value.len())).rev().find(|end| value.is_char_boundary(*end));
        let value = value[..end.unwrap_or(0)].to_owned();
        if !value.is_empty() {
            self.0.insert(name.to_owned(), AttributeValue::String(value));
        }
    }

    fn int(&mut self, name: &str, value: i64) {
        self.0.insert(name.to_owned(), AttributeValue::Int(value));
    }

    fn version(&mut self, name: &str, value: &str) {
        match version::normalize(value) {
            Ok(value) if value.len() <= LONGEST_VALUE => {
                self.0.insert(name.to_owned(), AttributeValue::Version(value));
            }
            Ok(_) => tracing::warn!(attribute = name, value, "a version is too long to publish"),
            Err(error) => tracing::warn!(attribute = name, %error, "a version is not published"),
        }
    }
}

#[cfg(test)]
mod tests;
