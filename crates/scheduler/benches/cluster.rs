//! Objects of the benchmarks as the watches deliver them. Reading them is no part of the deciding
//! thread.

use std::sync::Arc;

use octavo_kube_io::objects::{Change, Delta, Node, Pod, WatchedObject};
use octavo_scheduler::bind::{OpKind, WriteOp};
use serde_json::{Value, json};

/// GPUs of a node.
pub(crate) const GPUS: usize = 8;

/// A node with eight GPUs, in racks of eight nodes.
pub(crate) fn node(number: usize) -> Change {
    let name = format!("n{number:04}");
    let gpus = GPUS.to_string();
    let amounts = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": gpus});
    let node = json!({
        "metadata": {"name": name, "uid": name, "labels": {
            "kubernetes.io/hostname": name, "octavo.dev/scheduler": "octavo",
            "topology.octavo.dev/rack": format!("r{}", number / 8)}},
        "status": {"allocatable": amounts, "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    Change::Node(Delta::Upsert(Arc::new(Node::from_value(node).expect("a node"))))
}

/// A waiting pod. Its UID is its name.
pub(crate) fn pod(name: &str, cpu: usize, gpus: usize) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "team", "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedulerName": "octavo", "containers": [{"name": "main",
            "resources": {"limits": {}, "requests": {"cpu": cpu.to_string()}}}]},
        "status": {"phase": "Pending"},
    });
    if gpus > 0 {
        pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] =
            json!(gpus.to_string());
    }
    pod
}

/// The pod as a member of a gang.
pub(crate) fn member(mut pod: Value, gang: &str) -> Value {
    pod["metadata"]["labels"] = json!({"octavo.dev/pod-group": gang});
    pod
}

/// A gang of `size` pods.
pub(crate) fn gang(name: &str, size: usize) -> Change {
    let group = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team", "uid": name, "generation": 1},
        "spec": {"minMember": size},
    });
    let group = Arc::new(WatchedObject::from_value(group).expect("a group"));
    Change::Object(Delta::Upsert(group))
}

/// The pod on a node, in a phase.
pub(crate) fn placed(mut pod: Value, node: &str, phase: &str) -> Value {
    pod["spec"]["nodeName"] = json!(node);
    pod["status"]["phase"] = json!(phase);
    pod
}

/// The event about a pod.
pub(crate) fn event(pod: Value) -> Change {
    Change::Pod(Delta::Upsert(Arc::new(Pod::from_value(pod).expect("a pod"))))
}

/// UID of the pod that an operation binds, and the node.
pub(crate) fn binding(op: &WriteOp) -> (&str, &str) {
    let OpKind::Bind(bind) = &op.kind else { panic!("a binding") };
    (&*bind.pod.uid, &*bind.node)
}
