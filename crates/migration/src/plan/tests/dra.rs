use serde_json::{Value, json};

use super::fixtures::{
    claim, commands, gpu_operator, node, node_plan, operand, planned, pod, slice,
};
use crate::plan::{Component, Mode};

const HELM: &str = "dra-driver-nvidia-gpu";

/// The chart of NVIDIA's DRA driver with its pod on a node.
fn driver(node: &str) -> Vec<Value> {
    let container = json!({
        "name": "gpus",
        "image": "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:v0.5.0",
        "command": ["bash", "-c"],
        "args": ["cp a b\ngpu-kubelet-plugin -v $(LOG_VERBOSITY)"],
    });
    let mut objects = operand("dra-driver-nvidia-gpu-kubelet-plugin", container, "None", &[node]);
    let annotations =
        json!({"meta.helm.sh/release-name": HELM, "meta.helm.sh/release-namespace": "nvidia"});
    objects[0]["metadata"]["ownerReferences"] = json!([]);
    objects[0]["metadata"]["annotations"] = annotations.clone();
    for class in ["gpu.nvidia.com", "mig.nvidia.com"] {
        let metadata = json!({"name": class, "annotations": annotations});
        objects.push(json!({"kind": "DeviceClass", "metadata": metadata}));
    }
    objects
}

fn user(name: &str, node: &str) -> Value {
    let mut pod = pod(name, node, json!({}));
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
    pod
}

#[test]
fn pods_with_claims_of_nvidias_driver_keep_running() {
    let mut objects = driver("a");
    objects.extend([node("a", json!({}), json!({})), slice("a"), user("train", "a")]);
    objects.extend([claim("train-gpu", "a", Some("train")), claim("kept", "a", None)]);
    let plan = planned(&objects);
    let node = node_plan(&plan, "a");
    assert_eq!((node.mode, node.reason.as_str()), (Mode::Dra, "its pods have claims"));
    assert_eq!(node.offers[0].by, "NVIDIA's DRA driver");
    assert_eq!(node.offers[0].devices, Some(8));
    assert_eq!(node.must_end.count, 0);
    assert!(plan.is_clear(), "{:?}", plan.obstacles);
    let line = "by its checkpoint; their pods keep running: claim team-a/kept, team-a/train";
    assert!(node.taken_over.iter().any(|it| it.ends_with(line)), "{:?}", node.taken_over);
    let steps = commands(&plan.steps);
    assert!(!steps.contains("kubectl drain"), "{steps}");
    let uninstall = steps.find(&format!("helm uninstall {HELM} --namespace nvidia")).unwrap();
    let install = steps.find("helm upgrade --install octavo").unwrap();
    assert!(uninstall < install, "{steps}");
    // They go with the release.
    assert!(!steps.contains("deviceClasses.enabled"), "{steps}");
}

