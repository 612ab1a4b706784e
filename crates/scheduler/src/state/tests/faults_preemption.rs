//! Faults while victims leave: each ends in a clear condition, and no other pod is held up.

use std::sync::Arc;

use octavo_kube_io::objects::{Change, Delta, Node};
use serde_json::{Value, json};

use super::fixtures::{Testbed, budget, evicted, member, node, pod, pod_group, with};
use crate::bind::{FailureKind, OpKind, WriteOp};
use crate::status::StatusUpdate;

/// Longer than any grace period of these tests and the time beyond it.
const LONG_MS: u64 = 61_000;

fn with_priority(pod: Value, priority: i32) -> Value {
    with(pod, "/spec/priority", json!(priority))
}

fn on(pod: Value, node: &str) -> Value {
    with(pod, "/spec/nodeSelector", json!({"kubernetes.io/hostname": node}))
}

fn of_app(pod: Value, app: &str) -> Value {
    with(pod, "/metadata/labels/app", json!(app))
}

fn placed(name: &str, node: &str) -> (String, String) {
    (name.to_owned(), node.to_owned())
}

fn bound(ops: &[WriteOp]) -> Vec<(String, String)> {
    let binds = ops.iter().filter_map(|op| match &op.kind {
        OpKind::Bind(bind) => Some(placed(&bind.pod.name.name, &bind.node)),
        _ => None,
    });
    let mut bound: Vec<_> = binds.collect();
    bound.sort();
    bound
}

fn complete(testbed: &mut Testbed, ops: &[WriteOp]) {
    for op in ops {
        testbed.complete(op);
    }
}

fn drop_node(testbed: &mut Testbed, value: &Value) {
    let node = Arc::new(Node::from_value(value.clone()).expect("an object"));
    testbed.scheduler.apply(&Change::Node(Delta::Delete(node)));
}

/// The condition of a pod says that no place is free.
fn assert_unschedulable(testbed: &Testbed, pod: &str) {
    let (reason, message) = testbed.reason(pod).expect("a condition");
    assert_eq!(reason, "Unschedulable", "{message}");
    assert!(!message.contains("nominated"), "no place is kept: {message}");
}

/// The message in the last status of a gang.
fn gang_message(testbed: &Testbed) -> Option<String> {
    testbed.reports.iter().rev().find_map(|report| match report {
        StatusUpdate::Group(status) => Some(status.status_text.message.clone()),
        _ => None,
    })
}

/// A pod that fits beside everything else is bound at once.
fn assert_another_is_served(testbed: &mut Testbed, name: &str) {
    testbed.pod(&pod(name, "500m"));
    let bound = testbed.settle();
    assert!(bound.iter().any(|(bound, _)| bound == name), "{name} is held up: {bound:?}");
}

/// Two nodes of four cores, each with a pod that takes three of them. `low-a` is the cheaper victim.
fn two_full_nodes() -> Testbed {
    let mut testbed = Testbed::new();
    for (name, priority) in [("a", 0), ("b", 10)] {
        testbed.node(&node(name, 4));
        testbed.pod(&with_priority(on(pod(&format!("low-{name}"), "3"), name), priority));
    }
    assert_eq!(testbed.settle().len(), 2);
    testbed
}

/// As [`two_full_nodes`], where `low-a` has been told to leave for `high`.
fn nominated() -> Testbed {
    let mut testbed = two_full_nodes();
    testbed.pod(&with_priority(pod("high", "3"), 100));
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["low-a"]);
    complete(&mut testbed, &ops);
    testbed
}

/// Two full nodes, and a gang of two for which both victims have been told to leave.
fn nominated_gang() -> Testbed {
    let mut testbed = two_full_nodes();
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&with_priority(member("g", name, "3"), 100));
    }
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["low-a", "low-b"]);
    complete(&mut testbed, &ops);
    testbed
}

