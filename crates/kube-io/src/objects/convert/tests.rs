//! The values that are read from the API's JSON.

mod claims;
mod pods;
mod shapes;

use serde_json::{Value, json};

use super::{Fault, Reader, WatchedType};
use crate::objects::{
    BindingMode, Budget, CsiNode, Meta, Node, Owner, PersistentVolume, StorageClass, TaintEffect,
    VolumeClaim, WatchedObject,
};

/// Reads an object and its faults.
fn read<T: WatchedType>(json: Value) -> (T, Vec<Fault>) {
    let mut reader = Reader::default();
    let value = T::read(serde_json::from_value(json).unwrap(), &mut reader).unwrap();
    (value, reader.take_faults())
}

/// Reads an object without faults.
fn sound<T: WatchedType>(json: Value) -> T {
    let (value, faults) = read(json);
    assert_eq!(faults, []);
    value
}

#[test]
fn metadata_keeps_the_controlling_owner_and_not_what_kubectl_left() {
    let meta: Meta = sound(json!({"kind": "Namespace", "metadata": {
    "name": "team", "uid": "u", "resourceVersion": "7",
    "labels": {"a": "b"},
    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "x": "y"},
    "creationTimestamp": "2026-01-05T10:00:00Z",
    "deletionTimestamp": "2026-01-05T10:00:30Z",
    "finalizers": ["f"],
    "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
    "ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"},
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2", "controller": true},
    ]}}));
    assert_eq!(meta.name.to_string(), "team");
    assert_eq!(meta.deleted.unwrap() - meta.created, 30);
    assert_eq!(meta.annotations.keys().collect::<Vec<_>>(), ["x"]);
    let job = ("batch/v1".to_owned(), "Job".to_owned(), "j".to_owned(), "2".into());
    let (api_version, kind, name, uid) = job;
    assert_eq!(meta.owner, Some(Owner { api_version, kind, name, uid }));
}

#[test]
fn a_node_keeps_taints_readiness_and_what_it_has() {
    let (node, faults) = read::<Node>(json!({
        "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}},
        "spec": {"unschedulable": true, "podCIDR": "10.0.0.0/24", "taints": [
            {"key": "a", "effect": "NoSchedule", "timeAdded": null},
            {"key": "b", "value": "c", "effect": "Whatever"}]},
        "status": {
            "allocatable": {"cpu": "7500m", "memory": "8Gi", "pods": 110, "odd": "much"},
            "capacity": {"cpu": "8"},
            "images": [{"names": ["x"], "sizeBytes": 1}],
            "conditions": [{"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "Unknown"}]}}));
    assert!(node.is_unschedulable);
    assert_eq!(node.is_ready, None);
    assert_eq!(node.taints.len(), 1);
    assert_eq!(node.taints[0].effect, TaintEffect::NoSchedule);
    assert_eq!(node.allocatable["cpu"].milli_value(), 7500);
    assert_eq!(node.allocatable["pods"].value(), 110);
    assert!(!node.allocatable.contains_key("odd"), "what cannot be read is not offered");
    assert_eq!(faults.len(), 2, "{faults:?}");
}

#[test]
fn a_volume_claim_has_a_volume_when_it_is_bound() {
    let claim = |phase: &str| {
        sound::<VolumeClaim>(json!({"metadata": {"name": "c", "namespace": "team"},
            "spec": {"volumeName": "v", "storageClassName": "fast", "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": phase}}))
    };
    assert_eq!(claim("Bound").volume.as_deref(), Some("v"));
    assert_eq!(claim("Pending").volume, None);
    assert_eq!(claim("Bound").class.as_deref(), Some("fast"));
}

#[test]
fn a_volume_is_where_its_readable_terms_say() {
    let term = |operator: &str| json!({"matchExpressions": [{"key": "zone", "operator": operator, "values": ["a"]}]});
    let (volume, faults) = read::<PersistentVolume>(json!({"metadata": {"name": "v"}, "spec": {
        "csi": {"driver": "d", "volumeHandle": "h", "readOnly": false},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term("In"), term("Near")]}}}}));
    assert_eq!(volume.node_affinity.unwrap().terms.len(), 1);
    assert_eq!(volume.csi, Some(("d".to_owned(), "h".to_owned())));
    assert!(faults[0].to_string().contains("Near"), "{faults:?}");
}

#[test]
fn classes_budgets_and_csi_nodes_are_read() {
    let class = |mode: Value| {
        let class = json!({"metadata": {"name": "c"}, "volumeBindingMode": mode});
        read::<StorageClass>(class).0.binding
    };
    assert_eq!(class(Value::Null), BindingMode::Immediate);
    assert_eq!(class(json!("WaitForFirstConsumer")), BindingMode::WaitForFirstConsumer);
    assert_eq!(class(json!("Later")), BindingMode::WaitForFirstConsumer);
    let budget: Budget = sound(json!({"metadata": {"name": "b", "namespace": "team"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"},
            "matchExpressions": [{"key": "k", "operator": "Exists"}]}},
        "status": {"disruptionsAllowed": 2, "disruptedPods": {"p": "2026-01-05T10:00:00Z"}}}));
    assert_eq!((budget.allowed, budget.disrupted), (2, vec!["p".to_owned()]));
    assert_eq!(budget.selector.unwrap().expressions[0].operator, "Exists");
    let node: CsiNode = sound(json!({"metadata": {"name": "n"}, "spec": {"drivers": [
        {"name": "a", "nodeID": "n", "allocatable": {"count": 16}}, {"name": "b", "nodeID": "n"}]}}));
    assert_eq!(node.limits, [("a".to_owned(), Some(16)), ("b".to_owned(), None)].into());
}

#[test]
fn an_object_of_an_unknown_kind_keeps_spec_and_status() {
    let object: WatchedObject = sound(json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "j", "namespace": "team", "generation": 3},
        "spec": {"replicatedJobs": []}, "status": {"restarts": 1}}));
    assert_eq!((&*object.kind, object.generation), ("JobSet", 3));
    assert_eq!(object.status["restarts"], 1);
    assert_eq!(object.spec["replicatedJobs"], json!([]));
}
