//! The device plugin on real and simulated kubelets: GPUs as counted resources, and nodes that change their mode.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod, ResourceQuota};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use octavo_lab::{Component, RealProgram};
use serde_json::{Value, json};

use crate::real_node::{lock_real_nodes, log_of, shell_pod};
use crate::testbed::{Testbed, claim, eventually};

const NODE: &str = "real-0";
const SIMULATED: [&str; 2] = ["dgx-h100-0", "dgx-h100-1"];
const RESOURCE: &str = "nvidia.com/gpu";
const LIST_GPUS: &str = "ls /dev/nvidia[0-9]*";

/// Sets labels of a node; null removes one.
async fn label(testbed: &Testbed, node: &str, labels: Value) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let patch = json!({"metadata": {"labels": labels}});
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// How many GPUs pods can have on a node.
async fn allocatable(testbed: &Testbed, node: &str) -> Option<String> {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let status = nodes.get(node).await.ok()?.status?;
    Some(status.allocatable?.get(RESOURCE)?.0.clone())
}

async fn wait_until_allocatable(testbed: &Testbed, node: &str, count: &str) {
    eventually(&format!("{node} has {count} of {RESOURCE}"), || async {
        (allocatable(testbed, node).await? == count).then_some(())
    })
    .await;
}

async fn wait_until_without_gpus(testbed: &Testbed, node: &str) {
    eventually("the node's slices have no GPUs", || async {
        let slices = testbed.slices_of(node).await;
        let gpus = slices.iter().filter(|slice| slice.spec.driver == "gpu.nvidia.com");
        let devices = gpus.flat_map(|slice| slice.spec.devices.iter().flatten());
        (devices.count() == 0).then_some(())
    })
    .await;
}

/// A pod that asks for GPUs by number, and prints its device nodes.
fn counting_pod(name: &str, count: u32) -> Value {
    let mut pod = shell_pod(name, NODE, LIST_GPUS, &[]);
    let resources = json!({"limits": {RESOURCE: count.to_string()}});
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

fn gpus(log: &str) -> usize {
    log.lines().filter(|line| line.starts_with("/dev/nvidia")).count()
}

async fn restart_kubelet(testbed: &Testbed) {
    let old = testbed.lab.real_process(NODE, RealProgram::Kubelet);
    testbed.lab.kill_real(NODE, RealProgram::Kubelet).await;
    eventually("the kubelet runs again", || async {
        let now = testbed.lab.real_process(NODE, RealProgram::Kubelet)?;
        (Some(now) != old).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_kubelet_counts_gpus_and_the_node_changes_its_mode_without_giving_one_twice() {
    let Some(_guard) = lock_real_nodes().await else { return };
    let testbed = Testbed::up_real("1:dgx-h100").await;
    eventually("the node publishes", || testbed.device(NODE, "gpu-0")).await;

    // A prepared claim is waited for.
    testbed.create::<ResourceClaim>(claim("claimed", &json!([]))).await;
    let log = log_of(&testbed, shell_pod("claimed", NODE, LIST_GPUS, &["claimed"])).await;
    assert_eq!(gpus(&log), 1, "{log}");
    label(&testbed, NODE, json!({"octavo.dev/mode": "device-plugin"})).await;
    wait_until_without_gpus(&testbed, NODE).await;
    testbed.wait_until_event("ModeWaits", "1 claims have GPUs: default/claimed").await;
    assert!(allocatable(&testbed, NODE).await.is_none_or(|count| count == "0"));
    testbed.delete_pod("claimed").await;
    wait_until_allocatable(&testbed, NODE, "8").await;

    let log = log_of(&testbed, counting_pod("counted", 2)).await;
    assert_eq!(gpus(&log), 2, "{log}");

    // A kubelet that starts again knows its plugins and pods.
    restart_kubelet(&testbed).await;
    wait_until_allocatable(&testbed, NODE, "8").await;
    let log = log_of(&testbed, counting_pod("six", 6)).await;
    assert_eq!(gpus(&log), 6, "{log}");
    testbed.create::<Pod>(counting_pod("ninth", 1)).await;
    testbed.wait_until_unschedulable("ninth").await;
    testbed.delete_pod("ninth").await;

    // A pod of the plugin is waited for, too.
    label(&testbed, NODE, json!({"octavo.dev/mode": null})).await;
    wait_until_allocatable(&testbed, NODE, "0").await;
    testbed.delete_pod("six").await;
    testbed
        .wait_until_event("ModeWaits", "1 pods have GPUs of a device plugin: default/counted")
        .await;
    restart_kubelet(&testbed).await;
    log_of(&testbed, shell_pod("later", NODE, "true", &[])).await;
    testbed.wait_until_running("counted").await;
    assert!(testbed.device(NODE, "gpu-0").await.is_none(), "a GPU would be given twice");
    testbed.delete_pod("counted").await;
    eventually("the node publishes again", || testbed.device(NODE, "gpu-0")).await;

    // The same pod now has its GPU by a claim that the scheduler makes. Kubelets before 1.36 do not know such claims.
    if std::env::var_os("OCTAVO_LAB_KUBELET").is_some() {
        return;
    }
    let log = log_of(&testbed, counting_pod("by-claim", 1)).await;
    assert_eq!(gpus(&log), 1, "{log}");
    testbed.delete_pod("by-claim").await;
}

/// A pod that asks for GPUs by number, on a simulated node.
fn simulated_pod(name: &str, node: &str, count: u32) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{
                "name": "main",
                "image": "ubuntu:24.04",
                "resources": {"limits": {RESOURCE: count.to_string()}},
            }],
        },
    })
}

