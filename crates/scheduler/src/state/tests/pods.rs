use serde_json::json;

use super::fixtures::{Testbed, gpu_pod, node, plugin_node, pod, with};
use crate::bind::{FailureKind, OpKind};

#[test]
fn a_pod_goes_to_a_node_with_room_by_one_binding() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 1));
    testbed.node(&node("b", 8));
    testbed.pod(&pod("p", "4"));
    let ops = testbed.ops();
    let [op] = &ops[..] else { panic!("one order: {ops:?}") };
    let OpKind::Bind(bind) = &op.kind else { panic!("a binding: {op:?}") };
    assert_eq!((&*bind.node, &*bind.pod.name.name), ("b", "p"));
    assert!(bind.claims.is_empty() && bind.extended.is_none());
}

#[test]
fn pods_of_other_schedulers_and_gated_ones_are_left_alone() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    testbed.pod(&with(pod("theirs", "1"), "/spec/schedulerName", json!("default-scheduler")));
    testbed.pod(&with(pod("gated", "1"), "/spec/schedulingGates", json!([{"name": "quota"}])));
    assert_eq!(testbed.ops(), []);
    testbed.pod(&pod("gated", "1"));
    assert_eq!(testbed.settle(), [("gated".to_owned(), "a".to_owned())]);
}

#[test]
fn placements_are_assumed_before_they_are_observed() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.node(&node("b", 4));
    for name in ["p", "q", "r"] {
        testbed.pod(&pod(name, "3"));
    }
    let ops = testbed.ops();
    let mut nodes: Vec<_> = ops
        .iter()
        .map(|op| match &op.kind {
            OpKind::Bind(bind) => bind.node.to_string(),
            other => panic!("a binding: {other:?}"),
        })
        .collect();
    nodes.sort();
    assert_eq!(nodes, ["a", "b"]);
    assert_eq!(testbed.reason("r").map(|(reason, _)| reason), Some("Unschedulable"));
    for op in &ops {
        testbed.complete(op);
    }
    assert_eq!(testbed.ops(), []);
    testbed.drop_pod("p");
    assert_eq!(testbed.settle().len(), 1, "the place of p is free");
}

#[test]
fn a_pod_that_has_ended_gives_its_place_back() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("p", "3"));
    testbed.settle();
    testbed.pod(&pod("q", "3"));
    assert_eq!(testbed.ops(), []);
    let ended = with(testbed.pods["p"].clone(), "/status/phase", json!("Succeeded"));
    testbed.pod(&ended);
    assert_eq!(testbed.settle(), [("q".to_owned(), "a".to_owned())]);
}

#[test]
fn a_failed_bind_is_retried_with_backoff() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("p", "3"));
    let ops = testbed.ops();
    testbed.fail(&ops[0], FailureKind::Unreachable);
    assert_eq!(testbed.ops(), [], "no retry without delay");
    assert_eq!(testbed.reason("p").map(|(reason, _)| reason), Some("SchedulerError"));
    // Its place is free meanwhile.
    testbed.pod(&pod("q", "2"));
    assert_eq!(testbed.settle(), [("q".to_owned(), "a".to_owned())]);
    testbed.drop_pod("q");
    assert_eq!(testbed.after(2000).len(), 1);
}

#[test]
fn priority_goes_before_age() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("old", "3"));
    testbed.pod(&with(pod("urgent", "3"), "/spec/priority", json!(10)));
    assert_eq!(testbed.settle(), [("urgent".to_owned(), "a".to_owned())]);
}

#[test]
fn ports_selectors_and_taints_decide_too() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    testbed.node(&with(node("b", 8), "/metadata/labels/disk", json!("ssd")));
    let tainted = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    testbed.node(&with(node("c", 8), "/spec/taints", tainted));
    let port = json!([{"containerPort": 80, "hostPort": 80}]);
    for name in ["p", "q", "r"] {
        testbed.pod(&with(pod(name, "1"), "/spec/containers/0/ports", port.clone()));
    }
    let bound = testbed.settle();
    let nodes: Vec<_> = bound.iter().map(|(_, node)| node.as_str()).collect();
    assert!(nodes == ["a", "b"] || nodes == ["b", "a"], "one a node, none on c: {bound:?}");
    assert!(testbed.reason("r").is_some());
    testbed.pod(&with(pod("s", "1"), "/spec/nodeSelector", json!({"disk": "ssd"})));
    assert_eq!(testbed.settle(), [("s".to_owned(), "b".to_owned())]);
    let by_name = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["a"]}
        ]}]
    }}});
    testbed.pod(&with(pod("t", "1"), "/spec/affinity", by_name));
    assert_eq!(testbed.settle(), [("t".to_owned(), "a".to_owned())]);
}

