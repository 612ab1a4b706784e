use serde_json::json;

use super::kit::{Bed, gpu_pod, node, plugin_node, pod, with};
use crate::bind::{FailureKind, OpKind};

#[test]
fn a_pod_goes_to_a_node_with_room_by_one_binding() {
    let mut bed = Bed::new();
    bed.node(&node("a", 1));
    bed.node(&node("b", 8));
    bed.pod(&pod("p", "4"));
    let orders = bed.orders();
    let [order] = &orders[..] else { panic!("one order: {orders:?}") };
    let OpKind::Bind(bind) = &order.kind else { panic!("a binding: {order:?}") };
    assert_eq!((&*bind.node, &*bind.pod.name.name), ("b", "p"));
    assert!(bind.claims.is_empty() && bind.extended.is_none());
}

#[test]
fn pods_of_other_schedulers_and_gated_ones_are_left_alone() {
    let mut bed = Bed::new();
    bed.node(&node("a", 8));
    bed.pod(&with(pod("theirs", "1"), "/spec/schedulerName", json!("default-scheduler")));
    bed.pod(&with(pod("gated", "1"), "/spec/schedulingGates", json!([{"name": "quota"}])));
    assert_eq!(bed.orders(), []);
    bed.pod(&pod("gated", "1"));
    assert_eq!(bed.settle(), [("gated".to_owned(), "a".to_owned())]);
}

#[test]
fn what_is_decided_is_taken_before_it_is_seen() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.node(&node("b", 4));
    for name in ["p", "q", "r"] {
        bed.pod(&pod(name, "3"));
    }
    let orders = bed.orders();
    let mut nodes: Vec<_> = orders
        .iter()
        .map(|order| match &order.kind {
            OpKind::Bind(bind) => bind.node.to_string(),
            other => panic!("a binding: {other:?}"),
        })
        .collect();
    nodes.sort();
    assert_eq!(nodes, ["a", "b"]);
    assert_eq!(bed.reason("r").map(|(reason, _)| reason), Some("Unschedulable"));
    for order in &orders {
        bed.carry_out(order);
    }
    assert_eq!(bed.orders(), []);
    bed.drop_pod("p");
    assert_eq!(bed.settle().len(), 1, "the place of p is free");
}

#[test]
fn a_pod_that_has_ended_gives_its_place_back() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("p", "3"));
    bed.settle();
    bed.pod(&pod("q", "3"));
    assert_eq!(bed.orders(), []);
    let ended = with(bed.pods["p"].clone(), "/status/phase", json!("Succeeded"));
    bed.pod(&ended);
    assert_eq!(bed.settle(), [("q".to_owned(), "a".to_owned())]);
}

#[test]
fn a_failed_order_is_forgotten_and_tried_again_after_a_while() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("p", "3"));
    let orders = bed.orders();
    bed.fail(&orders[0], FailureKind::Unreachable);
    assert_eq!(bed.orders(), [], "not at once");
    assert_eq!(bed.reason("p").map(|(reason, _)| reason), Some("SchedulerError"));
    // Its place is nobody's meanwhile.
    bed.pod(&pod("q", "2"));
    assert_eq!(bed.settle(), [("q".to_owned(), "a".to_owned())]);
    bed.drop_pod("q");
    assert_eq!(bed.after(2000).len(), 1);
}

#[test]
fn priority_goes_before_age() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("old", "3"));
    bed.pod(&with(pod("urgent", "3"), "/spec/priority", json!(10)));
    assert_eq!(bed.settle(), [("urgent".to_owned(), "a".to_owned())]);
}

#[test]
fn ports_selectors_and_taints_decide_too() {
    let mut bed = Bed::new();
    bed.node(&node("a", 8));
    bed.node(&with(node("b", 8), "/metadata/labels/disk", json!("ssd")));
    let tainted = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    bed.node(&with(node("c", 8), "/spec/taints", tainted));
    let port = json!([{"containerPort": 80, "hostPort": 80}]);
    for name in ["p", "q", "r"] {
        bed.pod(&with(pod(name, "1"), "/spec/containers/0/ports", port.clone()));
    }
    let bound = bed.settle();
    let nodes: Vec<_> = bound.iter().map(|(_, node)| node.as_str()).collect();
    assert!(nodes == ["a", "b"] || nodes == ["b", "a"], "one a node, none on c: {bound:?}");
    assert!(bed.reason("r").is_some());
    bed.pod(&with(pod("s", "1"), "/spec/nodeSelector", json!({"disk": "ssd"})));
    assert_eq!(bed.settle(), [("s".to_owned(), "b".to_owned())]);
    let by_name = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["a"]}
        ]}]
    }}});
    bed.pod(&with(pod("t", "1"), "/spec/affinity", by_name));
    assert_eq!(bed.settle(), [("t".to_owned(), "a".to_owned())]);
}

