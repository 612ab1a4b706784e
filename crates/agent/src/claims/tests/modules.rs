//! Kernel modules of the driver that are not loaded, or are loaded again with other numbers; a driver that
//! is released.

use std::fs;

use serde_json::json;

use super::fixtures::Node;
use crate::testing::PROC_DEVICES;

fn set_modules(node: &Node, devices: &str) {
    fs::write(node.path("proc/devices"), devices).expect("writes");
}

#[tokio::test]
async fn a_missing_module_is_named_until_it_is_loaded() {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate("a", &["gpu-0"]);
    for (device, module) in [("nvidia-uvm", "nvidia-uvm"), ("nvidia", "nvidia")] {
        set_modules(&node, &PROC_DEVICES.replace(&format!(" {device}\n"), " other\n"));
        let refusal = claims.prepare(&claim).await.expect_err("lacks a module");
        assert_eq!(refusal.reason(), "KernelModuleMissing");
        let text = refusal.to_string();
        assert!(text.contains(&format!("has no {device};")), "{text}");
        assert!(text.contains(&format!("`modprobe {module}`")), "{text}");
        assert!(!node.path(&Node::cdi(&claim)).exists(), "a container would start without nodes");
    }
    set_modules(&node, PROC_DEVICES);
    claims.prepare(&claim).await.expect("the kubelet retries");
    assert!(node.path(&Node::cdi(&claim)).exists());
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named() {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate("a", &["gpu-0"]);
    fs::remove_file(node.path("proc/devices")).expect("removes");
    let refusal = claims.prepare(&claim).await.expect_err("reads nothing");
    assert_eq!(refusal.reason(), "Storage");
    assert!(refusal.to_string().contains("proc/devices"), "{refusal}");
}

#[tokio::test]
async fn a_module_that_is_loaded_again_has_its_new_number() {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate("a", &["gpu-0"]);
    let devices = claims.prepare(&claim).await.expect("prepares");
    let spec = || fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    assert!(spec().contains("\"major\": 508"), "{}", spec());

    set_modules(&node, &PROC_DEVICES.replace("508 nvidia-uvm\n", ""));
    let refusal = claims.prepare(&claim).await.expect_err("another pod of the claim");
    assert_eq!(refusal.reason(), "KernelModuleMissing");
    set_modules(&node, &PROC_DEVICES.replace("508", "509"));
    assert_eq!(claims.prepare(&claim).await, Ok(devices));
    assert!(spec().contains("\"major\": 509") && !spec().contains("508"), "{}", spec());

    set_modules(&node, "");
    claims.unprepare(&claim).await.expect("needs no module");
    assert_eq!(node.files(), [""; 0]);
}

#[tokio::test]
async fn a_driver_without_capabilities_prepares_no_mig_device() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate("a", &["gpu-0-mig-1g10gb-19-3"]);
    set_modules(&node, &PROC_DEVICES.replace("236 nvidia-caps\n", ""));
    let refusal = claims.prepare(&claim).await.expect_err("has no capability nodes");
    assert!(refusal.to_string().contains("has no nvidia-caps;"), "{refusal}");
    set_modules(&node, PROC_DEVICES);
    claims.prepare(&claim).await.expect("the kubelet retries");
    let spec = fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    // Mode 292 of the capability file is 0444.
    assert!(spec.contains("\"fileMode\": 292") && spec.contains("\"major\": 236"), "{spec}");
}

#[tokio::test]
async fn no_container_gets_a_released_driver() {
    let node = Node::new();
    let claims = node.start().await;
    let [held, new] = [node.allocate("a", &["gpu-0"]), node.allocate("b", &["gpu-1"])];
    claims.prepare(&held).await.expect("prepares");
    claims.set_released(true);
    for claim in [&held, &new] {
        let refusal = claims.prepare(claim).await.expect_err("another container would hold it");
        assert_eq!(refusal.reason(), "DriverClosed");
        assert!(refusal.to_string().contains("released"), "{refusal}");
    }
    claims.unprepare(&held).await.expect("frees the driver");
    claims.set_released(false);
    claims.prepare(&new).await.expect("the kubelet retries");
}

