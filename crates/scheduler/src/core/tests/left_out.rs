use serde_json::json;

use super::claims::{bed, claim, claiming};
use super::kit::{Bed, member, node, pod, pod_group, with};

#[test]
fn a_selector_that_fails_on_every_device_is_named_and_others_are_placed() {
    let mut bed = bed(&["a", "b"], 2);
    let broken = with(
        claim("p-gpu", "p"),
        "/spec/devices/requests/0/exactly/selectors",
        json!([{"cel": {"expression": "device.attributes['gpu.nvidia.com'].nobody == 'x'"}}]),
    );
    bed.claim(&broken);
    bed.pod(&claiming("p"));
    bed.claim(&claim("q-gpu", "q"));
    bed.pod(&claiming("q"));
    assert_eq!(bed.settle(), [("q".to_owned(), "a".to_owned())]);
    let (reason, message) = bed.reason("p").expect("a reason");
    assert_eq!(reason, "Unschedulable");
    assert!(message.starts_with("no node will do: claim team/p-gpu, request gpu: "), "{message}");
    assert!(message.ends_with("no such key: nobody"), "{message}");
}

#[test]
fn taints_that_keep_a_pod_from_every_node_are_named() {
    let taints = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]);
    let mut bed = Bed::new();
    bed.node(&with(node("a", 4), "/spec/taints", taints.clone()));
    bed.node(&with(node("b", 4), "/spec/taints", taints));
    bed.pod(&pod("p", "1"));
    assert_eq!(bed.settle(), []);
    let words = "node(s) had untolerated taint {node.kubernetes.io/unreachable: }";
    let (_, message) = bed.reason("p").expect("a reason");
    assert_eq!(message, format!("no node will do: {words}"));
    // With a node that is only too small, room is the reason and the taint is told beside it.
    bed.node(&node("c", 0));
    assert_eq!(bed.settle(), []);
    let (_, message) = bed.reason("p").expect("a reason");
    assert!(message.contains("at most 0 are possible"), "{message}");
    assert!(message.ends_with(&format!("; nodes are left out: {words}")), "{message}");
}

#[test]
fn a_refused_gang_is_told_of_cordoned_nodes() {
    let mut bed = Bed::new();
    bed.node(&with(node("a", 4), "/spec/unschedulable", json!(true)));
    bed.node(&node("b", 4));
    bed.object(&pod_group("g", 2, json!({})));
    bed.pod(&member("g", "g-0", "3"));
    bed.pod(&member("g", "g-1", "3"));
    assert_eq!(bed.settle(), []);
    let (_, message) = bed.reason("g-0").expect("a reason");
    assert!(message.contains("2 wanted at least, at most 1 are possible"), "{message}");
    assert!(message.ends_with("; nodes are left out: node(s) were unschedulable"), "{message}");
    bed.node(&node("a", 4));
    assert_eq!(bed.settle().len(), 2);
}

#[test]
fn who_only_lacks_room_is_told_of_room_alone() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("p", "8"));
    assert_eq!(bed.settle(), []);
    let (_, message) = bed.reason("p").expect("a reason");
    assert!(!message.contains("left out"), "{message}");
    assert!(!message.contains("no node will do"), "{message}");
}

#[test]
fn nodes_without_the_label_are_told_to_be_somebody_elses() {
    let mut bed = bed(&[], 0);
    let mut theirs = node("a", 64);
    theirs["metadata"]["labels"].as_object_mut().expect("labels").remove("octavo.dev/scheduler");
    bed.node(&theirs);
    bed.slice(&super::claims::slice("a", 1));
    bed.claim(&claim("p-gpu", "p"));
    bed.pod(&claiming("p"));
    assert_eq!(bed.settle(), []);
    let (_, message) = bed.reason("p").expect("a reason");
    assert_eq!(message, "no node will do: node(s) whose devices this scheduler does not give");
}

#[test]
fn what_runs_on_a_node_does_not_leave_it_out_whatever_runs_there() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("busy", "3"));
    bed.settle();
    let port = |number: u16| json!([{"containerPort": number, "hostPort": number}]);
    bed.pod(&with(pod("p", "3"), "/spec/containers/0/ports", port(80)));
    assert_eq!(bed.settle(), []);
    let (_, message) = bed.reason("p").expect("a reason");
    assert!(message.contains("at most 0 are possible"), "{message}");
    assert!(!message.contains("Insufficient"), "{message}");
    // A port that somebody has is a reason beside the engine's, which does not know it.
    bed.pod(&with(pod("taker", "1"), "/spec/containers/0/ports", port(90)));
    bed.settle();
    bed.object(&pod_group("g", 1, json!({})));
    bed.pod(&with(member("g", "g-0", "3"), "/spec/containers/0/ports", port(90)));
    assert_eq!(bed.settle(), []);
    let (_, message) = bed.reason("g-0").expect("a reason");
    assert!(message.contains("at most 0 are possible"), "{message}");
    assert!(message.ends_with("free ports for the requested pod ports"), "{message}");
}

#[test]
fn who_fits_no_node_is_told_of_without_the_reasons_of_others() {
    let mut bed = Bed::new();
    let taints = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    bed.node(&with(node("a", 4), "/spec/taints", taints));
    bed.node(&node("b", 4));
    bed.object(&pod_group("g", 3, json!({})));
    let everywhere = with(
        with(member("g", "g-1", "1"), "/spec/nodeSelector", json!({"disk": "ssd"})),
        "/spec/tolerations",
        json!([{"operator": "Exists"}]),
    );
    bed.pod(&member("g", "g-0", "1"));
    bed.pod(&everywhere);
    bed.pod(&member("g", "g-2", "1"));
    assert_eq!(bed.settle(), []);
    let (_, message) = bed.reason("g-0").expect("a reason");
    let words = "node(s) didn't match Pod's node affinity/selector";
    assert_eq!(message, format!("no node will do: {words}"));
}
