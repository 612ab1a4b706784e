use serde_json::json;

use super::claims::{claim, claiming, testbed};
use super::fixtures::{Testbed, member, node, pod, pod_group, with};

#[test]
fn a_failing_selector_is_reported_and_blocks_no_other_pod() {
    let mut testbed = testbed(&["a", "b"], 2);
    let broken = with(
        claim("p-gpu", "p"),
        "/spec/devices/requests/0/exactly/selectors",
        json!([{"cel": {"expression": "device.attributes['gpu.nvidia.com'].nobody == 'x'"}}]),
    );
    testbed.claim(&broken);
    testbed.pod(&claiming("p"));
    testbed.claim(&claim("q-gpu", "q"));
    testbed.pod(&claiming("q"));
    assert_eq!(testbed.settle(), [("q".to_owned(), "a".to_owned())]);
    let (reason, message) = testbed.reason("p").expect("a reason");
    assert_eq!(reason, "Unschedulable");
    assert!(
        message.starts_with("no node is feasible: claim team/p-gpu, request gpu: "),
        "{message}"
    );
    assert!(message.ends_with("no such key: nobody"), "{message}");
}

#[test]
fn taints_that_keep_a_pod_from_every_node_are_named() {
    let taints = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]);
    let mut testbed = Testbed::new();
    testbed.node(&with(node("a", 4), "/spec/taints", taints.clone()));
    testbed.node(&with(node("b", 4), "/spec/taints", taints));
    testbed.pod(&pod("p", "1"));
    assert_eq!(testbed.settle(), []);
    let words = "node(s) had untolerated taint {node.kubernetes.io/unreachable: }";
    let (_, message) = testbed.reason("p").expect("a reason");
    assert_eq!(message, format!("no node is feasible: {words}"));
    // With a node that is only too small, capacity is the reason, and the taint is added.
    testbed.node(&node("c", 0));
    assert_eq!(testbed.settle(), []);
    testbed.after(300_000);
    let (_, message) = testbed.reason("p").expect("a reason");
    assert!(message.contains("too small even when empty"), "{message}");
    assert!(message.ends_with(&format!("; infeasible nodes: {words}")), "{message}");
}

#[test]
fn an_unschedulable_gang_names_cordoned_nodes() {
    let mut testbed = Testbed::new();
    testbed.node(&with(node("a", 4), "/spec/unschedulable", json!(true)));
    testbed.node(&node("b", 4));
    testbed.object(&pod_group("g", 2, json!({})));
    testbed.pod(&member("g", "g-0", "3"));
    testbed.pod(&member("g", "g-1", "3"));
    assert_eq!(testbed.settle(), []);
    let (_, message) = testbed.reason("g-0").expect("a reason");
    assert!(message.starts_with("too few places for group \"members\": "), "{message}");
    assert!(message.ends_with("; infeasible nodes: node(s) were unschedulable"), "{message}");
    testbed.node(&node("a", 4));
    assert_eq!(testbed.settle().len(), 2);
}

#[test]
fn a_lack_of_capacity_names_no_infeasible_nodes() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("p", "8"));
    assert_eq!(testbed.settle(), []);
    let (_, message) = testbed.reason("p").expect("a reason");
    assert!(!message.contains("infeasible"), "{message}");
    assert!(!message.contains("no node is feasible"), "{message}");
}

#[test]
fn nodes_without_the_owner_label_are_reported() {
    let mut testbed = testbed(&[], 0);
    let mut theirs = node("a", 64);
    theirs["metadata"]["labels"].as_object_mut().expect("labels").remove("octavo.dev/scheduler");
    testbed.node(&theirs);
    testbed.slice(&super::claims::slice("a", 1));
    testbed.claim(&claim("p-gpu", "p"));
    testbed.pod(&claiming("p"));
    assert_eq!(testbed.settle(), []);
    let (_, message) = testbed.reason("p").expect("a reason");
    assert_eq!(
        message,
        "no node is feasible: node(s) whose devices this scheduler does not allocate"
    );
}

#[test]
fn running_pods_do_not_make_a_node_infeasible() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("busy", "3"));
    testbed.settle();
    let port = |number: u16| json!([{"containerPort": number, "hostPort": number}]);
    testbed.pod(&with(pod("p", "3"), "/spec/containers/0/ports", port(80)));
    assert_eq!(testbed.settle(), []);
    let (_, message) = testbed.reason("p").expect("a reason");
    assert_eq!(message, "the pod fits no node: insufficient CPU");
    // An occupied port is added to the engine's reason, because the engine does not count ports.
    testbed.pod(&with(pod("taker", "1"), "/spec/containers/0/ports", port(90)));
    testbed.settle();
    testbed.object(&pod_group("g", 1, json!({})));
    testbed.pod(&with(member("g", "g-0", "3"), "/spec/containers/0/ports", port(90)));
    assert_eq!(testbed.settle(), []);
    let (_, message) = testbed.reason("g-0").expect("a reason");
    let why = "the pod fits no node: insufficient CPU; infeasible nodes: ";
    assert!(message.starts_with(why), "{message}");
    assert!(message.ends_with("free ports for the requested pod ports"), "{message}");
}

#[test]
fn a_member_that_fits_no_node_determines_the_reason() {
    let mut testbed = Testbed::new();
    let taints = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    testbed.node(&with(node("a", 4), "/spec/taints", taints));
    testbed.node(&node("b", 4));
    testbed.object(&pod_group("g", 3, json!({})));
    let everywhere = with(
        with(member("g", "g-1", "1"), "/spec/nodeSelector", json!({"disk": "ssd"})),
        "/spec/tolerations",
        json!([{"operator": "Exists"}]),
    );
    testbed.pod(&member("g", "g-0", "1"));
    testbed.pod(&everywhere);
    testbed.pod(&member("g", "g-2", "1"));
    assert_eq!(testbed.settle(), []);
    let (_, message) = testbed.reason("g-0").expect("a reason");
    let words = "node(s) didn't match Pod's node affinity/selector";
    assert_eq!(message, format!("no node is feasible: {words}"));
}
