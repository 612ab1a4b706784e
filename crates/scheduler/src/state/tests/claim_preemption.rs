//! Claims that only the allocator can decide: a GPU and a NIC on one PCIe root.

use octavo_kube_io::objects::ObjectName;
use serde_json::{Value, json};

use super::claims::{claim, claiming, class, slice};
use super::fixtures::{Testbed, evicted, node, pod_group, with};
use crate::bind::{OpKind, WriteOp};
use crate::state::SchedulerConfig;

const PCIE_ROOT: &str = "resource.kubernetes.io/pcieRoot";

/// Devices of a driver, each on the PCIe root of its number.
fn on_roots(mut slice: Value) -> Value {
    for (number, device) in (0..).zip(slice["spec"]["devices"].as_array_mut().expect("devices")) {
        let _: u32 = number;
        device["attributes"][PCIE_ROOT] = json!({"string": format!("pci{number}")});
    }
    slice
}

fn nics(node: &str, count: u32) -> Value {
    let devices: Vec<_> = (0..count)
        .map(|number| json!({"name": format!("nic-{number}"), "attributes": {}}))
        .collect();
    on_roots(json!({
        "metadata": {"name": format!("nics-{node}"), "uid": format!("uid-nics-{node}")},
        "spec": {
            "driver": "nic.example.com", "nodeName": node,
            "pool": {"name": format!("nics-{node}"), "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }))
}

fn nic_class() -> Value {
    json!({
        "metadata": {"name": "nic.example.com", "uid": "uid-nic-class"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'nic.example.com'"}}]},
    })
}

/// Nodes with GPUs and NICs, each pair on a PCIe root.
pub(super) fn cluster(config: SchedulerConfig, nodes: &[(&str, u32, u32)]) -> Testbed {
    let mut testbed = Testbed::with_config(config);
    testbed.class(&class());
    testbed.class(&nic_class());
    for (name, gpus, nic_count) in nodes {
        testbed.node(&node(name, 64));
        testbed.slice(&on_roots(slice(name, *gpus)));
        testbed.slice(&nics(name, *nic_count));
    }
    testbed
}

pub(super) fn request(name: &str, class: &str, count: u32) -> Value {
    json!({"name": name, "exactly": {
        "deviceClassName": class, "allocationMode": "ExactCount", "count": count}})
}

/// A pod with a claim of these requests.
pub(super) fn asking(testbed: &mut Testbed, name: &str, priority: i32, requests: Value) -> Value {
    let claim = claim(&format!("{name}-gpu"), name);
    testbed.claim(&with(claim, "/spec/devices/requests", requests));
    with(claiming(name), "/spec/priority", json!(priority))
}

/// A pod with a GPU and a NIC on one PCIe root.
pub(super) fn paired(testbed: &mut Testbed, name: &str, priority: i32) -> Value {
    let requests =
        json!([request("gpu", "gpu.nvidia.com", 1), request("nic", "nic.example.com", 1)]);
    let claim = with(claim(&format!("{name}-gpu"), name), "/spec/devices/requests", requests);
    let same = json!([{"matchAttribute": PCIE_ROOT}]);
    testbed.claim(&with(claim, "/spec/devices/constraints", same));
    with(claiming(name), "/spec/priority", json!(priority))
}

pub(super) fn with_nic(testbed: &mut Testbed, name: &str, priority: i32) -> Value {
    asking(testbed, name, priority, json!([request("nic", "nic.example.com", 1)]))
}

pub(super) fn with_gpu(testbed: &mut Testbed, name: &str, priority: i32) -> Value {
    asking(testbed, name, priority, json!([request("gpu", "gpu.nvidia.com", 1)]))
}

fn on(pod: Value, node: &str) -> Value {
    with(pod, "/spec/nodeSelector", json!({"kubernetes.io/hostname": node}))
}

pub(super) fn of_gang(pod: Value) -> Value {
    with(pod, "/metadata/labels", json!({"octavo.dev/pod-group": "g"}))
}

/// Runs pods, which all find a place.
fn run(testbed: &mut Testbed, pods: &[Value]) {
    for pod in pods {
        testbed.pod(pod);
    }
    assert_eq!(testbed.settle().len(), pods.len());
}

/// A gang of two pods of priority 100, each with a GPU and a NIC.
fn gang(testbed: &mut Testbed) -> Vec<WriteOp> {
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        let pod = paired(testbed, name, 100);
        testbed.pod(&of_gang(pod));
    }
    testbed.ops()
}

/// Lets victims leave, with their claims.
pub(super) fn leave(testbed: &mut Testbed, ops: &[WriteOp], names: &[String]) {
    for op in ops {
        testbed.complete(op);
    }
    for name in names {
        testbed.drop_pod(name);
        testbed.drop_claim(&format!("{name}-gpu"));
    }
}

fn message(testbed: &Testbed, pod: &str) -> String {
    let (reason, message) = testbed.reason(pod).expect("a reason");
    assert_eq!(reason, "Unschedulable", "{message}");
    message
}

#[test]
fn a_gang_with_gpus_and_nics_evicts_lower_pods() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 2, 2), ("b", 2, 2)]);
    let pods = (0..4).map(|number| paired(&mut testbed, &format!("low-{number}"), number));
    let pods: Vec<_> = pods.collect();
    run(&mut testbed, &pods);
    let ops = gang(&mut testbed);
    let victims = evicted(&ops);
    assert_eq!(victims, ["low-0", "low-1"]);
    assert!(!ops.iter().any(|op| matches!(op.kind, OpKind::Bind(_))));
    leave(&mut testbed, &ops, &victims[..1]);
    assert_eq!(testbed.settle(), [], "one victim is still there");
    leave(&mut testbed, &[], &victims[1..]);
    assert_eq!(testbed.settle().len(), 2);
}

#[test]
fn pods_with_nics_alone_leave_for_a_gang() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 2, 2), ("b", 2, 1)]);
    let pods = ["low-0", "low-1"].map(|name| on(with_nic(&mut testbed, name, 0), "a"));
    run(&mut testbed, &pods);
    // No GPU is taken, so the engine itself sees no reason for victims.
    let ops = gang(&mut testbed);
    let victims = evicted(&ops);
    assert!(!victims.is_empty(), "{ops:?}");
    leave(&mut testbed, &ops, &victims);
    assert_eq!(testbed.settle().len(), 2);
}

