//! Static MIG: the node's label names the layout of its GPUs' MIG devices.

use std::collections::BTreeMap;
use std::fs;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use octavo_gpu::Inventory;
use octavo_gpu::nvml::{Nvml, find_library};
use octavo_lab::Component;
use serde_json::{Value, json};

use crate::mig::mig_claim;
use crate::testbed::{Testbed, eventually, pod};

const NODE: &str = "dgx-h100-0";

/// A layout of a file: two halves on the first two GPUs, and no MIG on the others.
const FILE: &str = "version: v1
mig-configs:
  two-halves:
  - {devices: all, mig-enabled: false}
  - {devices: [0, 1], device-filter: \"0x233010DE\", mig-enabled: true, mig-devices: {3g.40gb: 2}}
";

async fn label(testbed: &Testbed, node: &str, layout: Option<&str>) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let patch = json!({"metadata": {"labels": {"nvidia.com/mig.config": layout}}});
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn wait_until_state(testbed: &Testbed, node: &str, wanted: Option<&str>) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    eventually(&format!("the state is {wanted:?}"), || async {
        let labels = nodes.get(node).await.ok()?.metadata.labels.unwrap_or_default();
        let state = labels.get("nvidia.com/mig.config.state").map(String::as_str);
        (state == wanted).then_some(())
    })
    .await;
}

/// The published devices by kind: `gpu`, or the profile.
async fn devices(testbed: &Testbed, node: &str) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for slice in testbed.slices_of(node).await {
        for device in slice.spec.devices.into_iter().flatten() {
            let attributes = device.attributes.unwrap_or_default();
            let profile = attributes.get("profile").and_then(|profile| profile.string.clone());
            *kinds.entry(profile.unwrap_or_else(|| "gpu".to_owned())).or_default() += 1;
        }
    }
    kinds
}