#[test]
fn a_victim_whose_finalizer_never_goes_costs_its_preemptor_a_minute_and_others_nothing() {
    let mut testbed = nominated();
    assert!(testbed.reason("high").expect("a condition").1.contains("waiting for 1 pods to leave"));
    assert_another_is_served(&mut testbed, "beside");
    // The other victim is asked instead, and the stuck one never again.
    let ops = testbed.after(LONG_MS);
    assert_eq!(evicted(&ops), ["low-b"]);
    complete(&mut testbed, &ops);
    testbed.drop_pod("low-b");
    assert_eq!(testbed.settle(), [placed("high", "b")]);
}

#[test]
fn the_only_victim_has_a_finalizer_that_never_goes() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("stuck", "3"));
    testbed.settle();
    testbed.pod(&with_priority(pod("high", "3"), 100));
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["stuck"]);
    complete(&mut testbed, &ops);
    let ops = testbed.after(LONG_MS);
    complete(&mut testbed, &ops);
    assert_unschedulable(&testbed, "high");
    assert_another_is_served(&mut testbed, "beside");
    for _ in 0..10 {
        assert_eq!(evicted(&testbed.after(LONG_MS)), [""; 0]);
    }
    // A place elsewhere is taken at once, and so is this one when the victim goes after all.
    testbed.pod(&with_priority(pod("second", "3"), 50));
    assert_eq!(testbed.settle(), []);
    testbed.node(&node("b", 4));
    testbed.time(1000);
    assert_eq!(testbed.settle(), [placed("high", "b")]);
    testbed.drop_pod("stuck");
    testbed.time(1000);
    assert_eq!(testbed.settle(), [placed("second", "a")]);
}

/// What may happen to a node of a nomination.
fn node_faults() -> [(&'static str, Option<Value>); 4] {
    let taint = |effect| json!([{"key": "node.kubernetes.io/not-ready", "effect": effect}]);
    let not_ready = |effect| {
        let node = with(node("a", 4), "/spec/taints", taint(effect));
        with(node, "/status/conditions", json!([{"type": "Ready", "status": "False"}]))
    };
    [
        ("cordoned", Some(with(node("a", 4), "/spec/unschedulable", json!(true)))),
        ("not ready", Some(not_ready("NoSchedule"))),
        ("not ready for long", Some(not_ready("NoExecute"))),
        ("deleted", None),
    ]
}

fn break_node(testbed: &mut Testbed, broken: Option<&Value>) {
    match broken {
        Some(broken) => testbed.node(broken),
        None => drop_node(testbed, &node("a", 4)),
    }
}

#[test]
fn a_node_that_is_cordoned_lost_or_deleted_while_its_victim_leaves_gets_no_pod() {
    for (what, broken) in node_faults() {
        let mut testbed = nominated();
        break_node(&mut testbed, broken.as_ref());
        let ops = testbed.ops();
        // The search for victims goes on elsewhere.
        assert_eq!(evicted(&ops), ["low-b"], "{what}");
        complete(&mut testbed, &ops);
        testbed.drop_pod("low-a");
        assert_eq!(testbed.settle(), [], "{what}");
        assert_another_is_served(&mut testbed, "beside");
        testbed.drop_pod("low-b");
        assert_eq!(testbed.settle(), [placed("high", "b")], "{what}");
    }
}

#[test]
fn a_node_that_fails_as_its_victim_goes_gets_no_pod() {
    // Both changes arrive in one batch, in either order.
    for (what, broken) in node_faults() {
        let mut testbed = nominated();
        break_node(&mut testbed, broken.as_ref());
        testbed.drop_pod("low-a");
        assert_eq!(bound(&testbed.ops()), [], "{what}, then the victim goes");
        let mut testbed = nominated();
        testbed.drop_pod("low-a");
        break_node(&mut testbed, broken.as_ref());
        let bound = bound(&testbed.ops());
        // It was decided before the node failed. Its binding fails, or the pod is bound and lost.
        assert_eq!(bound, [placed("high", "a")], "the victim goes, then {what}");
    }
}

#[test]
fn a_gang_loses_all_its_places_when_one_of_its_nodes_fails() {
    for (what, broken) in node_faults() {
        let mut testbed = nominated_gang();
        break_node(&mut testbed, broken.as_ref());
        let ops = testbed.ops();
        assert_eq!((evicted(&ops), bound(&ops)), (vec![], vec![]), "{what}");
        complete(&mut testbed, &ops);
        for name in ["m0", "m1"] {
            assert_unschedulable(&testbed, name);
        }
        testbed.drop_pod("low-b");
        assert_eq!(testbed.settle(), [], "half a gang takes nothing: {what}");
        // Its room is free for others, until there is room for the whole gang.
        testbed.pod(&with_priority(pod("other", "3"), 5));
        assert_eq!(testbed.settle(), [placed("other", "b")], "{what}");
        testbed.node(&node("c", 8));
        testbed.time(1000);
        assert_eq!(testbed.settle(), [placed("m0", "c"), placed("m1", "c")], "{what}");
    }
}

#[test]
fn a_preemptor_that_is_deleted_leaves_its_room_to_the_next() {
    let mut testbed = nominated();
    testbed.pod(&with_priority(pod("next", "3"), 5));
    assert_eq!(testbed.settle(), []);
    testbed.drop_pod("high");
    // The victim leaves nevertheless: its eviction cannot be taken back.
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), [""; 0]);
    complete(&mut testbed, &ops);
    testbed.drop_pod("low-a");
    testbed.time(1000);
    assert_eq!(testbed.settle(), [placed("next", "a")]);
}