#[test]
fn the_least_important_holder_leaves_whatever_it_holds() {
    for (nic_holder, gpu_holder) in [(50, 0), (0, 50)] {
        let mut testbed = cluster(SchedulerConfig::default(), &[("a", 1, 1), ("b", 1, 1)]);
        let nic = on(with_nic(&mut testbed, "nic", nic_holder), "a");
        let gpu = on(with_gpu(&mut testbed, "gpu", gpu_holder), "b");
        run(&mut testbed, &[nic, gpu]);
        testbed.object(&pod_group("g", 1, json!({})));
        let pod = paired(&mut testbed, "m0", 100);
        testbed.pod(&of_gang(pod));
        let least = if nic_holder < gpu_holder { "nic" } else { "gpu" };
        assert_eq!(evicted(&testbed.ops()), [least]);
    }
}

#[test]
fn no_pod_is_evicted_where_the_nic_would_not_become_free() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 2, 1), ("b", 2, 2)]);
    let gpus = ["low-0", "low-1"].map(|name| on(with_gpu(&mut testbed, name, 0), "a"));
    let nics = ["top-0", "top-1", "top-2"].map(|name| with_nic(&mut testbed, name, 1000));
    let pods: Vec<_> = gpus.into_iter().chain(nics).collect();
    run(&mut testbed, &pods);
    assert_eq!(evicted(&gang(&mut testbed)), [""; 0]);
    let why = message(&testbed, "m0");
    assert!(why.starts_with("other pods hold the requested devices"), "{why}");
    // Nor for a single pod.
    let single = paired(&mut testbed, "single", 100);
    testbed.pod(&single);
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
    let why = message(&testbed, "single");
    assert!(why.contains("it may fit once they leave"), "{why}");
    let explained = testbed.scheduler.explain_pod(&ObjectName::new("team", "single"));
    let decision = explained.expect("the pod").decision.expect("a decision");
    assert!(decision.lines()[0].contains("other pods hold the requested devices"), "{decision:?}");
}