#[test]
fn idle_nodes_of_nvidias_driver_are_clear() {
    let mut objects = driver("a");
    objects.extend([node("a", json!({}), json!({})), slice("a")]);
    // It holds nothing.
    let mut watching = claim("monitor", "a", Some("dcgm"));
    watching["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = true.into();
    objects.push(watching);
    let plan = planned(&objects);
    assert!(plan.is_clear(), "{:?}", plan.obstacles);
    assert_eq!(plan.nodes[0].ends, [Component::DraDriver]);
}

#[test]
fn classes_that_stay_are_left_to_their_owner() {
    let class = json!({"kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}});
    let definition = json!({
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "computedomains.resource.nvidia.com"},
    });
    let plan = planned(&[class, definition, node("a", json!({}), json!({}))]);
    let steps = commands(&plan.steps);
    assert!(steps.contains("--set 'deviceClasses.enabled=false'"), "{steps}");
    assert!(steps.contains("--set 'computeDomains.crds.install=false'"), "{steps}");
}

#[test]
fn the_operators_driver_is_ended_node_by_node() {
    let container = json!({"name": "gpus", "command": ["gpu-kubelet-plugin"]});
    let mut objects = operand("nvidia-dra-driver-kubelet-plugin", container, "GPUCluster", &["a"]);
    objects.extend([node("a", json!({}), json!({})), node("b", json!({}), json!({})), slice("a")]);
    let plan = planned(&objects);
    let steps = commands(&plan.steps);
    assert!(
        steps.contains("kubectl label node a nvidia.com/gpu.deploy.dra-driver=false --overwrite"),
        "{steps}"
    );
    let back = commands(&plan.way_back);
    assert!(back.contains("nvidia.com/gpu.deploy.dra-driver=true"), "{back}");
}

#[test]
fn a_resource_with_a_claim_of_its_own_is_of_no_device_plugin() {
    let mut objects = driver("a");
    let mut extended = pod("train", "a", json!({"nvidia.com/gpu": 1}));
    extended["status"]["extendedResourceClaimStatus"] = json!({"resourceClaimName": "c"});
    objects.extend([node("a", json!({}), json!({})), slice("a"), extended]);
    objects.push(claim("c", "a", Some("train")));
    let plan = planned(&objects);
    assert_eq!((plan.nodes[0].mode, plan.nodes[0].plugin_pods.count), (Mode::Dra, 0));
    assert_eq!(plan.nodes[0].claim_pods.names, ["team-a/train"]);
}

#[test]
fn a_server_without_claims_has_one_mode() {
    let mut objects = gpu_operator(&["a"]);
    objects.push(node("a", json!({}), json!({"nvidia.com/gpu": "8"})));
    let mut cluster = super::fixtures::cluster(&objects);
    cluster.serves_dra = false;
    let plan = crate::plan::plan(&cluster, &crate::Options::default());
    assert_eq!(plan.nodes[0].mode, Mode::DevicePlugin);
    assert!(plan.nodes[0].reason.contains("resource.k8s.io/v1"));
}

#[test]
fn nodes_of_virtual_machines_are_left_alone() {
    let labels = json!({"nvidia.com/gpu.workload.config": "vm-passthrough"});
    let mut passed = claim("vm", "b", Some("vm"));
    passed["status"]["allocation"]["devices"]["results"][0]["device"] = "gpu-vfio-0".into();
    let mut objects = driver("b");
    objects.extend([
        node("a", labels, json!({})),
        node("b", json!({}), json!({})),
        slice("b"),
        passed,
    ]);
    objects.extend([user("vm", "b"), node("c", json!({}), json!({}))]);
    let plan = planned(&objects);
    let moved: Vec<&str> =
        plan.nodes.iter().filter(|node| node.moves).map(|node| node.name.as_str()).collect();
    assert_eq!(moved, ["c"]);
    assert_eq!(plan.obstacles.len(), 2, "{:?}", plan.obstacles);
    assert!(
        plan.obstacles[0]
            .starts_with("node a is not served: its label nvidia.com/gpu.workload.config is vm-")
    );
    assert!(
        plan.obstacles[1].contains("a claim has its device gpu-vfio-0"),
        "{:?}",
        plan.obstacles
    );
    assert!(crate::plan::plan_text(&plan).contains("  b: not served, because"), "{plan:?}");
    let steps = commands(&plan.steps);
    assert!(!steps.contains("kubectl drain"), "{steps}");
    let kept = "# not `helm uninstall dra-driver-nvidia-gpu --namespace nvidia`: nodes that do not move have it (b); ";
    assert!(steps.contains(kept), "{steps}");
}

#[test]
fn daemons_of_compute_domains_are_distinguished() {
    let daemon = |command: &str| {
        json!({
            "kind": "DaemonSet",
            "metadata": {
                "name": "nvl", "namespace": "nvidia",
                "labels": {"resource.nvidia.com/computeDomain": "5f0a"},
            },
            "spec": {"template": {"spec": {"containers": [
                {"name": "compute-domain-daemon", "command": [command, "run"]},
            ]}}},
        })
    };
    let found = |command| planned(&[daemon(command)]).found.len();
    assert_eq!((found("compute-domain-daemon"), found("imex-daemon")), (1, 0));
}