/// Creates such a pod, and returns the GPUs that its container has.
async fn gpus_of(testbed: &Testbed, name: &str, node: &str, count: u32) -> BTreeSet<String> {
    testbed.create::<Pod>(simulated_pod(name, node, count)).await;
    let pod = testbed.wait_until_running(name).await;
    testbed.container(node, &pod, "main").gpus().into_iter().collect()
}

/// Kills the process of all simulated kubelets and starts it again.
async fn restart_kubelets(testbed: &Testbed, node: &str, count: &str) {
    testbed.lab.kill(Component::Kubelets).await;
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let old = nodes.get(node).await.unwrap().resource_version();
    testbed.lab.start(Component::Kubelets).await.unwrap();
    // Until the plugin has registered again, a kubelet has no devices and refuses pods that ask for some.
    eventually(&format!("the new kubelet of {node} has {count} GPUs"), || async {
        let is_new = nodes.get(node).await.ok()?.resource_version() != old;
        (is_new && allocatable(testbed, node).await? == count).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simulated_kubelets_count_gpus_and_nodes_of_both_modes_serve_the_same_pods() {
    let testbed = Testbed::up("dgx-h100=2").await;
    let [counting, claiming] = SIMULATED;
    eventually("the node publishes", || testbed.device(counting, "gpu-0")).await;
    label(&testbed, counting, json!({"octavo.dev/mode": "device-plugin"})).await;
    wait_until_allocatable(&testbed, counting, "8").await;
    wait_until_without_gpus(&testbed, counting).await;
    let mut given = gpus_of(&testbed, "counted", counting, 2).await;
    assert_eq!(given.len(), 2, "{given:?}");

    // A kubelet that starts again knows its pods, and gives no GPU twice.
    restart_kubelets(&testbed, counting, "8").await;
    testbed.wait_until_running("counted").await;
    given.extend(gpus_of(&testbed, "six", counting, 6).await);
    assert_eq!(given.len(), 8, "{given:?}");
    testbed.create::<Pod>(simulated_pod("ninth", counting, 1)).await;
    testbed.wait_until_unschedulable("ninth").await;
    testbed.delete_pod("ninth").await;

    // The change of the mode waits for the pod, and so it does after restarts of kubelet and agent.
    label(&testbed, counting, json!({"octavo.dev/mode": null})).await;
    wait_until_allocatable(&testbed, counting, "0").await;
    testbed.delete_pod("six").await;
    testbed
        .wait_until_event("ModeWaits", "1 pods have GPUs of a device plugin: default/counted")
        .await;
    testbed.lab.kill(Component::Kubelets).await;
    testbed.lab.kill(Component::Agents).await;
    testbed.lab.start(Component::Agents).await.unwrap();
    let uid = testbed.pods().get("counted").await.unwrap().uid().unwrap();
    testbed
        .wait_until_event("ModeWaits", &format!("1 pods have GPUs of a device plugin: UID {uid}"))
        .await;
    testbed.lab.start(Component::Kubelets).await.unwrap();
    let mut later = simulated_pod("later", counting, 0);
    later["spec"]["containers"][0]["resources"] = json!({});
    testbed.create::<Pod>(later).await;
    testbed.wait_until_running("later").await;
    assert!(testbed.device(counting, "gpu-0").await.is_none(), "a GPU would be given twice");
    testbed.delete_pod("counted").await;
    eventually("the node publishes again", || testbed.device(counting, "gpu-0")).await;
    assert_eq!(gpus_of(&testbed, "by-claim", counting, 1).await.len(), 1);
    testbed.delete_pod("by-claim").await;

    // The same pod runs on nodes of both modes.
    label(&testbed, counting, json!({"octavo.dev/mode": "device-plugin"})).await;
    wait_until_allocatable(&testbed, counting, "8").await;
    for (name, node) in [("plugin-pod", counting), ("claim-pod", claiming)] {
        assert_eq!(gpus_of(&testbed, name, node, 1).await.len(), 1, "{name}");
    }
    let mut anywhere = simulated_pod("anywhere", counting, 1);
    anywhere["spec"]["nodeSelector"] = json!({});
    testbed.create::<Pod>(anywhere).await;
    testbed.wait_until_running("anywhere").await;
    for name in ["later", "plugin-pod", "claim-pod", "anywhere"] {
        testbed.delete_pod(name).await;
    }
}

/// Pods count against a quota where a device plugin serves them, and where the scheduler makes a claim for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_of_gpus_holds_in_both_modes() {
    let testbed = Testbed::up("dgx-h100=2").await;
    let [counting, claiming] = SIMULATED;
    eventually("the node publishes", || testbed.device(counting, "gpu-0")).await;
    label(&testbed, counting, json!({"octavo.dev/mode": "device-plugin"})).await;
    wait_until_allocatable(&testbed, counting, "8").await;
    // A quota of four GPUs, and a pod with one on a node of any mode.
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/operator/pod.yaml");
    testbed.octavo_ok(&["lab", "kubectl", "apply", "-f", example]);
    testbed.wait_until_running("counted").await;
    let quotas: Api<ResourceQuota> = Api::default_namespaced(testbed.client.clone());
    let used = |wanted: &'static str| {
        let quotas = quotas.clone();
        async move {
            eventually(&format!("the quota counts {wanted}"), || async {
                let used = quotas.get("gpus").await.ok()?.status?.used?;
                (used.get("requests.nvidia.com/gpu")?.0 == wanted).then_some(())
            })
            .await;
        }
    };
    used("1").await;
    for (name, node) in [("plugin-pod", counting), ("claim-pod", claiming)] {
        assert_eq!(gpus_of(&testbed, name, node, 3).await.len(), 3, "{name}");
        used("4").await;
        for node in SIMULATED {
            let more = serde_json::from_value(simulated_pod("more", node, 1)).unwrap();
            let refused = testbed.pods().create(&PostParams::default(), &more).await.unwrap_err();
            assert!(refused.to_string().contains("exceeded quota: gpus"), "{refused}");
        }
        testbed.delete_pod(name).await;
        used("1").await;
    }
}