#[test]
fn members_go_apart_where_a_node_has_one_nic() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 2, 1), ("b", 2, 1)]);
    let gpus = ["low-0", "low-1"].map(|name| on(with_gpu(&mut testbed, name, 0), "a"));
    let others = ["low-2", "low-3"].map(|name| on(with_gpu(&mut testbed, name, 0), "b"));
    run(&mut testbed, &[gpus, others].concat());
    let ops = gang(&mut testbed);
    let victims = evicted(&ops);
    assert_eq!(victims.len(), 2, "{victims:?}");
    leave(&mut testbed, &ops, &victims);
    let bound = testbed.settle();
    let nodes: Vec<_> = bound.iter().map(|(_, node)| node.as_str()).collect();
    assert!(nodes == ["a", "b"] || nodes == ["b", "a"], "{bound:?}");
}

#[test]
fn a_gang_that_needs_more_nics_than_nodes_have_learns_it() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 2, 1)]);
    assert_eq!(gang(&mut testbed), []);
    let why = message(&testbed, "m0");
    assert!(why.contains("on which no more of them may be"), "{why}");
    assert!(!why.contains("once they leave"), "{why}");
}

#[test]
fn a_gang_is_a_victim_of_a_pod_with_a_nic() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 2, 2)]);
    for op in gang(&mut testbed) {
        testbed.complete(&op);
    }
    let high = paired(&mut testbed, "high", 200);
    testbed.pod(&high);
    assert_eq!(evicted(&testbed.ops()), ["m0", "m1"]);
}

#[test]
fn the_nic_of_a_victim_that_left_is_kept_for_the_nominated_pod() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 2, 2)]);
    let pods = ["low-0", "low-1"].map(|name| paired(&mut testbed, name, 0));
    run(&mut testbed, &pods);
    let both = json!([request("gpu", "gpu.nvidia.com", 2), request("nic", "nic.example.com", 2)]);
    let high = asking(&mut testbed, "high", 100, both);
    testbed.pod(&high);
    let ops = testbed.ops();
    let victims = evicted(&ops);
    assert_eq!(victims, ["low-0", "low-1"]);
    leave(&mut testbed, &ops, &victims[..1]);
    let late = with_nic(&mut testbed, "late", 0);
    testbed.pod(&late);
    assert_eq!(testbed.settle(), [], "its NIC is promised");
    leave(&mut testbed, &[], &victims[1..]);
    assert_eq!(testbed.settle(), [("high".to_owned(), "a".to_owned())]);
}

#[test]
fn no_further_pod_leaves_where_a_leaving_pod_frees_enough() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 2, 2), ("b", 1, 1)]);
    let both = json!([request("gpu", "gpu.nvidia.com", 2), request("nic", "nic.example.com", 2)]);
    let low = asking(&mut testbed, "low", 0, both);
    let other = paired(&mut testbed, "other", 1);
    run(&mut testbed, &[on(low, "a"), on(other, "b")]);
    let first = paired(&mut testbed, "first", 100);
    testbed.pod(&first);
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["low"]);
    let second = paired(&mut testbed, "second", 100);
    testbed.pod(&second);
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
    leave(&mut testbed, &ops, &["low".to_owned()]);
    assert_eq!(testbed.settle().len(), 2);
}

#[test]
fn a_dropped_nomination_gives_its_devices_back() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 1, 1)]);
    let low = paired(&mut testbed, "low", 0);
    run(&mut testbed, &[low]);
    let high = paired(&mut testbed, "high", 100);
    testbed.pod(&high);
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["low"]);
    leave(&mut testbed, &ops, &["high".to_owned(), "low".to_owned()]);
    let late = with_nic(&mut testbed, "late", 0);
    testbed.pod(&late);
    assert_eq!(testbed.settle(), [("late".to_owned(), "a".to_owned())]);
}

#[test]
fn a_movable_pod_makes_room_for_a_pod_with_a_nic() {
    let config = SchedulerConfig { defragmentation_moves: 2, ..SchedulerConfig::default() };
    let mut testbed = cluster(config, &[("a", 1, 1), ("b", 1, 0)]);
    let movable = json!({"octavo.dev/movable": "true"});
    let movable = with(with_gpu(&mut testbed, "low", 0), "/metadata/annotations", movable);
    testbed.node(&with(node("b", 64), "/spec/unschedulable", json!(true)));
    run(&mut testbed, &[movable]);
    testbed.node(&node("b", 64));
    let waiting = paired(&mut testbed, "waiting", 0);
    testbed.pod(&waiting);
    let ops = testbed.ops();
    let victims = evicted(&ops);
    assert_eq!(victims, ["low"], "it moves to b");
    leave(&mut testbed, &ops, &victims);
    assert_eq!(testbed.settle(), [("waiting".to_owned(), "a".to_owned())]);
}