#[test]
fn device_plugin_gpus_are_allocated_until_exhausted() {
    let mut testbed = Testbed::new();
    testbed.node(&plugin_node("a"));
    testbed.node(&node("b", 64));
    for number in 0..5 {
        testbed.pod(&gpu_pod(&format!("p{number}"), 2));
    }
    let bound = testbed.settle();
    assert_eq!(bound.len(), 4);
    assert!(bound.iter().all(|(_, node)| node == "a"));
    let (reason, message) = testbed.reason("p4").expect("a reason");
    assert_eq!(reason, "Unschedulable", "{message}");
}

#[test]
fn a_new_node_takes_a_pending_pod() {
    let mut testbed = Testbed::new();
    testbed.pod(&pod("p", "1"));
    assert_eq!(testbed.settle(), []);
    testbed.node(&node("a", 2));
    assert_eq!(testbed.settle(), [("p".to_owned(), "a".to_owned())]);
    // Running pods still count when other nodes come and the engine cache is rebuilt.
    testbed.node(&node("b", 1));
    testbed.pod(&pod("q", "2"));
    assert_eq!(testbed.settle(), []);
}

#[test]
fn equal_unschedulable_pods_all_get_the_reason() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 1));
    for name in ["p", "q"] {
        testbed.pod(&pod(name, "2"));
    }
    assert_eq!(testbed.settle(), []);
    assert_eq!(testbed.reason("p"), testbed.reason("q"));
    assert!(testbed.reason("p").is_some());
}

#[test]
fn a_pod_that_goes_before_it_is_bound_leaves_nothing_on_its_node() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("p", "3"));
    assert_eq!(testbed.ops().len(), 1);
    testbed.drop_pod("p");
    assert!(testbed.scheduler.cache.pods_on("a").next().is_none());
    testbed.pod(&pod("q", "4"));
    assert_eq!(testbed.settle(), [("q".to_owned(), "a".to_owned())]);
}

#[test]
fn a_resize_frees_nothing_until_it_is_actuated() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("p", "3"));
    testbed.settle();
    // Its request is smaller now, and its allocated resources are not yet.
    let smaller =
        with(testbed.pods["p"].clone(), "/spec/containers/0/resources/requests/cpu", json!("1"));
    let has = |cpu: &str| {
        let status = json!([{"name": "main", "allocatedResources": {"cpu": cpu},
            "resources": {"requests": {"cpu": cpu}}}]);
        with(smaller.clone(), "/status/containerStatuses", status)
    };
    testbed.pod(&has("3"));
    testbed.pod(&pod("q", "3"));
    assert_eq!(testbed.settle(), []);
    testbed.pod(&has("1"));
    assert_eq!(testbed.settle(), [("q".to_owned(), "a".to_owned())]);
}

#[test]
fn a_cached_refusal_distinguishes_host_ports() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    let port = json!([{"containerPort": 80, "hostPort": 80}]);
    testbed.pod(&with(pod("holder", "1"), "/spec/containers/0/ports", port.clone()));
    assert_eq!(testbed.settle().len(), 1);
    testbed.pod(&with(pod("p", "1"), "/spec/containers/0/ports", port.clone()));
    testbed.pod(&with(pod("p-too", "1"), "/spec/containers/0/ports", port));
    testbed.pod(&pod("q", "1"));
    assert_eq!(testbed.settle(), [("q".to_owned(), "a".to_owned())]);
    let (_, message) = testbed.reason("p").expect("a reason");
    assert!(message.contains("free ports"), "{message}");
    assert_eq!(testbed.reason("p-too"), testbed.reason("p"));
}