#[test]
fn what_is_not_decided_here_is_refused_by_name() {
    let mut bed = Bed::new();
    bed.node(&node("a", 8));
    let spread = json!([{
        "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1
    }]);
    bed.pod(&with(pod("p", "1"), "/spec/topologySpreadConstraints", spread));
    assert_eq!(bed.settle(), []);
    assert_eq!(bed.reason("p").map(|(reason, _)| reason), Some("UnsupportedTopologySpread"));
}

#[test]
fn gpus_of_a_device_plugin_are_given_until_they_are_gone() {
    let mut bed = Bed::new();
    bed.node(&plugin_node("a"));
    bed.node(&node("b", 64));
    for number in 0..5 {
        bed.pod(&gpu_pod(&format!("p{number}"), 2));
    }
    let bound = bed.settle();
    assert_eq!(bound.len(), 4);
    assert!(bound.iter().all(|(_, node)| node == "a"));
    let (reason, message) = bed.reason("p4").expect("a reason");
    assert_eq!(reason, "Unschedulable", "{message}");
}

#[test]
fn a_node_that_comes_later_takes_who_waited() {
    let mut bed = Bed::new();
    bed.pod(&pod("p", "1"));
    assert_eq!(bed.settle(), []);
    bed.node(&node("a", 2));
    assert_eq!(bed.settle(), [("p".to_owned(), "a".to_owned())]);
    // What runs there is still counted when other nodes come and the picture is made anew.
    bed.node(&node("b", 1));
    bed.pod(&pod("q", "2"));
    assert_eq!(bed.settle(), []);
}

#[test]
fn equal_pods_that_are_refused_all_hear_why() {
    let mut bed = Bed::new();
    bed.node(&node("a", 1));
    for name in ["p", "q"] {
        bed.pod(&pod(name, "2"));
    }
    assert_eq!(bed.settle(), []);
    assert_eq!(bed.reason("p"), bed.reason("q"));
    assert!(bed.reason("p").is_some());
}

#[test]
fn a_pod_that_goes_before_it_is_bound_leaves_nothing_on_its_node() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("p", "3"));
    assert_eq!(bed.orders().len(), 1);
    bed.drop_pod("p");
    assert!(bed.core.on_node.values().all(std::collections::BTreeSet::is_empty));
    bed.pod(&pod("q", "4"));
    assert_eq!(bed.settle(), [("q".to_owned(), "a".to_owned())]);
}

#[test]
fn what_a_resize_has_not_given_back_is_nobody_elses_before_it_is() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("p", "3"));
    bed.settle();
    // It shall have less from now on, and has still what it had.
    let smaller =
        with(bed.pods["p"].clone(), "/spec/containers/0/resources/requests/cpu", json!("1"));
    let has = |cpu: &str| {
        let status = json!([{"name": "main", "allocatedResources": {"cpu": cpu},
            "resources": {"requests": {"cpu": cpu}}}]);
        with(smaller.clone(), "/status/containerStatuses", status)
    };
    bed.pod(&has("3"));
    bed.pod(&pod("q", "3"));
    assert_eq!(bed.settle(), []);
    bed.pod(&has("1"));
    assert_eq!(bed.settle(), [("q".to_owned(), "a".to_owned())]);
}

#[test]
fn who_wants_no_port_is_not_refused_with_who_does() {
    let mut bed = Bed::new();
    bed.node(&node("a", 8));
    let port = json!([{"containerPort": 80, "hostPort": 80}]);
    bed.pod(&with(pod("holder", "1"), "/spec/containers/0/ports", port.clone()));
    assert_eq!(bed.settle().len(), 1);
    bed.pod(&with(pod("p", "1"), "/spec/containers/0/ports", port.clone()));
    bed.pod(&with(pod("p-too", "1"), "/spec/containers/0/ports", port));
    bed.pod(&pod("q", "1"));
    assert_eq!(bed.settle(), [("q".to_owned(), "a".to_owned())]);
    let (_, message) = bed.reason("p").expect("a reason");
    assert!(message.contains("free ports"), "{message}");
    assert_eq!(bed.reason("p-too"), bed.reason("p"));
}
