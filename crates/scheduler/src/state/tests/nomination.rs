//! What ends a nomination before its pods are bound.

use serde_json::{Value, json};

use super::fixtures::{Testbed, evicted, member, node, pod, pod_group, with};
use crate::bind::{FailureKind, OpKind, WriteOp};
use crate::status::StatusUpdate;

/// Longer than any grace period of these tests and the time beyond it.
const LONG_MS: u64 = 61_000;

fn urgent(name: &str, cpu: &str, priority: i32) -> Value {
    with(pod(name, cpu), "/spec/priority", json!(priority))
}

/// A full node `a`, and `high`, for which `low` has been told to leave it.
fn nominated() -> Testbed {
    nominated_for("3")
}

/// As [`nominated`], where `high` wants so much of the four cores.
fn nominated_for(cpu: &str) -> Testbed {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.pod(&urgent("high", cpu, 100));
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["low"]);
    for op in &ops {
        testbed.complete(op);
    }
    assert_eq!(nominated_node(&testbed, "high"), json!("a"));
    testbed
}

fn nominated_node(testbed: &Testbed, pod: &str) -> Value {
    testbed.pods[pod]["status"]["nominatedNodeName"].clone()
}

fn on(name: &str, node: &str) -> (String, String) {
    (name.to_owned(), node.to_owned())
}

#[test]
fn a_nomination_falls_when_its_node_no_longer_takes_the_pod() {
    let lost = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]);
    let taint = json!([{"key": "maintenance", "effect": "NoSchedule"}]);
    for changed in [
        with(node("a", 4), "/spec/unschedulable", json!(true)),
        with(node("a", 4), "/spec/taints", taint),
        with(node("a", 4), "/spec/taints", lost),
    ] {
        let mut testbed = nominated();
        testbed.node(&changed);
        testbed.settle();
        assert_eq!(nominated_node(&testbed, "high"), Value::Null, "{changed}");
        testbed.node(&node("b", 4));
        assert_eq!(testbed.settle(), [on("high", "b")], "{changed}");
    }
}

#[test]
fn a_nominated_pod_is_not_bound_to_a_node_that_was_cordoned_as_its_victim_left() {
    let mut testbed = nominated();
    testbed.node(&with(node("a", 4), "/spec/unschedulable", json!(true)));
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), []);
}

#[test]
fn a_nominated_pod_that_changes_is_not_bound_to_a_node_that_it_excludes() {
    let mut testbed = nominated();
    // Another selector than the one with which the place was chosen.
    let moved = with(
        testbed.pods["high"].clone(),
        "/spec/nodeSelector",
        json!({"kubernetes.io/hostname": "b"}),
    );
    testbed.pod(&moved);
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), []);
    testbed.node(&node("b", 4));
    assert_eq!(testbed.settle(), [on("high", "b")]);
}

#[test]
fn a_nominated_pod_is_never_evicted() {
    let mut testbed = nominated();
    testbed.pod(&urgent("highest", "3", 200));
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), Vec::<String>::new(), "one leaves already, the other runs nowhere");
    for op in &ops {
        testbed.complete(op);
    }
    assert_eq!(nominated_node(&testbed, "high"), Value::Null);
    assert_eq!(nominated_node(&testbed, "highest"), json!("a"));
    assert_eq!(testbed.settle(), [], "the victim is still there");
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [on("highest", "a")]);
    assert!(testbed.reason("high").is_some_and(|(reason, _)| reason == "Unschedulable"));
}

#[test]
fn a_victim_that_never_ends_holds_nothing_after_its_deadline() {
    let mut testbed = Testbed::new();
    for (name, victim) in [("a", "stuck"), ("b", "quick")] {
        testbed.node(&node(name, 4));
        let at = json!({"kubernetes.io/hostname": name});
        testbed.pod(&with(pod(victim, "3"), "/spec/nodeSelector", at));
    }
    testbed.settle();
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&with(member("g", name, "3"), "/spec/priority", json!(100)));
    }
    let ops = testbed.ops();
    assert_eq!(evicted(&ops).len(), 2);
    for op in &ops {
        testbed.complete(op);
    }
    testbed.drop_pod("quick");
    testbed.pod(&pod("other", "3"));
    assert_eq!(testbed.settle(), [], "the gang has the place");
    let ops = testbed.after(LONG_MS);
    let bound: Vec<_> = ops.iter().filter_map(bound).collect();
    assert_eq!(bound, [on("other", "b")]);
    for op in &ops {
        testbed.complete(op);
    }
    assert_eq!(evicted(&testbed.after(LONG_MS)), Vec::<String>::new());
}

fn bound(op: &WriteOp) -> Option<(String, String)> {
    match &op.kind {
        OpKind::Bind(bind) => Some(on(&bind.pod.name.name, &bind.node)),
        _ => None,
    }
}

