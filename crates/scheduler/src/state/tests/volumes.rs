//! Volumes that are chosen when their pod is placed (`WaitForFirstConsumer`).

use std::sync::Arc;

use octavo_kube_io::objects::{Change, Delta, PersistentVolume, StorageClass, VolumeClaim};
use serde_json::{Value, json};

use super::claims;
use super::fixtures::{Testbed, evicted, member, node, pod, pod_group, with};
use crate::bind::{FailureKind, OpKind, VolumeWrite, WriteOp};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

fn class(testbed: &mut Testbed, provisioner: &str) {
    let class = json!({
        "metadata": {"name": "late", "uid": "uid-late"},
        "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
    });
    let class = StorageClass::from_value(class).expect("an object");
    testbed.scheduler.apply(&Change::StorageClass(Delta::Upsert(Arc::new(class))));
}

fn claim(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}")},
        "spec": {"storageClassName": "late", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}}},
        "status": {"phase": "Pending"},
    })
}

fn set_claim(testbed: &mut Testbed, claim: Value) {
    let claim = VolumeClaim::from_value(claim).expect("an object");
    testbed.scheduler.apply(&Change::VolumeClaim(Delta::Upsert(Arc::new(claim))));
}

/// An existing volume of a node.
fn volume(name: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "7"},
        "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late", "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In",
                    "values": [node]}]}]}}},
        "status": {"phase": "Available"},
    })
}

fn set_volume(testbed: &mut Testbed, volume: Value) {
    let volume = PersistentVolume::from_value(volume).expect("an object");
    testbed.scheduler.apply(&Change::Volume(Delta::Upsert(Arc::new(volume))));
}

/// The claim with a volume that was provisioned for a node.
fn bind_claim(testbed: &mut Testbed, name: &str, node: &str) {
    set_volume(testbed, with(volume(&format!("pv-{name}"), node), "/status/phase", json!("Bound")));
    let claim = with(selected(name, node), "/spec/volumeName", json!(format!("pv-{name}")));
    set_claim(testbed, with(claim, "/status/phase", json!("Bound")));
}

fn selected(name: &str, node: &str) -> Value {
    with(claim(name), "/metadata/annotations", json!({SELECTED_NODE: node}))
}

fn using(pod: Value, claim: &str) -> Value {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    with(pod, "/spec/volumes", volumes)
}

/// Two nodes, and a class whose volumes are provisioned.
fn testbed() -> Testbed {
    let mut testbed = Testbed::new();
    for name in ["a", "b"] {
        testbed.node(&node(name, 4));
    }
    class(&mut testbed, "csi.example");
    testbed
}

/// The requests for volumes, with their nodes.
fn requests(ops: &[WriteOp]) -> Vec<(String, VolumeWrite)> {
    let requests = ops.iter().filter_map(|op| match &op.kind {
        OpKind::RequestVolumes { node, writes, .. } => {
            Some(writes.iter().map(|write| (node.to_string(), write.clone())))
        }
        _ => None,
    });
    requests.flatten().collect()
}

/// Decides and carries out what it can. Returns the requests for volumes, and the bound pods.
fn settle(testbed: &mut Testbed) -> (Vec<(String, VolumeWrite)>, Vec<String>) {
    let ops = testbed.ops();
    let mut bound = Vec::new();
    for op in &ops {
        if let OpKind::Bind(bind) = &op.kind {
            bound.push(format!("{} on {}", bind.pod.name.name, bind.node));
        }
        testbed.complete(op);
    }
    bound.sort();
    (requests(&ops), bound)
}

/// The node for which a volume of the only claim is requested.
fn provisioned_for(requests: &[(String, VolumeWrite)]) -> String {
    let [(node, VolumeWrite::Provision { .. })] = requests else { panic!("one: {requests:?}") };
    node.clone()
}

#[test]
fn a_pod_is_bound_once_its_volume_is() {
    let mut testbed = testbed();
    set_claim(&mut testbed, claim("data"));
    testbed.pod(&using(pod("p", "1"), "data"));
    let (requests, bound) = settle(&mut testbed);
    let node = provisioned_for(&requests);
    assert!(bound.is_empty());
    let (reason, message) = testbed.reason("p").expect("a reason");
    assert_eq!(reason, "WaitingForVolumes");
    assert!(message.ends_with("waiting for volumes to be bound"), "{message}");
    // The provisioner sees the annotation, and the controller binds in two steps.
    set_claim(&mut testbed, selected("data", &node));
    testbed.time(100);
    assert_eq!(settle(&mut testbed), (vec![], vec![]));
    let named = with(selected("data", &node), "/spec/volumeName", json!("pv-data"));
    set_claim(&mut testbed, named);
    testbed.time(100);
    assert_eq!(settle(&mut testbed), (vec![], vec![]));
    bind_claim(&mut testbed, "data", &node);
    testbed.time(100);
    assert_eq!(settle(&mut testbed), (vec![], vec![format!("p on {node}")]));
}