#[test]
fn a_gang_whose_member_is_deleted_waits_whole_and_keeps_nothing() {
    let mut testbed = nominated_gang();
    testbed.drop_pod("low-a");
    testbed.drop_pod("m1");
    assert_eq!(testbed.settle(), []);
    let message = gang_message(&testbed).expect("a status");
    assert_eq!(message, "the gang has fewer pods than it needs: 1 of 2 members");
    testbed.pod(&with_priority(pod("other", "3"), 5));
    assert_eq!(testbed.settle(), [placed("other", "a")]);
    // With a new member it is decided again: the room is taken, so a victim is needed again.
    testbed.pod(&with_priority(member("g", "m2", "3"), 100));
    let ops = testbed.after(1000);
    assert_eq!((evicted(&ops), bound(&ops)), (vec!["other".to_owned()], vec![]));
    complete(&mut testbed, &ops);
    for name in ["other", "low-b"] {
        testbed.drop_pod(name);
    }
    assert_eq!(testbed.settle().len(), 2);
}

#[test]
fn a_gang_that_is_deleted_while_victims_leave_keeps_nothing() {
    let mut testbed = nominated_gang();
    for name in ["m0", "m1"] {
        testbed.drop_pod(name);
    }
    for name in ["low-a", "low-b"] {
        testbed.drop_pod(name);
    }
    for name in ["p", "q"] {
        testbed.pod(&pod(name, "4"));
    }
    assert_eq!(testbed.settle(), [placed("p", "a"), placed("q", "b")]);
    assert_eq!(testbed.scheduler.counts().nominated, 0);
}

#[test]
fn a_third_pod_of_higher_priority_takes_the_place_and_the_second_waits() {
    let mut testbed = nominated();
    testbed.pod(&with_priority(on(pod("highest", "3"), "a"), 200));
    let ops = testbed.ops();
    // One victim leaves node `a` already. The pod that was to have its place needs another.
    assert_eq!(evicted(&ops), ["low-b"]);
    complete(&mut testbed, &ops);
    assert_another_is_served(&mut testbed, "beside");
    testbed.drop_pod("low-a");
    assert_eq!(testbed.settle(), [placed("highest", "a")]);
    testbed.drop_pod("low-b");
    assert_eq!(testbed.settle(), [placed("high", "b")]);
}