#[tokio::test]
async fn a_class_gives_containers_the_nodes_that_it_names() {
    let node = Node::new();
    let claims = node.start().await;
    let config = |from: &str| {
        json!([{"source": from, "requests": [], "opaque": {"driver": "gpu.nvidia.com", "parameters": {
            "apiVersion": "octavo.dev/v1alpha1", "kind": "DeviceNodesConfig", "gdrcopy": true}}}])
    };
    let allocate = |name, device, from: &str| {
        node.allocate_with(name, &[device], |claim| {
            claim["status"]["allocation"]["devices"]["config"] = config(from);
        })
    };
    let claim = allocate("a", "gpu-0", "FromClass");
    let refusal = claims.prepare(&claim).await.expect_err("the module is not loaded");
    assert_eq!(refusal.reason(), "KernelModuleMissing");
    assert!(refusal.to_string().contains("`modprobe gdrdrv`"), "{refusal}");

    set_modules(&node, &format!("{PROC_DEVICES}509 gdrdrv\n"));
    claims.prepare(&claim).await.expect("the kubelet retries");
    let spec = || fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    assert!(spec().contains("/dev/gdrdrv") && spec().contains("\"major\": 509"), "{}", spec());
    // Another pod of the claim waits for the module, and the GPU's numbers are kept right meanwhile.
    set_modules(&node, &PROC_DEVICES.replace("508", "510"));
    let refusal = claims.prepare(&claim).await.expect_err("the module is gone");
    assert_eq!(refusal.reason(), "KernelModuleMissing");
    claims.sweep().await;
    assert!(spec().contains("\"major\": 510") && !spec().contains("gdrdrv"), "{}", spec());
    set_modules(&node, &format!("{PROC_DEVICES}509 gdrdrv\n"));
    claims.prepare(&claim).await.expect("the kubelet retries");
    // The record has it: the spec is the same after a restart.
    let before = spec();
    drop(claims);
    fs::remove_file(node.path(&Node::cdi(&claim))).expect("removes");
    let claims = node.start().await;
    claims.prepare(&claim).await.expect("prepares again");
    assert_eq!(spec(), before);

    let refusal = claims.prepare(&allocate("b", "gpu-1", "FromClaim")).await.expect_err("a tenant");
    assert_eq!(refusal.reason(), "InvalidConfig");
    assert!(refusal.to_string().contains("for a DeviceClass only"), "{refusal}");
}

/// Versions without numbers named the host's nodes by path. Their containers run on; new ones start by the new spec.
#[tokio::test]
async fn a_spec_of_an_older_version_is_rewritten_at_start() {
    let node = Node::new();
    let claim = node.allocate("a", &["gpu-0"]);
    let devices = node.start().await.prepare(&claim).await.expect("prepares");
    let path = node.path(&Node::cdi(&claim));
    let now = fs::read_to_string(&path).expect("reads");
    let (record, _) = now.split_once('\n').expect("a line with the record");
    let old = json!({"cdiVersion": "0.5.0", "kind": "k8s.gpu.nvidia.com/claim",
        "devices": [{"name": format!("{}-gpu-0", claim.uid), "containerEdits": {
            "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/host/dev/nvidia0"}]}}],
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}});
    fs::write(&path, format!("{record}\n{old}\n")).expect("writes");
    let claims = node.start().await;
    assert_eq!(fs::read_to_string(&path).expect("reads"), now);
    assert_eq!(claims.prepare(&claim).await, Ok(devices), "it is held as before");
    let other = node.allocate("b", &["gpu-0"]);
    assert_eq!(claims.prepare(&other).await.expect_err("is held").reason(), "DeviceInUse");
}