#[test]
fn an_existing_volume_decides_the_node() {
    let mut testbed = testbed();
    class(&mut testbed, "kubernetes.io/no-provisioner");
    set_volume(&mut testbed, volume("disk", "b"));
    set_claim(&mut testbed, claim("data"));
    testbed.pod(&using(pod("p", "1"), "data"));
    let (requests, _) = settle(&mut testbed);
    let [(node, VolumeWrite::Bind { volume, version, claim, .. })] = &requests[..] else {
        panic!("{requests:?}")
    };
    assert_eq!((&**node, &**volume, &**version, &*claim.name), ("b", "disk", "7", "data"));
}

#[test]
fn pods_of_one_cycle_get_volumes_of_their_own() {
    let mut testbed = testbed();
    class(&mut testbed, "kubernetes.io/no-provisioner");
    for (name, on) in [("disk-0", "a"), ("disk-1", "b")] {
        set_volume(&mut testbed, volume(name, on));
    }
    for name in ["p", "q", "r"] {
        set_claim(&mut testbed, claim(name));
        testbed.pod(&using(pod(name, "1"), name));
    }
    let (requests, _) = settle(&mut testbed);
    let mut volumes: Vec<_> = requests
        .iter()
        .map(|(_, write)| match write {
            VolumeWrite::Bind { volume, .. } => volume.to_string(),
            VolumeWrite::Provision { .. } => panic!("{requests:?}"),
        })
        .collect();
    volumes.sort();
    assert_eq!(volumes, ["disk-0", "disk-1"]);
    assert_eq!(testbed.reason("r").expect("a reason").0, "Unschedulable");
}

#[test]
fn without_a_volume_or_a_provisioner_the_reason_says_so() {
    let mut testbed = testbed();
    class(&mut testbed, "kubernetes.io/no-provisioner");
    set_claim(&mut testbed, claim("data"));
    testbed.pod(&using(pod("p", "1"), "data"));
    assert_eq!(settle(&mut testbed), (vec![], vec![]));
    let (_, message) = testbed.reason("p").expect("a reason");
    let why = "node(s) didn't find available persistent volumes to bind";
    assert_eq!(message, format!("no node is feasible: {why}"));
    set_volume(&mut testbed, volume("disk", "a"));
    let (requests, _) = settle(&mut testbed);
    assert_eq!(requests.len(), 1, "a new volume wakes the pod");
}

#[test]
fn failed_provisioning_is_tried_again_after_a_delay() {
    let mut testbed = testbed();
    set_claim(&mut testbed, claim("data"));
    testbed.pod(&using(pod("p", "1"), "data"));
    let (requests, _) = settle(&mut testbed);
    let node = provisioned_for(&requests);
    set_claim(&mut testbed, selected("data", &node));
    testbed.time(100);
    assert_eq!(settle(&mut testbed), (vec![], vec![]));
    // The provisioner gives up.
    set_claim(&mut testbed, claim("data"));
    testbed.time(100);
    assert_eq!(settle(&mut testbed), (vec![], vec![]));
    let (reason, message) = testbed.reason("p").expect("a reason");
    assert_eq!(reason, "SchedulerError");
    assert!(message.contains("provisioning the volume of claim team/data failed"), "{message}");
    testbed.time(1000);
    let (requests, _) = settle(&mut testbed);
    provisioned_for(&requests);
}

#[test]
fn a_failed_request_is_repeated() {
    let mut testbed = testbed();
    set_claim(&mut testbed, claim("data"));
    testbed.pod(&using(pod("p", "1"), "data"));
    let ops = testbed.ops();
    let op = ops.iter().find(|op| matches!(op.kind, OpKind::RequestVolumes { .. }));
    testbed.fail(op.expect("a request"), FailureKind::Conflict);
    assert_eq!(requests(&testbed.ops()), []);
    assert_eq!(requests(&testbed.after(1000)).len(), 1);
}

#[test]
fn a_gang_is_bound_when_all_its_volumes_are() {
    let mut testbed = testbed();
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["g0", "g1"] {
        set_claim(&mut testbed, claim(name));
        testbed.pod(&using(member("g", name, "3"), name));
    }
    let (requests, bound) = settle(&mut testbed);
    assert_eq!((requests.len(), bound.len()), (2, 0));
    let node_of = |name: &str| {
        let of = |write: &VolumeWrite| matches!(write, VolumeWrite::Provision { claim, .. } if *claim.name == *name);
        requests.iter().find(|(_, write)| of(write)).expect("a request").0.clone()
    };
    bind_claim(&mut testbed, "g0", &node_of("g0"));
    testbed.time(100);
    assert_eq!(settle(&mut testbed), (vec![], vec![]));
    bind_claim(&mut testbed, "g1", &node_of("g1"));
    testbed.time(100);
    assert_eq!(settle(&mut testbed).1.len(), 2);
}

