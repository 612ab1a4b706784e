//! Objects of NVIDIA's stack, HAMi and KAI, and a cluster of them.

use serde_json::{Value, json};

use crate::Options;
use crate::plan::{Cluster, Kind, MigrationPlan, NodePlan, Step, plan, plan_text};

/// A cluster of these objects. Kinds are taken from the objects.
pub(super) fn cluster(objects: &[Value]) -> Cluster {
    let mut cluster = Cluster { serves_dra: true, ..Cluster::default() };
    for object in objects {
        let kind = object["kind"].as_str().unwrap();
        match Kind::ALL.iter().find(|known| known.kind == kind) {
            Some(kind) => cluster.add(*kind, object.clone()),
            None if kind == "ConfigMap" => cluster.add_config_map(object.clone()),
            None => panic!("{kind} is not read"),
        }
    }
    cluster
}

pub(super) fn planned(objects: &[Value]) -> MigrationPlan {
    plan(&cluster(objects), &Options::default())
}

pub(super) fn node_plan<'a>(plan: &'a MigrationPlan, name: &str) -> &'a NodePlan {
    plan.nodes.iter().find(|node| node.name == name).unwrap()
}

/// The commands of all steps, one a line.
pub(super) fn commands(steps: &[Step]) -> String {
    let commands = steps.iter().flat_map(|step| &step.commands);
    commands.fold(String::new(), |text, command| text + command + "\n")
}

/// A node with labels and allocatable resources.
pub(super) fn node(name: &str, labels: Value, allocatable: Value) -> Value {
    let mut all = json!({"nvidia.com/gpu.present": "true"});
    all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    json!({
        "kind": "Node",
        "metadata": {"name": name, "labels": all},
        "status": {"allocatable": allocatable},
    })
}

/// A pod on a node with one container that has limits.
pub(super) fn pod(name: &str, node: &str, limits: Value) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "cuda", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    })
}

/// A `DaemonSet` of the GPU Operator, and its pod on each of the nodes.
pub(super) fn operand(name: &str, container: Value, owner: &str, nodes: &[&str]) -> Vec<Value> {
    let spec = json!({"containers": [container]});
    let mut objects = vec![json!({
        "kind": "DaemonSet",
        "metadata": {
            "name": name,
            "namespace": "gpu-operator",
            "labels": {"app": name},
            "ownerReferences": [{"kind": owner, "name": "the-owner", "controller": true}],
        },
        "spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    })];
    for node in nodes {
        let mut spec = spec.clone();
        spec["nodeName"] = (*node).into();
        objects.push(json!({
            "kind": "Pod",
            "metadata": {
                "name": format!("{name}-{node}"),
                "namespace": "gpu-operator",
                "ownerReferences": [{"kind": "DaemonSet", "name": name, "controller": true}],
            },
            "spec": spec,
            "status": {"phase": "Running"},
        }));
    }
    objects
}

/// A cluster with the GPU Operator's device plugin, feature discovery, MIG manager, validator, driver and DCGM exporter.
pub(super) fn gpu_operator(nodes: &[&str]) -> Vec<Value> {
    let named = |name: &str| json!({"name": name, "image": "nvcr.io/nvidia/x"});
    let plugin = json!({
        "name": "nvidia-device-plugin",
        "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
        "env": [
            {"name": "PASS_DEVICE_SPECS", "value": "true"},
            {"name": "FAIL_ON_INIT_ERROR", "value": "true"},
            {"name": "DEVICE_LIST_STRATEGY", "value": "envvar"},
            {"name": "MPS_ROOT", "value": "/run/nvidia/mps"},
        ],
    });
    let mut objects = vec![json!({
        "kind": "ClusterPolicy",
        "metadata": {
            "name": "cluster-policy",
            "annotations": {
                "meta.helm.sh/release-name": "gpu-operator",
                "meta.helm.sh/release-namespace": "gpu-operator",
            },
        },
        "spec": {"driver": {"enabled": true}, "devicePlugin": {"enabled": true}},
    })];
    for (name, container) in [
        ("nvidia-device-plugin-daemonset", plugin),
        ("gpu-feature-discovery", named("gpu-feature-discovery")),
        ("nvidia-mig-manager", named("nvidia-mig-manager")),
        ("nvidia-operator-validator", named("nvidia-operator-validator")),
        ("nvidia-driver-daemonset", named("nvidia-driver-ctr")),
        ("nvidia-dcgm-exporter", named("nvidia-dcgm-exporter")),
    ] {
        objects.extend(operand(name, container, "ClusterPolicy", nodes));
    }
    objects
}

/// A claim with a device on a node, and its consumer.
pub(super) fn claim(name: &str, node: &str, pod: Option<&str>) -> Value {
    let consumers: Vec<Value> =
        pod.iter().map(|pod| json!({"resource": "pods", "name": pod, "uid": "u"})).collect();
    json!({
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team-a"},
        "status": {
            "allocation": {"devices": {"results": [
                {"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": "gpu-0"},
            ]}},
            "reservedFor": consumers,
        },
    })
}

/// A slice of a node with eight GPUs.
pub(super) fn slice(node: &str) -> Value {
    let devices: Vec<Value> = (0..8).map(|index| json!({"name": format!("gpu-{index}")})).collect();
    json!({
        "kind": "ResourceSlice",
        "metadata": {"name": format!("{node}-gpu")},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": node, "pool": {"name": node}, "devices": devices},
    })
}

/// A `ConfigMap` of the GPU Operator's namespace with one file.
pub(super) fn config_map(name: &str, file: &str, content: &str) -> Value {
    json!({
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "gpu-operator"},
        "data": {file: content},
    })
}

/// The lines of a plan's text under a title.
pub(super) fn section(plan: &MigrationPlan, title: &str) -> String {
    let text = plan_text(plan);
    let mut sections = text.split("\n\n").filter_map(|section| section.split_once('\n'));
    let found = sections.find(|(first, _)| *first == title);
    found.map(|(_, rest)| rest.trim_end().to_owned()).unwrap_or_default()
}