#[test]
fn a_pod_is_not_moved_where_it_would_have_no_nic() {
    let config = SchedulerConfig { defragmentation_moves: 2, ..SchedulerConfig::default() };
    let mut testbed = cluster(config, &[("a", 1, 1), ("b", 1, 0)]);
    let movable = json!({"octavo.dev/movable": "true"});
    let movable = with(paired(&mut testbed, "low", 0), "/metadata/annotations", movable);
    run(&mut testbed, &[movable]);
    let waiting = paired(&mut testbed, "waiting", 0);
    testbed.pod(&waiting);
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
    let why = message(&testbed, "waiting");
    assert!(why.contains("node(s) whose suitable devices other pods hold"), "{why}");
}

#[test]
fn conditions_tell_never_from_not_now() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 1, 1), ("b", 1, 0)]);
    let low = paired(&mut testbed, "low", 0);
    run(&mut testbed, &[low]);
    let equal = paired(&mut testbed, "equal", 0);
    testbed.pod(&equal);
    testbed.ops();
    let why = message(&testbed, "equal");
    assert!(why.contains("node(s) whose suitable devices other pods hold"), "{why}");
    assert!(why.contains("without devices for request nic: none is of device class"), "{why}");
    leave(&mut testbed, &[], &["low".to_owned()]);
    assert_eq!(testbed.settle(), [("equal".to_owned(), "a".to_owned())]);
    // No node ever has two NICs.
    let two = json!([request("gpu", "gpu.nvidia.com", 1), request("nic", "nic.example.com", 2)]);
    let never = asking(&mut testbed, "never", 100, two);
    testbed.pod(&never);
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
    let why = message(&testbed, "never");
    assert!(why.starts_with("no node is feasible: "), "{why}");
    assert!(why.contains("request nic: there are too few"), "{why}");
    assert!(!why.contains("once they leave"), "{why}");
}

#[test]
fn what_no_node_has_is_named() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 1, 0)]);
    let missing = with_nic(&mut testbed, "missing", 100);
    testbed.pod(&missing);
    let roots = paired(&mut testbed, "roots", 100);
    testbed.pod(&roots);
    let mut selecting = request("gpu", "gpu.nvidia.com", 1);
    let expression = "device.attributes['gpu.nvidia.com'].productName == 'H200'";
    selecting["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
    let selecting = asking(&mut testbed, "selecting", 100, json!([selecting]));
    testbed.pod(&selecting);
    assert_eq!(testbed.settle(), []);
    let none = "none is of device class nic.example.com";
    for name in ["missing", "roots"] {
        let why = message(&testbed, name);
        assert!(why.starts_with("no node is feasible: ") && why.contains(none), "{why}");
    }
    let why = message(&testbed, "selecting");
    assert!(why.contains(&format!("none matches the selector {expression}")), "{why}");
    // A NIC on another root than the GPU.
    let mut other = nics("a", 1);
    other["spec"]["devices"][0]["attributes"][PCIE_ROOT] = json!({"string": "pci7"});
    testbed.slice(&other);
    testbed.ops();
    testbed.after(300_000);
    let why = message(&testbed, "roots");
    assert!(why.contains("not all requests together"), "{why}");
}

#[test]
fn a_hint_names_who_holds_the_devices() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 1, 1)]);
    let low = paired(&mut testbed, "low", 5);
    run(&mut testbed, &[low]);
    let equal = paired(&mut testbed, "equal", 5);
    testbed.pod(&equal);
    testbed.ops();
    let name = ObjectName::new("team", "equal");
    let search = testbed.scheduler.hint_search_for_pod(&name);
    let search = search.expect("others hold what it needs");
    testbed.scheduler.store_hint_result(&search.run());
    let explained = testbed.scheduler.explain_pod(&name).expect("the pod");
    let hint = explained.disturbance.expect("a victim").line();
    assert!(hint.starts_with("it would help to evict pod team/low"), "{hint}");
}