#[test]
fn a_node_that_is_cordoned_meanwhile_gets_no_pod() {
    let mut testbed = testbed();
    set_claim(&mut testbed, claim("data"));
    testbed.pod(&using(pod("p", "1"), "data"));
    let (requests, _) = settle(&mut testbed);
    let first = provisioned_for(&requests);
    testbed.node(&with(node(&first, 4), "/spec/unschedulable", json!(true)));
    // Its annotation was not written yet, so the pod is free to go elsewhere.
    let (requests, bound) = settle(&mut testbed);
    assert_ne!(provisioned_for(&requests), first);
    assert!(bound.is_empty());
}

#[test]
fn a_deleted_pod_gives_its_place_and_volume_back() {
    let mut testbed = testbed();
    class(&mut testbed, "kubernetes.io/no-provisioner");
    set_volume(&mut testbed, volume("disk", "b"));
    for name in ["p", "q"] {
        set_claim(&mut testbed, claim(name));
    }
    testbed.pod(&using(pod("p", "4"), "p"));
    assert_eq!(settle(&mut testbed).0.len(), 1);
    testbed.pod(&using(pod("q", "4"), "q"));
    assert_eq!(settle(&mut testbed).0, []);
    testbed.drop_pod("p");
    testbed.time(1000);
    assert_eq!(settle(&mut testbed).0.len(), 1);
}

#[test]
fn victims_leave_before_volumes_are_requested() {
    let mut testbed = testbed();
    for name in ["a", "b"] {
        let low = with(pod(&format!("low-{name}"), "3"), "/spec/nodeName", json!(name));
        testbed.pod(&with(low, "/status/phase", json!("Running")));
    }
    set_claim(&mut testbed, claim("data"));
    testbed.pod(&using(with(pod("high", "3"), "/spec/priority", json!(100)), "data"));
    let ops = testbed.ops();
    assert_eq!((evicted(&ops).len(), requests(&ops).len()), (1, 0));
    for op in &ops {
        testbed.complete(op);
    }
    testbed.drop_pod(&evicted(&ops)[0]);
    let (requests, bound) = settle(&mut testbed);
    let node = provisioned_for(&requests);
    assert!(bound.is_empty());
    bind_claim(&mut testbed, "data", &node);
    testbed.time(100);
    assert_eq!(settle(&mut testbed).1, [format!("high on {node}")]);
}

#[test]
fn a_nominated_pod_that_finds_another_place_keeps_it_for_its_volume() {
    let mut testbed = Testbed::new();
    class(&mut testbed, "csi.example");
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "4"));
    testbed.settle();
    set_claim(&mut testbed, claim("data"));
    testbed.pod(&using(with(pod("high", "4"), "/spec/priority", json!(100)), "data"));
    for op in testbed.ops() {
        testbed.complete(&op);
    }
    testbed.node(&node("b", 4));
    testbed.time(1000);
    let (requests, _) = settle(&mut testbed);
    assert_eq!(provisioned_for(&requests), "b");
    testbed.time(1000);
    assert_eq!(settle(&mut testbed), (vec![], vec![]));
    bind_claim(&mut testbed, "data", "b");
    testbed.time(100);
    assert_eq!(settle(&mut testbed).1, ["high on b"]);
}

#[test]
fn a_volume_that_does_not_come_gives_the_place_to_others_for_a_while() {
    let mut testbed = Testbed::new();
    class(&mut testbed, "csi.example");
    testbed.node(&node("a", 4));
    set_claim(&mut testbed, claim("data"));
    testbed.pod(&using(pod("p", "4"), "data"));
    settle(&mut testbed);
    testbed.pod(&pod("q", "4"));
    assert_eq!(settle(&mut testbed), (vec![], vec![]));
    testbed.time(600_000);
    assert_eq!(settle(&mut testbed).1, ["q on a"]);
    let (reason, message) = testbed.reason("p").expect("a reason");
    assert_eq!(reason, "SchedulerError");
    assert!(message.contains("not bound in ten minutes"), "{message}");
}

#[test]
fn a_claim_that_is_bound_before_its_volume_is_observed_keeps_the_place() {
    let mut testbed = testbed();
    set_claim(&mut testbed, claim("data"));
    testbed.pod(&using(pod("p", "1"), "data"));
    let (requests, _) = settle(&mut testbed);
    let node = provisioned_for(&requests);
    let bound = with(selected("data", &node), "/spec/volumeName", json!("pv-data"));
    set_claim(&mut testbed, with(bound, "/status/phase", json!("Bound")));
    testbed.time(100);
    assert_eq!(settle(&mut testbed), (vec![], vec![]));
    bind_claim(&mut testbed, "data", &node);
    testbed.time(100);
    assert_eq!(settle(&mut testbed).1, [format!("p on {node}")]);
}