#[test]
fn a_third_pod_of_higher_priority_displaces_a_whole_gang_and_evicts_no_pod_twice() {
    let mut testbed = nominated_gang();
    testbed.pod(&with_priority(on(pod("highest", "3"), "a"), 200));
    let ops = testbed.ops();
    assert_eq!((evicted(&ops), bound(&ops)), (vec![], vec![]));
    complete(&mut testbed, &ops);
    for name in ["m0", "m1"] {
        assert_unschedulable(&testbed, name);
    }
    for name in ["low-a", "low-b"] {
        testbed.drop_pod(name);
    }
    assert_eq!(testbed.settle(), [placed("highest", "a")]);
    // The gang does not fit beside it, so its other place serves any pod.
    testbed.pod(&pod("other", "3"));
    assert_eq!(testbed.settle(), [placed("other", "b")]);
}

/// A full node with two pods of one budget, and a pod for which both must leave.
fn two_victims_of_one_budget() -> (Testbed, Vec<WriteOp>) {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 5));
    for name in ["w1", "w2"] {
        testbed.pod(&of_app(pod(name, "2"), "web"));
    }
    assert_eq!(testbed.settle().len(), 2);
    testbed.budget(&budget("web", json!({"app": "web"}), 2));
    testbed.pod(&with_priority(pod("high", "4"), 100));
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["w1", "w2"]);
    (testbed, ops)
}

fn eviction_of<'a>(ops: &'a [WriteOp], name: &str) -> &'a WriteOp {
    let is_it = |op: &&WriteOp| evicted(std::slice::from_ref(*op)) == [name];
    ops.iter().find(is_it).expect("an eviction")
}

#[test]
fn a_budget_that_closes_before_the_evictions_lets_no_pod_leave() {
    let (mut testbed, ops) = two_victims_of_one_budget();
    testbed.budget(&budget("web", json!({"app": "web"}), 0));
    for op in &ops {
        match &op.kind {
            OpKind::Evict(_) => testbed.fail(op, FailureKind::Budget),
            _ => testbed.complete(op),
        }
    }
    let ops = testbed.ops();
    assert_eq!((evicted(&ops), bound(&ops)), (vec![], vec![]));
    complete(&mut testbed, &ops);
    assert_unschedulable(&testbed, "high");
    assert_another_is_served(&mut testbed, "beside");
    assert_eq!(evicted(&testbed.after(LONG_MS)), [""; 0], "it is closed still");
    testbed.budget(&budget("web", json!({"app": "web"}), 2));
    assert_eq!(evicted(&testbed.after(LONG_MS)), ["w1", "w2"]);
}

#[test]
fn a_budget_that_closes_between_two_evictions_ends_the_preemption() {
    let (mut testbed, ops) = two_victims_of_one_budget();
    testbed.complete(eviction_of(&ops, "w1"));
    testbed.budget(&budget("web", json!({"app": "web"}), 0));
    testbed.fail(eviction_of(&ops, "w2"), FailureKind::Budget);
    for op in ops.iter().filter(|op| !matches!(op.kind, OpKind::Evict(_))) {
        testbed.complete(op);
    }
    let ops = testbed.ops();
    assert_eq!((evicted(&ops), bound(&ops)), (vec![], vec![]));
    complete(&mut testbed, &ops);
    testbed.drop_pod("w1");
    assert_eq!(testbed.settle(), []);
    assert_unschedulable(&testbed, "high");
    // The room of the first victim is kept for no pod.
    testbed.pod(&pod("other", "2"));
    assert_eq!(testbed.settle(), [placed("other", "a")]);
    testbed.drop_pod("other");
    testbed.budget(&budget("web", json!({"app": "web"}), 1));
    let ops = testbed.after(LONG_MS);
    assert_eq!(evicted(&ops), ["w2"]);
    complete(&mut testbed, &ops);
    testbed.drop_pod("w2");
    assert_eq!(testbed.settle(), [placed("high", "a")]);
}

#[test]
fn a_budget_that_closes_after_the_evictions_changes_nothing() {
    let (mut testbed, ops) = two_victims_of_one_budget();
    complete(&mut testbed, &ops);
    testbed.budget(&budget("web", json!({"app": "web"}), 0));
    testbed.drop_pod("w1");
    assert_eq!(testbed.settle(), []);
    testbed.drop_pod("w2");
    assert_eq!(testbed.settle(), [placed("high", "a")]);
}