#[test]
fn the_deadline_grows_with_the_grace_period_of_the_victim() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&with(pod("low", "3"), "/spec/terminationGracePeriodSeconds", json!(600)));
    testbed.settle();
    testbed.pod(&urgent("high", "3", 100));
    testbed.settle();
    assert_eq!(testbed.after(LONG_MS), []);
    assert_eq!(nominated_node(&testbed, "high"), json!("a"));
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [on("high", "a")]);
}

#[test]
fn a_nominated_pod_takes_a_place_that_became_free_elsewhere() {
    let mut testbed = nominated();
    testbed.node(&node("b", 4));
    assert_eq!(testbed.ops(), [], "a nomination is looked at once a second");
    let ops = testbed.after(1000);
    assert_eq!(ops.iter().filter_map(bound).collect::<Vec<_>>(), [on("high", "b")]);
    for op in &ops {
        testbed.complete(op);
    }
    testbed.drop_pod("low");
    testbed.pod(&pod("other", "4"));
    assert_eq!(testbed.settle(), [on("other", "a")], "nothing is kept on the first node");
}

#[test]
fn a_nominated_gang_takes_places_that_became_free_elsewhere() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&with(member("g", name, "2"), "/spec/priority", json!(100)));
    }
    testbed.settle();
    // It fits only there, and not beside the victim.
    testbed.node(&node("b", 4));
    let ops = testbed.after(1000);
    let bound: Vec<_> = ops.iter().filter_map(bound).collect();
    assert_eq!(bound, [on("m0", "b"), on("m1", "b")]);
}

#[test]
fn a_nomination_outlives_changes_that_do_not_help() {
    let mut testbed = nominated();
    testbed.node(&node("b", 1));
    assert_eq!(testbed.after(1000), []);
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [on("high", "a")]);
}

#[test]
fn the_room_of_a_victim_is_not_given_to_others_before_it_has_left() {
    let mut testbed = nominated_for("2");
    // Beside the nominated pod there will be room for it.
    testbed.pod(&pod("other", "2"));
    assert_eq!(testbed.settle(), [], "the victim still runs");
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [on("high", "a"), on("other", "a")]);
}

#[test]
fn a_nominated_pod_waits_for_the_victims_of_others_in_its_room() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    for name in ["v1", "v2"] {
        testbed.pod(&pod(name, "4"));
    }
    testbed.settle();
    testbed.pod(&urgent("small", "2", 100));
    testbed.settle();
    let leaves = |testbed: &Testbed, name: &str| {
        testbed.pods[name]["metadata"].get("deletionTimestamp").is_some()
    };
    let (of_small, of_large) = if leaves(&testbed, "v1") { ("v1", "v2") } else { ("v2", "v1") };
    testbed.pod(&urgent("large", "6", 100));
    testbed.settle();
    assert!(leaves(&testbed, of_small) && leaves(&testbed, of_large));
    testbed.drop_pod(of_large);
    assert_eq!(testbed.settle(), [], "neither has its room");
    testbed.drop_pod(of_small);
    let mut all = testbed.settle();
    // What could not be bound is tried again with the clock.
    testbed.time(250);
    all.extend(testbed.settle());
    all.sort();
    assert_eq!(all, [on("large", "a"), on("small", "a")]);
}

#[test]
fn the_nominated_node_is_cleared_before_the_watch_has_shown_it() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.pod(&urgent("high", "3", 100));
    let mut ops = testbed.ops();
    testbed.node(&with(node("a", 4), "/spec/unschedulable", json!(true)));
    ops.extend(testbed.ops());
    for op in &ops {
        testbed.complete(op);
    }
    assert_eq!(nominated_node(&testbed, "high"), Value::Null);
}

#[test]
fn a_nominated_node_of_an_earlier_leader_is_cleared() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 1));
    testbed.pod(&with(pod("p", "3"), "/status/nominatedNodeName", json!("a")));
    testbed.settle();
    assert_eq!(nominated_node(&testbed, "p"), Value::Null);
}

#[test]
fn a_nominated_pod_that_another_scheduler_binds_is_not_bound_again() {
    let mut testbed = nominated();
    testbed.node(&node("b", 4));
    testbed.pod(&with(testbed.pods["high"].clone(), "/spec/nodeName", json!("b")));
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), []);
    assert_eq!(testbed.after(LONG_MS), []);
    testbed.pod(&pod("other", "4"));
    assert_eq!(testbed.settle(), [on("other", "a")], "its place is free");
}

#[test]
fn a_victim_that_ended_has_left_although_its_object_stays() {
    let mut testbed = nominated();
    testbed.pod(&with(testbed.pods["low"].clone(), "/status/phase", json!("Failed")));
    assert_eq!(testbed.settle(), [on("high", "a")]);
}

