//! The objects of the benchmark: nodes, pods, priorities, gangs, bindings, events.

use octavo_api::names;
use serde_json::{Value, json};

use super::contender::Contender;

/// GPUs of a node.
pub(super) const GPUS: usize = 8;
/// Node labels of the topology, the widest first, with how many nodes a domain has.
pub(super) const LEVELS: [(&str, usize); 2] =
    [("topology.octavo.dev/block", 128), ("topology.octavo.dev/rack", 16)];

/// How a node offers its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gpus {
    /// It has none.
    None,
    /// As an extended resource of the node, like device plugins.
    Plain,
    /// As devices in a slice.
    Dra,
    /// The same, and as many NICs of another driver, one for each PCIe root.
    DraWithNics,
    /// As devices in slices with every MIG device that they can be cut into.
    Mig,
}

impl Gpus {
    /// Whether they are devices.
    pub(super) fn is_dra(self) -> bool {
        matches!(self, Self::Dra | Self::DraWithNics | Self::Mig)
    }
}

/// The request of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodRequest {
    /// Processor and memory only.
    Plain,
    /// Also this many GPUs by `nvidia.com/gpu`, served by a device plugin or by a claim.
    Gpus(usize),
    /// A claim made from the template of this name.
    Template(&'static str),
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
    if gpus != Gpus::None {
        // Octavo's controller counts such nodes for its budgets.
        labels[names::LABEL_GPU_PRESENT] = "true".into();
    }
    if contender.is_octavo() {
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
        PodRequest::Template(template) => {
            container["resources"]["claims"] = json!([{"name": "gpu"}]);
            pod["spec"]["resourceClaims"] =
                json!([{"name": "gpu", "resourceClaimTemplateName": template}]);
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

/// The status of a pod that runs.
pub(super) fn running() -> Value {
    json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
    }})
}

/// The event that a scheduler writes for a bound pod.
pub(super) fn scheduled_event(pod: &str, pod_uid: &str, node: &str) -> Value {
    let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"generateName": format!("{pod}-")},
        "eventTime": time,
        "reportingController": "raw", "reportingInstance": "raw-0",
        "action": "Binding", "type": "Normal", "reason": "Scheduled",
        "note": format!("Successfully assigned default/{pod} to {node}"),
        "regarding": {
            "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": pod, "uid": pod_uid,
        },
    })
}
