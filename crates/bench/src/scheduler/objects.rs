//! The objects of the benchmark: nodes, slices as agents publish them, pods, claims, gangs.

use octavo_api::names;
use serde_json::{Value, json};

use super::contender::Contender;

/// GPUs of a node.
pub(super) const GPUS: usize = 8;
/// Name of the template that claims are made from.
pub(super) const TEMPLATE: &str = "one-gpu";
/// Node labels of the topology, the widest first, with how many nodes a domain has.
pub(super) const LEVELS: [(&str, usize); 2] =
    [("topology.octavo.dev/block", 128), ("topology.octavo.dev/rack", 16)];

/// Published memory of a GPU.
const GPU_MEMORY: &str = "81559Mi";

/// How a node offers its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gpus {
    /// It has none.
    None,
    /// As an extended resource of the node, like device plugins.
    Plain,
    /// As devices in a slice.
    Dra,
}

/// The request of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodRequest {
    /// Processor and memory only.
    Plain,
    /// Also this many GPUs by `nvidia.com/gpu`, served by a device plugin or by a claim.
    Gpus(usize),
    /// A claim made from the template.
    Template,
}

/// Priorities: name and value.
pub(super) const PRIORITIES: [(&str, i32); 4] =
    [("bench-low", 100), ("bench-mid", 500), ("bench-high", 1_000), ("bench-top", 10_000)];

/// Name of a node by its number.
pub(super) fn node_name(number: usize) -> String {
    format!("node-{number}")
}

/// A node that is ready from its first moment.
pub(super) fn node(number: usize, gpus: Gpus, contender: Contender) -> Value {
    let name = node_name(number);
    let mut labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
    });
    for (label, size) in LEVELS {
        let (_, level) = label.rsplit_once('/').unwrap_or(("", label));
        labels[label] = format!("{level}-{}", number / size).into();
    }
    if contender == Contender::Octavo {
        labels[names::LABEL_OWNER] = "octavo".into();
    }
    let mut amounts = json!({
        "cpu": "128", "memory": "2Ti", "ephemeral-storage": "1Ti", "pods": "110",
    });
    if gpus == Gpus::Plain {
        amounts["nvidia.com/gpu"] = GPUS.to_string().into();
    }
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts, "allocatable": amounts,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "fake node of the benchmark",
            }],
        },
    })
}

/// The slice of a node's GPUs, field for field as an agent on eight H100s publishes it.
pub(super) fn slice(number: usize, contender: Contender) -> Value {
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
            "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:{:02x}", 0x15 + 8 * gpu)},
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
    if contender == Contender::Octavo {
        device["taints"] =
            json!([{"key": names::TAINT_OWNER, "value": "octavo", "effect": "NoSchedule"}]);
    }
    device
}

/// Name of a GPU's device.
pub(super) fn device_name(gpu: usize) -> String {
    format!("gpu-{gpu}")
}

/// The template that claims are made from.
pub(super) fn template() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE},
        "spec": {"spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        ]}}},
    })
}

/// A priority class.
pub(super) fn priority(name: &str, value: i32) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": name}, "value": value,
    })
}

/// A pod for the contender's scheduler, with a grace period of zero.
pub(super) fn pod(name: &str, request: PodRequest, contender: Contender) -> Value {
    let mut container = json!({
        "name": "main", "image": "bench",
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    });
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": contender.scheduler_name(),
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 0,
        },
    });
    match request {
        PodRequest::Plain => {}
        PodRequest::Gpus(count) => {
            container["resources"]["limits"] = json!({"nvidia.com/gpu": count.to_string()});
        }
        PodRequest::Template => {
            container["resources"]["claims"] = json!([{"name": "gpu"}]);
            pod["spec"]["resourceClaims"] =
                json!([{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]);
        }
    }
    pod["spec"]["containers"] = json!([container]);
    pod
}

/// How close a gang's pods are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopologyRequest {
    /// Anywhere.
    Anywhere,
    /// In one domain of this level or not at all.
    Required(&'static str),
    /// In one domain of this level, if that can be.
    Preferred(&'static str),
}

/// A gang of `size` pods.
pub(super) fn group(name: &str, size: usize, topology: TopologyRequest) -> Value {
    let mut spec = json!({"minMember": size});
    match topology {
        TopologyRequest::Anywhere => {}
        TopologyRequest::Required(level) => spec["topology"] = json!({"required": level}),
        TopologyRequest::Preferred(level) => spec["topology"] = json!({"preferred": level}),
    }
    json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": name}, "spec": spec,
    })
}

/// A pod that belongs to a gang.
pub(super) fn member(mut pod: Value, group: &str) -> Value {
    pod["metadata"]["labels"] = json!({names::POD_GROUP: group});
    pod
}

/// The body of a binding.
pub(super) fn binding(pod: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": pod}, "target": {"apiVersion": "v1", "kind": "Node", "name": node},
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

/// The status of a pod that runs.
pub(super) fn running() -> Value {
    json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
    }})
}
