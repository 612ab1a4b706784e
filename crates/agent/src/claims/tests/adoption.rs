//! Claims that NVIDIA's DRA driver prepared before this agent started.

use std::fs;

use octavo_node::ClaimRef;
use octavo_testkit::nvidia_checkpoint;
use serde_json::{Value, json};

use super::fixtures::Node;
use super::sharing::node as node_with_smi;
use crate::claims::Claims;

const UID: &str = "0a4d7c3e-5b1f-4f0e-9c57-3f8f0d6f1a01";
const BEGUN: &str = "1b4d7c3e-5b1f-4f0e-9c57-3f8f0d6f1a02";
const FILE: &str = "kubelet/plugins/gpu.nvidia.com/checkpoint.json";

fn device(name: &str, uuid: &str, ids: &[&str]) -> Value {
    json!({
        "gpu": {"info": {"uuid": uuid}, "device": {
            "Requests": ["request-0"], "PoolName": "node-a", "DeviceName": name, "CDIDeviceIDs": ids,
        }},
        "mig": null,
    })
}

fn claim(devices: &[Value], sharing: &Value) -> Value {
    let names = devices.iter().map(|it| &it["gpu"]["device"]["DeviceName"]);
    let results: Vec<Value> = names
        .map(|name| {
            json!({"request": "request-0", "driver": "gpu.nvidia.com", "pool": "node-a", "device": name})
        })
        .collect();
    let parameters = json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing});
    let config = json!([{"source": "FromClaim", "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}]);
    json!({
        "status": {"allocation": {"devices": {"results": results, "config": config}}},
        "preparedDevices": [{"devices": devices, "configState": {"mpsControlDaemonID": ""}}],
    })
}

fn leave(node: &Node, claims: &Value) {
    let path = node.path(FILE);
    fs::create_dir_all(path.parent().expect("has one")).expect("makes a folder");
    fs::write(path, nvidia_checkpoint(claims)).expect("writes");
}

fn own_id(device: &str) -> String {
    format!("k8s.gpu.nvidia.com/claim={UID}-{device}")
}

fn reference() -> ClaimRef {
    ClaimRef { namespace: "ns".to_owned(), name: "theirs".to_owned(), uid: UID.to_owned() }
}

fn devices(claims: &Claims) -> Vec<String> {
    claims.holdings().into_iter().flat_map(|holding| holding.devices).collect()
}

#[tokio::test]
async fn a_claim_is_as_if_this_agent_had_prepared_it() {
    let (node, claims) = node_with_smi().await;
    drop(claims);
    let long = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}});
    let held = device("gpu-3", "GPU-3", &[&own_id("gpu-3")]);
    leave(&node, &json!({UID: claim(&[held], &long)}));
    let (claims, opened) = node.start_and_report().await;
    assert_eq!((opened.held, opened.adopted, opened.damage), (1, 1, vec![]));
    assert_eq!(devices(&claims), ["gpu-3"]);
    assert!(!node.path(FILE).exists(), "it is taken over once");
    let files = [Node::checkpoint(&reference()), Node::cdi(&reference())];
    assert_eq!(node.files(), files, "its files are the agent's own");
    let other = node.allocate("b", &["gpu-3"]);
    assert_eq!(claims.prepare(&other).await.expect_err("is held").reason(), "DeviceInUse");
    // A kubelet that starts again prepares it again, with the names that it had.
    node.give_driver(&claims).await;
    let again = claims.prepare(&reference()).await.expect("prepares");
    assert_eq!(again[0].cdi_ids, [own_id("gpu-3")]);
    // The next agent knows it from its own files.
    drop(claims);
    let (claims, opened) = node.start_and_report().await;
    assert_eq!((opened.held, opened.adopted), (1, 0));
    node.give_driver(&claims).await;
    claims.unprepare(&reference()).await.expect("unprepares");
    let slices = fs::read_to_string(node.path("slices")).expect("reads");
    let ends =
        "compute-policy -i GPU-3 --set-timeslice=3\ncompute-policy -i GPU-3 --set-timeslice=0\n";
    assert_eq!(slices, ends);
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
    claims.prepare(&other).await.expect("prepares");
}

#[tokio::test]
async fn a_spec_whose_names_containers_have_stays_until_the_claim_ends() {
    let node = Node::new();
    let names = ["k8s.gpu.nvidia.com/device=gpu-3", "k8s.gpu.nvidia.com/claim=theirs"];
    leave(&node, &json!({UID: claim(&[device("gpu-3", "GPU-3", &names)], &json!(null))}));
    let spec = "cdiVersion: 0.5.0\nkind: k8s.gpu.nvidia.com/claim\ndevices: [{name: theirs}]\n";
    let path = node.path(&Node::cdi(&reference()));
    fs::write(&path, spec).expect("writes");
    let claims = node.start().await;
    claims.sweep().await;
    let again = claims.prepare(&reference()).await.expect("prepares");
    assert_eq!(again[0].cdi_ids, names);
    assert_eq!(fs::read_to_string(&path).expect("reads"), spec);
    assert_eq!(devices(&claims), ["gpu-3"], "and no GPU more");
    // Without it, its names lead nowhere: the agent's own do.
    fs::remove_file(&path).expect("removes");
    let again = claims.prepare(&reference()).await.expect("prepares");
    assert_eq!(again[0].cdi_ids, [own_id("gpu-3")]);
    assert!(fs::read_to_string(&path).expect("reads").contains(&format!("{UID}-gpu-3")));
    claims.unprepare(&reference()).await.expect("unprepares");
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
}

