//! The device plugin on a real kubelet: GPUs as counted resources, and nodes that change their mode.

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use octavo_lab::RealProgram;
use serde_json::{Value, json};

use crate::real_node::{lock_real_nodes, log_of, shell_pod};
use crate::testbed::{Testbed, claim, eventually};

const NODE: &str = "real-0";
const RESOURCE: &str = "nvidia.com/gpu";
const LIST_GPUS: &str = "ls /dev/nvidia[0-9]*";

/// Sets labels of the node; null removes one.
async fn label(testbed: &Testbed, labels: Value) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let patch = json!({"metadata": {"labels": labels}});
    nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// How many of a resource pods can have on the node.
async fn allocatable(testbed: &Testbed, resource: &str) -> Option<String> {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let status = nodes.get(NODE).await.ok()?.status?;
    Some(status.allocatable?.get(resource)?.0.clone())
}

async fn wait_until_allocatable(testbed: &Testbed, resource: &str, count: &str) {
    eventually(&format!("the node has {count} of {resource}"), || async {
        (allocatable(testbed, resource).await? == count).then_some(())
    })
    .await;
}

async fn wait_until_without_gpus(testbed: &Testbed) {
    eventually("the node's slices have no GPUs", || async {
        let slices = testbed.slices_of(NODE).await;
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

/// Waits for an event with this reason and this part of its note.
async fn event(testbed: &Testbed, reason: &str, part: &str) {
    eventually(&format!("an event {reason} with {part:?}"), || async {
        let events: Api<Event> = Api::all(testbed.client.clone());
        let found = events.list(&ListParams::default()).await.ok()?.items;
        let is_it = |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event.message.as_ref().is_some_and(|note| note.contains(part))
        };
        found.iter().any(is_it).then_some(())
    })
    .await;
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
    label(&testbed, json!({"octavo.dev/mode": "device-plugin"})).await;
    wait_until_without_gpus(&testbed).await;
    event(&testbed, "ModeWaits", "1 claims have GPUs: default/claimed").await;
    assert!(allocatable(&testbed, RESOURCE).await.is_none_or(|count| count == "0"));
    testbed.delete_pod("claimed").await;
    wait_until_allocatable(&testbed, RESOURCE, "8").await;

    let log = log_of(&testbed, counting_pod("counted", 2)).await;
    assert_eq!(gpus(&log), 2, "{log}");

    // A kubelet that starts again knows its plugins and pods.
    restart_kubelet(&testbed).await;
    wait_until_allocatable(&testbed, RESOURCE, "8").await;
    let log = log_of(&testbed, counting_pod("six", 6)).await;
    assert_eq!(gpus(&log), 6, "{log}");
    testbed.create::<Pod>(counting_pod("ninth", 1)).await;
    testbed.wait_until_unschedulable("ninth").await;
    testbed.delete_pod("ninth").await;

    // A pod of the plugin is waited for, too.
    label(&testbed, json!({"octavo.dev/mode": null})).await;
    wait_until_allocatable(&testbed, RESOURCE, "0").await;
    testbed.delete_pod("six").await;
    event(&testbed, "ModeWaits", "1 pods have GPUs of a device plugin: default/counted").await;
    restart_kubelet(&testbed).await;
    log_of(&testbed, shell_pod("later", NODE, "true", &[])).await;
    testbed.wait_until_running("counted").await;
    assert!(testbed.device(NODE, "gpu-0").await.is_none(), "a GPU would be given twice");
    testbed.delete_pod("counted").await;
    eventually("the node publishes again", || testbed.device(NODE, "gpu-0")).await;

    // The same pod now has its GPU by a claim that the scheduler makes.
    let log = log_of(&testbed, counting_pod("by-claim", 1)).await;
    assert_eq!(gpus(&log), 1, "{log}");
    testbed.delete_pod("by-claim").await;
}
