//! Devices of the benchmark as objects: slices, classes, templates, and claims with their devices.

use octavo_api::names;
use serde_json::{Value, json};

use super::contender::Contender;
use super::objects::{GPUS, Gpus, node_name};

/// Template of claims for one GPU.
pub(super) const GPU_TEMPLATE: &str = "one-gpu";
/// Template of claims for a GPU and a NIC of the same PCIe root.
pub(super) const GPU_AND_NIC_TEMPLATE: &str = "gpu-and-nic";
/// Template of claims for a MIG device.
pub(super) const MIG_TEMPLATE: &str = "one-mig";
/// Published memory of a GPU.
const GPU_MEMORY: &str = "81559Mi";

/// Driver of the NICs, and name of their class.
const NIC_DRIVER: &str = "nic.example.com";

/// The slices of a node, apart from those with MIG devices.
pub(super) fn slices(number: usize, gpus: Gpus, contender: Contender) -> Vec<Value> {
    match gpus {
        Gpus::Dra => vec![slice(number, contender)],
        Gpus::DraWithNics => vec![slice(number, contender), nic_slice(number)],
        Gpus::None | Gpus::Plain | Gpus::Mig => Vec::new(),
    }
}

/// The slice of a node's GPUs, field for field as an agent on eight H100s publishes it.
fn slice(number: usize, contender: Contender) -> Value {
    let node = node_name(number);
    let devices: Vec<Value> = (0..GPUS).map(|gpu| device(number, gpu, contender)).collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": format!("{node}-gpu.nvidia.com-000")},
        "spec": {
            "driver": "gpu.nvidia.com", "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    })
}

fn device(node: usize, gpu: usize, contender: Contender) -> Value {
    let mut device = json!({
        "name": device_name(gpu),
        "allowMultipleAllocations": true,
        "attributes": {
            "addressingMode": {"string": "HMM"},
            "architecture": {"string": "Hopper"},
            "brand": {"string": "Nvidia"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "driverVersion": {"version": "580.95.5"},
            "octavo.dev/module": {"int": gpu + 1},
            "productName": {"string": "NVIDIA H100 80GB HBM3"},
            "resource.kubernetes.io/numaNode": {"int": gpu / 4},
            "resource.kubernetes.io/pciBusID": {"string": format!("0000:{:02x}:00.0", 0x1b + 8 * gpu)},
            "resource.kubernetes.io/pcieRoot": {"string": pcie_root(gpu)},
            "type": {"string": "gpu"},
            "uuid": {"string": format!("GPU-{node:08x}-0000-0000-0000-{gpu:012x}")},
        },
        "capacity": {
            "compute": {
                "value": "100",
                "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "100"}},
            },
            "memory": {
                "value": GPU_MEMORY,
                "requestPolicy": {
                    "default": GPU_MEMORY,
                    "validRange": {"min": "1Mi", "max": GPU_MEMORY, "step": "1Mi"},
                },
            },
        },
    });
    if contender.is_octavo() {
        device["taints"] =
            json!([{"key": names::TAINT_OWNER, "value": "octavo", "effect": "NoSchedule"}]);
    }
    device
}

/// A node's NICs: one for each PCIe root of a GPU.
fn nic_slice(number: usize) -> Value {
    let node = node_name(number);
    let nic = |index: usize| {
        json!({
            "name": format!("nic-{index}"),
            "attributes": {
                "model": {"string": "CX7"},
                "resource.kubernetes.io/pcieRoot": {"string": pcie_root(index)},
            },
        })
    };
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": format!("{node}-{NIC_DRIVER}-000")},
        "spec": {
            "driver": NIC_DRIVER, "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": (0..GPUS).map(nic).collect::<Vec<_>>(),
        },
    })
}

fn pcie_root(gpu: usize) -> String {
    format!("pci0000:{:02x}", 0x15 + 8 * gpu)
}

/// Name of a GPU's device.
pub(super) fn device_name(gpu: usize) -> String {
    format!("gpu-{gpu}")
}

/// The class of the NICs.
pub(super) fn nic_class() -> Value {
    let expression = format!("device.driver == '{NIC_DRIVER}'");
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "metadata": {"name": NIC_DRIVER},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    })
}

/// All templates of claims.
pub(super) fn templates() -> [Value; 3] {
    let gpu = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}});
    let nic = json!({"name": "nic", "exactly": {"deviceClassName": NIC_DRIVER}});
    let profile = "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'";
    let mig = json!({"name": "gpu", "exactly": {
        "deviceClassName": "mig.nvidia.com", "selectors": [{"cel": {"expression": profile}}],
    }});
    let near = json!([{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]);
    [
        (GPU_TEMPLATE, json!({"requests": [gpu]})),
        (GPU_AND_NIC_TEMPLATE, json!({"requests": [gpu, nic], "constraints": near})),
        (MIG_TEMPLATE, json!({"requests": [mig]})),
    ]
    .map(|(name, devices)| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": name}, "spec": {"spec": {"devices": devices}},
        })
    })
}

/// A claim for one GPU, made by its user.
pub(super) fn gpu_claim(name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "finalizers": [FINALIZER]},
        "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        ]}},
    })
}

/// The status of a claim that has one GPU and is reserved for a pod.
pub(super) fn allocated(
    request: &str,
    (node, gpu): (usize, usize),
    (pod, pod_uid): (&str, &str),
) -> Value {
    let node_name = node_name(node);
    json!({
        "allocation": {
            "devices": {"results": [{
                "request": request, "driver": "gpu.nvidia.com", "pool": node_name,
                "device": device_name(gpu),
                "shareID": format!("{node:08x}-0000-4000-8000-{gpu:012x}"),
                "consumedCapacity": {"compute": "0", "memory": GPU_MEMORY},
            }]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [node_name]},
            ]}]},
        },
        "reservedFor": [{"resource": "pods", "name": pod, "uid": pod_uid}],
    })
}

/// The claim that a scheduler makes for a pod's extended resources (KEP-5004).
pub(super) fn extended_claim(pod: &str, pod_uid: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "generateName": format!("{pod}-extended-resources-"),
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "finalizers": [FINALIZER],
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod_uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"devices": {"requests": [{
            "name": EXTENDED_REQUEST,
            "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1},
        }]}},
    })
}

/// The finalizer that protects an allocated claim from deletion.
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The one request of a claim for extended resources.
pub(super) const EXTENDED_REQUEST: &str = "container-0-request-0";

/// The status of a pod whose GPUs come from a claim.
pub(super) fn extended_status(claim: &str) -> Value {
    json!({"status": {"extendedResourceClaimStatus": {
        "resourceClaimName": claim,
        "requestMappings": [{
            "containerName": "main", "resourceName": "nvidia.com/gpu",
            "requestName": EXTENDED_REQUEST,
        }],
    }}})
}
