use octavo_testkit::{ScriptedApi, failure};
use serde_json::{Value, json};

use super::*;

/// Answers a list of slices with two devices of node `a` with a taint's value; `None` means no taint.
fn slices(value: Option<&str>) -> Value {
    let taints: Vec<Value> = value
        .map(|value| json!({"key": "octavo.dev/driver-unavailable", "value": value, "effect": "NoSchedule"}))
        .into_iter()
        .collect();
    let device = |name: &str| json!({"name": name, "taints": taints});
    let slice = |driver: &str, devices: Value| {
        json!({"metadata": {"name": driver}, "spec": {"driver": driver, "nodeName": "a",
            "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1}, "devices": devices}})
    };
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "metadata": {}, "items": [
        slice("gpu.nvidia.com", json!([device("gpu-0"), device("gpu-1")])),
        slice("nic.example", json!([{"name": "nic-0"}])),
    ]})
}

async fn late(answer: Value, wanted: DriverState) -> BTreeMap<String, String> {
    let api = ScriptedApi::new(move |_| (200, answer.clone().to_string()));
    let nodes = ["a".to_owned()].into();
    let limit = Timeout(Some(Duration::from_millis(300)));
    wait(&api.client(), &nodes, wanted, limit).await
}

#[tokio::test]
async fn the_taints_tell_what_the_agent_did() {
    use DriverState::{InUse, Released};
    let words = |late: BTreeMap<String, String>| late.into_values().next();
    let empty = || {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "metadata": {},
            "items": []})
    };
    assert_eq!(late(slices(Some("released")), Released).await, BTreeMap::new());
    let unknown = words(late(empty(), Released).await);
    assert_eq!(unknown.as_deref(), Some("no device is published"));
    let problem = words(late(slices(None), Released).await);
    assert_eq!(problem.as_deref(), Some("2 of 2 devices are not released"));
    let gone = words(late(slices(Some("")), Released).await);
    assert_eq!(gone.as_deref(), Some("2 of 2 devices are not released"), "it is gone by itself");

    assert_eq!(late(slices(None), InUse).await, BTreeMap::new());
    let problem = words(late(slices(Some("")), InUse).await);
    assert_eq!(problem.as_deref(), Some("the driver of 2 of 2 devices is unavailable"));
    let problem = words(late(slices(Some("missing-nvidia-uvm")), InUse).await).unwrap();
    assert!(problem.contains("`modprobe nvidia-uvm`"), "{problem}");
    let problem = words(late(slices(Some("released")), InUse).await).unwrap();
    assert!(problem.contains("still released"), "{problem}");
    assert_eq!(words(late(empty(), InUse).await).as_deref(), Some("no device is published"));
}

#[tokio::test]
async fn a_node_that_does_not_exist_is_named_and_no_node_is_changed() {
    let api = ScriptedApi::new(|request| {
        if request.uri().path() == "/api/v1/nodes/b" {
            return failure(404, "nodes \"b\" not found");
        }
        let kind = "PartialObjectMetadata";
        (200, json!({"apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": {"name": "a"}}))
    });
    let nodes = ["a".to_owned(), "b".to_owned()].into();
    let error = set_label(&api.client(), &nodes, DriverState::Released).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no node \"b\"");
    assert!(api.requests().iter().all(|request| request.method() == "GET"));
}

#[tokio::test]
async fn a_failing_server_is_asked_until_the_limit() {
    let api = ScriptedApi::new(|_| failure(500, "etcd is away"));
    let nodes = ["a".to_owned()].into();
    let limit = Timeout(Some(Duration::from_millis(300)));
    let late = wait(&api.client(), &nodes, DriverState::Released, limit).await;
    assert!(late["a"].contains("etcd is away"), "{late:?}");
}

#[tokio::test]
async fn holders_are_the_pods_with_devices_of_the_node() {
    let claim = |name: &str, pool: &str, driver: &str| {
        json!({"metadata": {"name": name, "namespace": "team"}, "spec": {}, "status": {
            "reservedFor": [{"resource": "pods", "name": name, "uid": name}],
            "allocation": {"devices": {"results": [
                {"request": "gpu", "driver": driver, "pool": pool, "device": "gpu-0"}]}}}})
    };
    let answer = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimList",
    "metadata": {}, "items": [
        claim("on-it", "a", "gpu.nvidia.com"),
        claim("elsewhere", "b", "gpu.nvidia.com"),
        claim("nic", "a", "nic.example"),
        {"metadata": {"name": "waits", "namespace": "team"}, "spec": {}},
    ]});
    let api = ScriptedApi::new(move |_| (200, answer.to_string()));
    let found = holders(&api.client(), &["a".to_owned()].into()).await.unwrap();
    assert_eq!(found, ["team/on-it".to_owned()].into());
}
