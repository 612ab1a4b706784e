//! Preemption for needs that the engine does not count.

use serde_json::{Value, json};

use super::claims::{claim, claiming, testbed};
use super::fixtures::{Testbed, budget, evicted, node, pod, with};
use crate::bind::OpKind;

fn urgent(pod: Value) -> Value {
    with(pod, "/spec/priority", json!(100))
}

fn on_port(pod: Value) -> Value {
    with(pod, "/spec/containers/0/ports", json!([{"containerPort": 80, "hostPort": 80}]))
}

fn apart(pod: Value) -> Value {
    let pod = with(pod, "/metadata/labels", json!({"app": "web"}));
    let term = json!({"topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    let rule = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    with(pod, "/spec/affinity/podAntiAffinity", rule)
}

/// Adds a pod that claims all GPUs of its node, a request that only the allocator can decide.
fn claiming_all(testbed: &mut Testbed, name: &str) -> Value {
    let all = json!([{"name": "gpu", "exactly": {
        "deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}}]);
    testbed.claim(&with(claim(&format!("{name}-gpu"), name), "/spec/devices/requests", all));
    claiming(name)
}

/// Lets a victim leave, with its claim.
fn leave(testbed: &mut Testbed, name: &str) {
    testbed.drop_pod(name);
    if testbed.claims.contains_key(&format!("{name}-gpu")) {
        testbed.drop_claim(&format!("{name}-gpu"));
    }
}

#[test]
fn the_holders_of_claimed_devices_are_evicted() {
    let mut testbed = testbed(&["a", "b"], 2);
    for (name, priority) in [("low-0", 1), ("low-1", 1), ("top-0", 1000), ("low-2", 2)] {
        testbed.claim(&claim(&format!("{name}-gpu"), name));
        testbed.pod(&with(claiming(name), "/spec/priority", json!(priority)));
        assert_eq!(testbed.settle().len(), 1);
    }
    let high = claiming_all(&mut testbed, "high");
    testbed.pod(&urgent(high));
    let ops = testbed.ops();
    let victims = evicted(&ops);
    // The pod of priority 1000 protects its node.
    let nodes: Vec<_> =
        victims.iter().map(|name| testbed.pods[name]["spec"]["nodeName"].clone()).collect();
    assert_eq!(victims.len(), 2, "{victims:?}");
    assert!(nodes[0] == nodes[1] && testbed.pods["top-0"]["spec"]["nodeName"] != nodes[0]);
    for op in &ops {
        testbed.complete(op);
    }
    for name in &victims {
        leave(&mut testbed, name);
    }
    assert_eq!(testbed.settle().len(), 1, "its devices are free");
}

#[test]
fn only_as_many_pods_leave_as_must() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    testbed.pod(&on_port(pod("holder", "1")));
    testbed.pod(&pod("bystander", "1"));
    testbed.settle();
    testbed.pod(&urgent(on_port(pod("high", "1"))));
    assert_eq!(evicted(&testbed.ops()), ["holder"]);
}

#[test]
fn the_node_with_the_least_important_victims_is_chosen() {
    let mut testbed = Testbed::new();
    for (name, priority) in [("a", 20), ("b", 10), ("c", 30)] {
        testbed.node(&node(name, 8));
        let holder =
            with(on_port(pod(&format!("on-{name}"), "1")), "/spec/priority", json!(priority));
        testbed.pod(&with(holder, "/spec/nodeSelector", json!({"kubernetes.io/hostname": name})));
    }
    assert_eq!(testbed.settle().len(), 3);
    testbed.pod(&urgent(on_port(pod("high", "1"))));
    assert_eq!(evicted(&testbed.ops()), ["on-b"]);
}

#[test]
fn disruption_budgets_and_priorities_hold() {
    let mut testbed = Testbed::new();
    for name in ["a", "b"] {
        testbed.node(&node(name, 8));
    }
    let there = |name: &str| json!({"kubernetes.io/hostname": name});
    let low = with(on_port(pod("low", "1")), "/metadata/labels", json!({"app": "db"}));
    testbed.pod(&with(low, "/spec/nodeSelector", there("a")));
    testbed.pod(&with(urgent(on_port(pod("equal", "1"))), "/spec/nodeSelector", there("b")));
    assert_eq!(testbed.settle().len(), 2);
    testbed.budget(&budget("db", json!({"app": "db"}), 0));
    testbed.pod(&urgent(on_port(pod("high", "1"))));
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
    testbed.budget(&budget("db", json!({"app": "db"}), 1));
    assert_eq!(evicted(&testbed.after(1000)), ["low"]);
}

#[test]
fn a_budget_that_opens_frees_a_pod_that_keeps_others_away() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    testbed.pod(&with(apart(pod("low", "1")), "/metadata/labels/tier", json!("db")));
    assert_eq!(testbed.settle().len(), 1);
    testbed.budget(&budget("db", json!({"tier": "db"}), 0));
    testbed.pod(&apart(urgent(pod("high", "1"))));
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
    testbed.budget(&budget("db", json!({"tier": "db"}), 1));
    assert_eq!(evicted(&testbed.after(1000)), ["low"]);
}

#[test]
fn a_pod_that_keeps_others_away_is_a_victim() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    testbed.pod(&apart(pod("low", "1")));
    assert_eq!(testbed.settle().len(), 1);
    testbed.pod(&apart(urgent(pod("high", "1"))));
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["low"]);
    for op in &ops {
        testbed.complete(op);
    }
    assert!(!ops.iter().any(|op| matches!(op.kind, OpKind::Bind(_))));
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [("high".to_owned(), "a".to_owned())]);
}

#[test]
fn nodes_beyond_the_first_trials_are_tried_later() {
    let mut testbed = Testbed::new();
    testbed.budget(&budget("db", json!({"app": "db"}), 0));
    for number in 0..400 {
        let name = format!("n{number:03}");
        testbed.node(&node(&name, 8));
        // Only the holder on the last node may leave.
        let priority = if number == 399 { 1 } else { 1000 };
        let holder = with(on_port(pod(&format!("on-{name}"), "1")), "/spec/nodeName", json!(name));
        let holder = with(holder, "/status/phase", json!("Running"));
        testbed.pod(&with(holder, "/spec/priority", json!(priority)));
    }
    testbed.pod(&urgent(on_port(pod("high", "1"))));
    assert_eq!(evicted(&testbed.ops()), ["on-n399"]);
}