#[test]
fn one_nomination_is_looked_at_in_a_cycle() {
    let mut testbed = Testbed::new();
    for name in ["a", "b"] {
        testbed.node(&node(name, 4));
        testbed.pod(&pod(&format!("low-{name}"), "3"));
    }
    testbed.settle();
    for name in ["p", "q"] {
        testbed.pod(&urgent(name, "3", 100));
    }
    testbed.settle();
    testbed.node(&node("c", 8));
    testbed.time(1000);
    testbed.scheduler.decide();
    let ops = testbed.scheduler.take_ops();
    assert_eq!(ops.iter().filter_map(bound).count(), 1);
    assert_eq!(testbed.ops().iter().filter_map(bound).count(), 1, "the other in the next");
}

/// The nomination's write in `ops` that sets or clears the node.
fn nominate_op(ops: &[WriteOp], is_set: bool) -> &WriteOp {
    let is_wanted = |op: &&WriteOp| matches!(&op.kind, OpKind::Nominate { node, .. } if node.is_some() == is_set);
    ops.iter().find(is_wanted).expect("a write of the nominated node")
}

#[test]
fn a_nominated_node_that_could_not_be_cleared_is_cleared_later() {
    let mut testbed = nominated();
    testbed.node(&with(node("a", 4), "/spec/unschedulable", json!(true)));
    let ops = testbed.ops();
    testbed.fail(nominate_op(&ops, false), FailureKind::Unreachable);
    assert_eq!(nominated_node(&testbed, "high"), json!("a"));
    for op in testbed.after(1000) {
        testbed.complete(&op);
    }
    assert_eq!(nominated_node(&testbed, "high"), Value::Null);
}

#[test]
fn no_pod_is_evicted_for_one_whose_room_is_about_to_be_free() {
    let mut testbed = nominated_for("2");
    testbed.node(&node("b", 3));
    let at = json!({"kubernetes.io/hostname": "b"});
    testbed.pod(&with(pod("unrelated", "3"), "/spec/nodeSelector", at));
    testbed.settle();
    testbed.pod(&urgent("other", "2", 50));
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), Vec::<String>::new());
    for op in &ops {
        testbed.complete(op);
    }
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [on("high", "a"), on("other", "a")]);
}

#[test]
fn members_of_a_gang_fit_together_beside_a_victim_that_still_runs() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    testbed.pod(&pod("low", "6"));
    testbed.settle();
    testbed.pod(&urgent("high", "3", 100));
    testbed.settle();
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "1500m"));
    }
    assert_eq!(testbed.settle(), [], "6 and twice 1.5 are more than 8");
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [on("high", "a"), on("m0", "a"), on("m1", "a")]);
}

#[test]
fn a_nominated_pod_does_not_wait_for_victims_of_others_beside_whom_it_fits() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    let long = json!(600);
    for name in ["v1", "v2"] {
        testbed.pod(&with(pod(name, "4"), "/spec/terminationGracePeriodSeconds", long.clone()));
    }
    testbed.settle();
    testbed.pod(&urgent("small", "2", 100));
    testbed.settle();
    let leaving = |testbed: &Testbed, name: &str| {
        testbed.pods[name]["metadata"].get("deletionTimestamp").is_some()
    };
    let victim = if leaving(&testbed, "v1") { "v1" } else { "v2" };
    testbed.pod(&urgent("large", "6", 100));
    testbed.settle();
    testbed.drop_pod(victim);
    assert_eq!(testbed.settle(), [on("small", "a")], "4 and 2 are at most 8");
}

#[test]
fn the_anti_affinity_of_a_victim_holds_until_it_has_left() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "loud"}},
    }]}});
    // Only kube-scheduler binds pods with such a rule.
    let low = with(pod("low", "7"), "/spec/affinity", apart);
    let low = with(low, "/spec/schedulerName", json!("default-scheduler"));
    testbed.pod(&with(low, "/spec/nodeName", json!("a")));
    testbed.pod(&urgent("high", "2", 100));
    testbed.settle();
    testbed.pod(&with(pod("loud", "1"), "/metadata/labels", json!({"app": "loud"})));
    assert_eq!(testbed.settle(), []);
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [on("high", "a"), on("loud", "a")]);
}

#[test]
fn a_pod_that_another_scheduler_binds_needs_no_condition() {
    let mut testbed = nominated();
    testbed.reports.clear();
    testbed.node(&node("b", 4));
    testbed.pod(&with(testbed.pods["high"].clone(), "/spec/nodeName", json!("b")));
    testbed.settle();
    assert!(testbed.reports.iter().any(|report| {
        matches!(report, StatusUpdate::PodSettled { uid } if &**uid == "uid-high")
    }));
}