#[tokio::test]
async fn devices_that_the_file_does_not_describe_are_protected_by_name() {
    let node = Node::new();
    let mps = json!({"strategy": "MPS"});
    leave(&node, &json!({UID: claim(&[device("gpu-3", "GPU-3", &[&own_id("gpu-3")])], &mps)}));
    let (claims, opened) = node.start_and_report().await;
    assert_eq!((opened.held, opened.adopted), (1, 1));
    assert!(claims.holdings()[0].is_unresolved);
    let (same, other) = (node.allocate("b", &["gpu-3"]), node.allocate("c", &["gpu-4"]));
    let refused = claims.prepare(&same).await.expect_err("may be held");
    assert_eq!(refused.reason(), "DeviceMayBeInUse");
    claims.prepare(&other).await.expect("another GPU is free");
    claims.unprepare(&reference()).await.expect("unprepares");
    claims.prepare(&same).await.expect("is free");
}

#[tokio::test]
async fn claims_of_an_earlier_boot_and_those_that_had_only_begun_are_none() {
    let node = Node::new();
    let mut begun = claim(&[device("gpu-3", "GPU-3", &[&own_id("gpu-3")])], &json!(null));
    begun["preparedDevices"] = json!(null);
    leave(&node, &json!({BEGUN: begun}));
    let (claims, opened) = node.start_and_report().await;
    assert_eq!((opened.held, opened.adopted, opened.damage), (0, 0, vec![]));
    drop(claims);
    // The file is older than the boot.
    leave(
        &node,
        &json!({UID: claim(&[device("gpu-3", "GPU-3", &[&own_id("gpu-3")])], &json!(null))}),
    );
    fs::write(node.path("proc/stat"), "cpu 1 2 3\nbtime 99999999999\n").expect("writes");
    let (claims, opened) = node.start_and_report().await;
    assert_eq!((opened.held, opened.adopted), (0, 0));
    assert!(!node.path(FILE).exists());
    drop(claims);
}

#[tokio::test]
async fn a_damaged_file_stays_and_is_reported() {
    let node = Node::new();
    let mut text =
        nvidia_checkpoint(&json!({UID: claim(&[device("gpu-3", "GPU-3", &[])], &json!(null))}));
    text = text.replace("GPU-3", "GPU-4");
    fs::create_dir_all(node.path(FILE).parent().expect("has one")).expect("makes a folder");
    fs::write(node.path(FILE), &text).expect("writes");
    let (claims, opened) = node.start_and_report().await;
    assert_eq!((opened.held, opened.adopted), (0, 0));
    assert!(opened.damage[0].contains("checksum"), "{:?}", opened.damage);
    assert_eq!(fs::read_to_string(node.path(FILE)).expect("reads"), text);
    drop(claims);
}

/// A claim whose results have these values more, one for each of its results.
fn with_results(mut claim: Value, values: &[Value]) -> Value {
    let results = claim["status"]["allocation"]["devices"]["results"].as_array_mut();
    let results = results.expect("has results");
    for (result, values) in results.iter_mut().zip(values) {
        result.as_object_mut().expect("is one").extend(values.as_object().expect("is one").clone());
    }
    claim
}

#[tokio::test]
async fn a_share_of_a_gpu_is_protected_by_name() {
    let node = Node::new();
    let held = device("gpu-3", "GPU-3", &[&own_id("gpu-3")]);
    // NVIDIA's driver records the share in the result alone.
    let share = with_results(claim(&[held], &json!(null)), &[json!({"shareID": "s"})]);
    leave(&node, &json!({UID: share}));
    let (claims, opened) = node.start_and_report().await;
    assert_eq!((opened.held, opened.adopted), (1, 1));
    assert!(claims.holdings()[0].is_unresolved);
}

#[tokio::test]
async fn a_gpu_that_its_claim_also_observes_is_held() {
    let node = Node::new();
    let held = device("gpu-3", "GPU-3", &[&own_id("gpu-3")]);
    let mut observed = held.clone();
    observed["gpu"]["device"]["Requests"] = json!(["monitor"]);
    let admin = json!({"request": "monitor", "adminAccess": true});
    let both = with_results(claim(&[held, observed], &json!(null)), &[json!({}), admin]);
    leave(&node, &json!({UID: both}));
    let claims = node.start().await;
    let other = node.allocate("b", &["gpu-3"]);
    assert_eq!(claims.prepare(&other).await.expect_err("is held").reason(), "DeviceInUse");
}

#[tokio::test]
async fn what_an_unclear_claim_may_have_set_is_undone_in_the_end() {
    let (node, claims) = node_with_smi().await;
    drop(claims);
    let held = device("gpu-3", "GPU-3", &[&own_id("gpu-3")]);
    leave(&node, &json!({UID: claim(&[held], &json!({"strategy": "MPS"}))}));
    let claims = node.start().await;
    node.give_driver(&claims).await;
    claims.unprepare(&reference()).await.expect("unprepares");
    let slices = fs::read_to_string(node.path("slices")).expect("reads");
    assert!(slices.contains("compute-policy -i GPU-3 --set-timeslice=0\n"), "{slices}");
}