#[test]
fn members_that_share_a_claim_request_its_volume_once() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    class(&mut testbed, "csi.example");
    set_claim(&mut testbed, claim("shared"));
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["g0", "g1"] {
        testbed.pod(&using(member("g", name, "1"), "shared"));
    }
    let (requests, _) = settle(&mut testbed);
    assert_eq!(provisioned_for(&requests), "a");
    bind_claim(&mut testbed, "shared", "a");
    testbed.time(100);
    assert_eq!(settle(&mut testbed).1, ["g0 on a", "g1 on a"]);
}

#[test]
fn a_volume_that_is_kept_for_a_claim_serves_no_other_until_it_is_released() {
    let kept_for = |name: &str| {
        let claim = json!({"namespace": "team", "name": name});
        with(volume("disk", "b"), "/spec/claimRef", claim)
    };
    // For the pod's claim, for another again, and for any.
    for (released, is_requested) in
        [(kept_for("data"), true), (kept_for("other"), false), (volume("disk", "b"), true)]
    {
        let mut testbed = testbed();
        class(&mut testbed, "kubernetes.io/no-provisioner");
        set_volume(&mut testbed, kept_for("other"));
        set_claim(&mut testbed, claim("data"));
        testbed.pod(&using(pod("p", "1"), "data"));
        assert_eq!(settle(&mut testbed), (vec![], vec![]));
        set_volume(&mut testbed, released.clone());
        let (requests, _) = settle(&mut testbed);
        assert_eq!(requests.len(), usize::from(is_requested), "{released}");
    }
}

#[test]
fn devices_stay_assumed_while_the_bind_at_the_end_waits() {
    let mut testbed = claims::testbed(&["a"], 1);
    class(&mut testbed, "csi.example");
    set_claim(&mut testbed, claim("data"));
    testbed.claim(&claims::claim("p-gpu", "p"));
    testbed.pod(&using(claims::claiming("p"), "data"));
    let (requests, _) = settle(&mut testbed);
    assert_eq!(provisioned_for(&requests), "a");
    // For a moment the node is too small.
    testbed.node(&node("a", 0));
    bind_claim(&mut testbed, "data", "a");
    testbed.time(100);
    assert_eq!(settle(&mut testbed), (vec![], vec![]));
    assert!(testbed.scheduler.cache.devices().is_assumed("uid-p"));
    testbed.node(&node("a", 64));
    testbed.time(100);
    assert_eq!(settle(&mut testbed).1, ["p on a"]);
}

#[test]
fn pods_that_share_an_unbound_claim_request_it_for_one_node() {
    let mut testbed = testbed();
    set_claim(&mut testbed, claim("shared"));
    for name in ["p", "q"] {
        testbed.pod(&using(pod(name, "3"), "shared"));
    }
    let (requests, _) = settle(&mut testbed);
    let first = provisioned_for(&requests);
    testbed.pod(&using(pod("r", "1"), "shared"));
    let (requests, _) = settle(&mut testbed);
    assert_eq!(provisioned_for(&requests), first, "it fits beside the first pod");
    bind_claim(&mut testbed, "shared", &first);
    testbed.time(100);
    assert_eq!(settle(&mut testbed).1, [format!("p on {first}"), format!("r on {first}")]);
}

#[test]
fn a_volume_that_is_deleted_meanwhile_is_not_waited_for() {
    for is_named in [false, true] {
        let mut testbed = testbed();
        class(&mut testbed, "kubernetes.io/no-provisioner");
        set_volume(&mut testbed, volume("disk", "a"));
        set_claim(&mut testbed, claim("data"));
        testbed.pod(&using(pod("p", "1"), "data"));
        assert_eq!(settle(&mut testbed).0.len(), 1);
        set_volume(&mut testbed, volume("other", "a"));
        if is_named {
            set_claim(&mut testbed, with(claim("data"), "/spec/volumeName", json!("disk")));
        }
        let gone = PersistentVolume::from_value(volume("disk", "a")).expect("an object");
        testbed.scheduler.apply(&Change::Volume(Delta::Delete(Arc::new(gone))));
        testbed.time(100);
        assert_eq!(settle(&mut testbed), (vec![], vec![]));
        let (reason, message) = testbed.reason("p").expect("a reason");
        assert_eq!(reason, "SchedulerError");
        assert!(message.contains("volume disk was deleted"), "{message}");
        testbed.time(1000);
        let expected = usize::from(!is_named);
        assert_eq!(settle(&mut testbed).0.len(), expected, "the other volume serves it");
    }
}