async fn wait_until_devices(testbed: &Testbed, node: &str, wanted: &[(&str, usize)]) {
    let wanted: BTreeMap<String, usize> =
        wanted.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
    eventually(&format!("the devices are {wanted:?}"), || async {
        (devices(testbed, node).await == wanted).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gpus_get_the_mig_layout_of_their_node_each_once_nothing_uses_what_has_to_go() {
    let testbed = Testbed::up("dgx-h100=1").await;
    let file = testbed.node(NODE).join("mig.yaml");
    fs::write(&file, FILE).unwrap();
    testbed
        .configure_agent(NODE, &format!("migManager: true\nmigConfigFile: {}", file.display()))
        .await;
    wait_until_devices(&testbed, NODE, &[("gpu", 8)]).await;
    label(&testbed, NODE, Some("all-balanced")).await;
    wait_until_state(&testbed, NODE, Some("success")).await;
    let balanced = [("1g.10gb", 16), ("2g.20gb", 8), ("3g.40gb", 8)];
    wait_until_devices(&testbed, NODE, &balanced).await;

    // A pod keeps its instance, and its GPU waits. The others change at once.
    let claim: Value = mig_claim("half", &["3g.40gb"]);
    testbed.create::<ResourceClaim>(claim).await;
    testbed.create::<Pod>(pod("half", "half")).await;
    testbed.wait_until_running("half").await;
    label(&testbed, NODE, Some("all-1g.10gb")).await;
    testbed.wait_until_event("MigLayoutWaits", "waits for default/half").await;
    wait_until_state(&testbed, NODE, Some("pending")).await;
    // Seven GPUs with seven devices each. Of the eighth the two that fit are offered.
    wait_until_devices(&testbed, NODE, &[("1g.10gb", 51)]).await;

    // Killed at any time, it goes on.
    testbed.lab.kill(Component::Agents).await;
    testbed.lab.start(Component::Agents).await.unwrap();
    wait_until_state(&testbed, NODE, Some("pending")).await;
    testbed.delete_pod("half").await;
    testbed.claims().delete("half", &DeleteParams::default()).await.unwrap();
    wait_until_state(&testbed, NODE, Some("success")).await;
    wait_until_devices(&testbed, NODE, &[("1g.10gb", 56)]).await;

    label(&testbed, NODE, Some("two-halves")).await;
    wait_until_devices(&testbed, NODE, &[("3g.40gb", 4), ("gpu", 6)]).await;
    wait_until_state(&testbed, NODE, Some("success")).await;

    // What is unknown or impossible leaves the last layout in place.
    for (layout, reason) in
        [("halves", "is unknown"), ("all-9g.90gb", "has no MIG profile 9g.90gb")]
    {
        label(&testbed, NODE, Some(layout)).await;
        testbed.wait_until_event("MigLayoutFailed", reason).await;
        wait_until_state(&testbed, NODE, Some("failed")).await;
    }
    wait_until_devices(&testbed, NODE, &[("3g.40gb", 4), ("gpu", 6)]).await;
    label(&testbed, NODE, Some("all-disabled")).await;
    wait_until_state(&testbed, NODE, Some("success")).await;
    wait_until_devices(&testbed, NODE, &[("gpu", 8)]).await;

    // A GPU of dynamic MIG is refused by name.
    crate::mig::opt_in(&testbed, NODE, "7").await;
    label(&testbed, NODE, Some("all-balanced")).await;
    testbed.wait_until_event("MigLayoutFailed", "GPU 7 is under dynamic MIG").await;
    wait_until_state(&testbed, NODE, Some("failed")).await;
    label(&testbed, NODE, None).await;
    wait_until_state(&testbed, NODE, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_before_hopper_is_reset_once_nothing_else_has_its_driver_open() {
    let node = "dgx-a100-80-0";
    let testbed = Testbed::up("dgx-a100-80=1").await;
    let file = testbed.node(node).join("mig.yaml");
    let layout = "[{devices: [2], mig-enabled: true, mig-devices: {3g.40gb: 2}}]";
    fs::write(&file, format!("version: v1\nmig-configs:\n  one: {layout}\n  two: {layout}\n"))
        .unwrap();
    let settings = format!("migManager: true\nmigConfigFile: {}", file.display());
    testbed.configure_agent(node, &settings).await;
    wait_until_devices(&testbed, node, &[("gpu", 8)]).await;
    testbed.pod_with_claim("busy", &json!([])).await;
    let before = testbed.wait_until_running("busy").await;

    // Another program has the driver open, as DCGM would. The mode does not stay pending.
    let library = find_library(&testbed.node(node).join("driver")).unwrap();
    let other = Nvml::open(&library, &testbed.node(node).join("sys")).unwrap();
    label(&testbed, node, Some("one")).await;
    testbed.wait_until_event("MigLayoutFailed", "GPU 2 is currently in use").await;
    wait_until_state(&testbed, node, Some("failed")).await;
    let modes = || {
        let gpus = Inventory::read(&other).unwrap().gpus;
        gpus.iter().map(|gpu| gpu.mig.unwrap()).collect::<Vec<_>>()
    };
    assert!(modes().iter().all(|mode| !mode.enabled && !mode.pending), "{:?}", modes());
    drop(other);

    // Another name is tried at once.
    label(&testbed, node, Some("two")).await;
    wait_until_state(&testbed, node, Some("success")).await;
    wait_until_devices(&testbed, node, &[("3g.40gb", 2), ("gpu", 7)]).await;
    let after = testbed.wait_until_running("busy").await;
    assert_eq!(after.metadata.uid, before.metadata.uid);

    // The way back is a reset, too.
    label(&testbed, node, Some("all-disabled")).await;
    wait_until_state(&testbed, node, Some("success")).await;
    wait_until_devices(&testbed, node, &[("gpu", 8)]).await;
}

/// Waits until pods can have so many of these resources on the node.
async fn wait_until_allocatable(testbed: &Testbed, wanted: &[(&str, &str)]) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    eventually(&format!("the node has {wanted:?}"), || async {
        let allocatable = nodes.get(NODE).await.ok()?.status?.allocatable?;
        let has = |(resource, count): &(&str, &str)| {
            allocatable.get(&format!("nvidia.com/{resource}")).is_some_and(|it| it.0 == *count)
        };
        wanted.iter().all(has).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mig_devices_of_the_device_plugin_change_once_no_pod_has_them() {
    let testbed = Testbed::up("dgx-h100=1").await;
    let settings =
        "migManager: true\nmode: device-plugin\ndevicePlugin: {flags: {mig-strategy: mixed}}";
    testbed.configure_agent(NODE, settings).await;
    wait_until_allocatable(&testbed, &[("gpu", "8")]).await;
    label(&testbed, NODE, Some("all-balanced")).await;
    wait_until_state(&testbed, NODE, Some("success")).await;
    let balanced =
        [("gpu", "0"), ("mig-1g.10gb", "16"), ("mig-2g.20gb", "8"), ("mig-3g.40gb", "8")];
    wait_until_allocatable(&testbed, &balanced).await;

    let mut half = pod("half", "half");
    half["spec"].as_object_mut().unwrap().remove("resourceClaims");
    half["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/mig-3g.40gb": "1"}});
    testbed.create::<Pod>(half).await;
    testbed.wait_until_running("half").await;
    label(&testbed, NODE, Some("all-disabled")).await;
    testbed.wait_until_event("MigLayoutWaits", "waits for default/half").await;
    wait_until_allocatable(&testbed, &[("gpu", "7"), ("mig-3g.40gb", "0")]).await;
    wait_until_state(&testbed, NODE, Some("pending")).await;
    testbed.delete_pod("half").await;
    wait_until_state(&testbed, NODE, Some("success")).await;
    wait_until_allocatable(&testbed, &[("gpu", "8")]).await;
}

/// Under `single` MIG devices are counted as GPUs, as long as they are alike.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_mig_devices_are_counted_as_gpus_and_different_ones_are_an_event() {
    let testbed = Testbed::up("dgx-h100=1").await;
    let settings =
        "migManager: true\nmode: device-plugin\ndevicePlugin: {flags: {mig-strategy: single}}";
    testbed.configure_agent(NODE, settings).await;
    wait_until_allocatable(&testbed, &[("gpu", "8")]).await;
    label(&testbed, NODE, Some("all-3g.40gb")).await;
    wait_until_state(&testbed, NODE, Some("success")).await;
    wait_until_allocatable(&testbed, &[("gpu", "16")]).await;

    let mut half = pod("half", "half");
    half["spec"].as_object_mut().unwrap().remove("resourceClaims");
    half["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    testbed.create::<Pod>(half).await;
    let running = testbed.wait_until_running("half").await;
    let container = testbed.container(NODE, &running, "main");
    assert_eq!(container.device_nodes("/dev/nvidia-caps/"), 2, "a MIG device");
    testbed.delete_pod("half").await;

    label(&testbed, NODE, Some("all-balanced")).await;
    testbed.wait_until_event("MigLayoutMismatched", "").await;
    label(&testbed, NODE, Some("all-1g.10gb")).await;
    wait_until_state(&testbed, NODE, Some("success")).await;
    wait_until_allocatable(&testbed, &[("gpu", "56")]).await;
}
