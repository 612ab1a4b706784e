//! What a node offers: devices of its slices for claims, or resources that its kubelet counts (pure).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use octavo_api::names::{CLASS_GPU, CLASS_MIG, DRIVER, EXTENDED_RESOURCE_GPU, TAINT_OWNER};
use serde::Serialize;

/// Begin of the names of NVIDIA's resources.
const RESOURCE_PREFIX: &str = "nvidia.com/";

/// What a node offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "mode", rename_all_fields = "camelCase")]
pub(crate) enum Offer {
    /// Devices, in slices.
    #[serde(rename = "dra")]
    Claims {
        /// The `DeviceClass` for a claim.
        class: &'static str,
        /// Devices of that class.
        devices: usize,
        /// The one scheduler that gives them.
        #[serde(skip_serializing_if = "Option::is_none")]
        scheduler: Option<String>,
    },
    /// Resources, counted by the kubelet.
    #[serde(rename = "device-plugin")]
    Resources {
        /// The resource for a pod.
        resource: String,
        /// How many pods can have in all.
        amount: u64,
    },
}

impl Offer {
    /// The offer of a node, if it has one. Slices come before resources: pods with claims may have the GPUs.
    pub(crate) fn of(node: &Node, slices: &[ResourceSlice]) -> Option<Self> {
        let name = node.metadata.name.as_deref();
        let own = slices.iter().map(|slice| &slice.spec);
        let own = own.filter(|spec| spec.driver == DRIVER && spec.node_name.as_deref() == name);
        let devices: Vec<&Device> = own.flat_map(|spec| spec.devices.iter().flatten()).collect();
        if devices.is_empty() {
            return Self::of_resources(node);
        }
        let gpus: Vec<&Device> = devices.iter().copied().filter(|it| is_gpu(it)).collect();
        let (class, offered) =
            if gpus.is_empty() { (CLASS_MIG, devices) } else { (CLASS_GPU, gpus) };
        let owner = offered.iter().find_map(|device| owner(device));
        Some(Self::Claims { class, devices: offered.len(), scheduler: owner })
    }

    fn of_resources(node: &Node) -> Option<Self> {
        let amounts = node.status.as_ref()?.allocatable.as_ref()?;
        let amounts: BTreeMap<&str, u64> = amounts
            .iter()
            .filter(|(name, _)| is_gpu_resource(name))
            .filter_map(|(name, amount)| Some((name.as_str(), amount.0.parse().ok()?)))
            .filter(|(_, amount)| *amount > 0)
            .collect();
        // Whole GPUs, then shared ones, then MIG devices: in order of their names.
        let (resource, amount) = amounts.first_key_value()?;
        Some(Self::Resources { resource: (*resource).to_owned(), amount: *amount })
    }

    /// The mode of the node, as its label has it.
    pub(crate) fn mode(&self) -> &'static str {
        match self {
            Self::Claims { .. } => "dra",
            Self::Resources { .. } => "device-plugin",
        }
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claims { class, devices, .. } => {
                write!(f, "the ResourceSlices have devices of class {class}: {devices}")
            }
            Self::Resources { resource, amount } => {
                write!(f, "the kubelet offers {resource}: {amount}")
            }
        }
    }
}

/// Whether a resource stands for GPUs or parts of them.
fn is_gpu_resource(name: &str) -> bool {
    name == EXTENDED_RESOURCE_GPU
        || name
            .strip_prefix(RESOURCE_PREFIX)
            .is_some_and(|rest| rest == "gpu.shared" || rest.starts_with("mig-"))
}

fn is_gpu(device: &Device) -> bool {
    let kind = device.attributes.as_ref().and_then(|attributes| attributes.get("type"));
    kind.and_then(|kind| kind.string.as_deref()) == Some("gpu")
}

/// The scheduler that alone gives a device.
fn owner(device: &Device) -> Option<String> {
    let mut taints = device.taints.iter().flatten();
    taints.find(|taint| taint.key == TAINT_OWNER)?.value.clone()
}
