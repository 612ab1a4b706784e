//! Binds with an indeterminate outcome.

use octavo_kube_io::objects::ObjectName;
use serde_json::{Value, json};

use super::claims::{claim, claiming, testbed};
use super::fixtures::{
    Testbed, allocation_json, gpu_pod, member, node, plugin_node, pod, pod_group, with,
};
use crate::bind::{Bind, ClaimVersions, Failure, FailureKind, OpKind, OpResult, WriteOp};

pub(super) fn bind_of(op: &WriteOp) -> &Bind {
    let OpKind::Bind(bind) = &op.kind else { panic!("a binding: {op:?}") };
    bind
}

/// The only operation, which must be a bind.
pub(super) fn one(ops: &[WriteOp]) -> WriteOp {
    let [op] = ops else { panic!("one: {ops:?}") };
    bind_of(op);
    op.clone()
}

/// Ends an operation with an indeterminate outcome and these leftover claims.
pub(super) fn end_indeterminate(
    testbed: &mut Testbed,
    op: &WriteOp,
    kind: FailureKind,
    left: &[&str],
) {
    let left = left.iter().map(|name| ObjectName::new("team", *name)).collect();
    let failure = Failure { step: "bind", message: "no answer".to_owned(), kind, unreleased: left };
    testbed.scheduler.complete_op(&OpResult { id: op.id, result: Err(failure) });
}

/// The claim with the writes of a bind, as the API shows it.
pub(super) fn written(bind: &Bind, version: &str) -> Value {
    let write = &bind.claims[0];
    let name = write.claim.meta.name.name.to_string();
    let mut object =
        with(claim(&name, &bind.pod.name.name), "/metadata/resourceVersion", json!(version));
    let given = write.allocation.as_ref().expect("an allocation");
    object["status"] = json!({
        "allocation": allocation_json(&given.allocation),
        "reservedFor": [{"resource": "pods", "name": &*bind.pod.name.name, "uid": &*bind.pod.uid}],
    });
    object
}

/// The claim without an allocation.
pub(super) fn free(name: &str, pod: &str, version: &str) -> Value {
    with(claim(name, pod), "/metadata/resourceVersion", json!(version))
}

fn explained(testbed: &mut Testbed, pod: &str) -> Option<String> {
    let explained = testbed.scheduler.explain_pod(&ObjectName::new("team", pod)).expect("the pod");
    explained.waiting.map(|waiting| format!("{}: {}", waiting.reason, waiting.message))
}

/// One node with one GPU, and two pods that request it.
pub(super) fn rival_pods() -> (Testbed, WriteOp) {
    let mut testbed = testbed(&["a"], 1);
    for name in ["p", "q"] {
        testbed.claim(&claim(&format!("{name}-gpu"), name));
    }
    testbed.pod(&claiming("p"));
    let op = one(&testbed.ops());
    testbed.pod(&claiming("q"));
    assert_eq!(testbed.ops(), [], "there is one GPU");
    (testbed, op)
}

#[test]
fn an_indeterminate_bind_is_retried_with_backoff_and_stays_assumed() {
    let (mut testbed, first) = rival_pods();
    let mut op = first.clone();
    let mut waits = Vec::new();
    for _ in 0..7 {
        end_indeterminate(&mut testbed, &op, FailureKind::Indeterminate, &["p-gpu"]);
        let mut waited = 0;
        op = loop {
            waited += 1;
            assert!(waited < 60, "the bind is resubmitted");
            let ops = testbed.after(1000);
            if !ops.is_empty() {
                break one(&ops);
            }
        };
        waits.push(waited);
        let expected = Bind { is_retry: true, ..bind_of(&first).clone() };
        assert_eq!(*bind_of(&op), expected, "the bind is unchanged");
    }
    assert_eq!(waits, [1, 2, 4, 8, 10, 10, 10]);
    testbed.complete(&op);
    assert_eq!(testbed.after(600_000), [], "p is bound, and q has no GPU");
    assert_eq!(explained(&mut testbed, "p"), None);
}

#[test]
fn a_bind_that_finally_fails_frees_its_devices() {
    let (mut testbed, op) = rival_pods();
    end_indeterminate(&mut testbed, &op, FailureKind::Unreachable, &["p-gpu"]);
    let again = one(&testbed.after(1000));
    testbed.fail(&again, FailureKind::Rejected);
    let op = one(&testbed.ops());
    assert_eq!(&*bind_of(&op).pod.name.name, "q");
}

#[test]
fn an_indeterminate_bind_without_claims_stays_assumed() {
    let mut testbed = Testbed::new();
    testbed.node(&plugin_node("a"));
    testbed.pod(&gpu_pod("p", 8));
    let op = one(&testbed.ops());
    testbed.pod(&gpu_pod("q", 8));
    end_indeterminate(&mut testbed, &op, FailureKind::Indeterminate, &[]);
    assert_eq!(testbed.after(999), [], "its GPUs may be in use");
    let again = one(&testbed.after(1));
    assert!(bind_of(&again).is_retry);
    testbed.complete(&again);
    assert_eq!(testbed.after(60_000), []);
}

#[test]
fn a_pod_observed_bound_is_not_resubmitted() {
    let (mut testbed, op) = rival_pods();
    end_indeterminate(&mut testbed, &op, FailureKind::Indeterminate, &["p-gpu"]);
    testbed.reports.clear();
    testbed.pod(&with(claiming("p"), "/spec/nodeName", json!("a")));
    assert_eq!(testbed.after(60_000), []);
    let reported = testbed.reports.iter().filter(|report| {
        matches!(report, crate::status::StatusUpdate::PodBound { pod, .. } if &*pod.name.name == "p")
    });
    assert_eq!(reported.count(), 1);
}

#[test]
fn a_deleted_pod_with_an_indeterminate_bind_frees_its_devices() {
    for is_sent in [false, true] {
        let (mut testbed, op) = rival_pods();
        end_indeterminate(&mut testbed, &op, FailureKind::Indeterminate, &["p-gpu"]);
        let again = is_sent.then(|| one(&testbed.after(1000)));
        testbed.drop_pod("p");
        let op = one(&testbed.after(1000));
        assert_eq!(&*bind_of(&op).pod.name.name, "q");
        if let Some(again) = again {
            testbed.fail(&again, FailureKind::PodGone);
        }
        assert_eq!(testbed.after(60_000), []);
    }
}

#[test]
fn a_pod_bound_elsewhere_by_another_frees_its_devices() {
    let (mut testbed, op) = rival_pods();
    testbed.node(&node("b", 64));
    end_indeterminate(&mut testbed, &op, FailureKind::Indeterminate, &["p-gpu"]);
    testbed.pod(&with(claiming("p"), "/spec/nodeName", json!("b")));
    let op = one(&testbed.after(60_000));
    assert_eq!(&*bind_of(&op).pod.name.name, "q");
}

/// The bind's own rollback released the claim, the watch delivers that late, and the bind was
/// resubmitted.
#[test]
fn devices_rolled_back_between_attempts_stay_assumed() {
    let (mut testbed, op) = rival_pods();
    end_indeterminate(&mut testbed, &op, FailureKind::Unreachable, &["p-gpu"]);
    let again = one(&testbed.after(1000));
    testbed.claim(&written(bind_of(&again), "5"));
    assert_eq!(testbed.ops(), []);
    testbed.claim(&free("p-gpu", "p", "6"));
    assert_eq!(testbed.ops(), [], "the GPU stays assumed for p");
    // The bind ends before the watch has delivered everything.
    let outcome = OpResult { id: again.id, result: Ok(ClaimVersions::new()) };
    testbed.scheduler.complete_op(&outcome);
    assert_eq!(testbed.ops(), []);
    testbed.claim(&written(bind_of(&again), "5"));
    testbed.claim(&free("p-gpu", "p", "6"));
    assert_eq!(testbed.ops(), [], "the GPU still stays assumed");
    testbed.claim(&written(bind_of(&again), "7"));
    testbed.pod(&with(claiming("p"), "/spec/nodeName", json!("a")));
    assert_eq!(testbed.after(600_000), []);
    // Nothing of it stays when the pod is deleted.
    testbed.drop_pod("p");
    testbed.claim(&free("p-gpu", "p", "8"));
    assert_eq!(&*bind_of(&one(&testbed.ops())).pod.name.name, "q");
}

#[test]
fn assumed_devices_of_an_ended_pod_are_free() {
    let (mut testbed, op) = rival_pods();
    end_indeterminate(&mut testbed, &op, FailureKind::Unreachable, &["p-gpu"]);
    let again = one(&testbed.after(1000));
    testbed.complete(&again);
    // The pod ends at once. The events of claims and pods may come in either order.
    testbed.claim(&free("p-gpu", "p", "9"));
    let ended = with(testbed.pods["p"].clone(), "/status/phase", json!("Succeeded"));
    testbed.pod(&ended);
    assert_eq!(&*bind_of(&one(&testbed.after(1))).pod.name.name, "q");
}

#[test]
fn a_pod_that_ended_before_the_result_of_its_bind_frees_its_devices() {
    let (mut testbed, op) = rival_pods();
    let bound = with(claiming("p"), "/spec/nodeName", json!("a"));
    testbed.pod(&with(bound, "/status/phase", json!("Succeeded")));
    testbed.claim(&free("p-gpu", "p", "9"));
    end_indeterminate(&mut testbed, &op, FailureKind::Indeterminate, &["p-gpu"]);
    assert_eq!(&*bind_of(&one(&testbed.after(1))).pod.name.name, "q");
}

#[test]
fn devices_of_a_bind_in_flight_stay_assumed_though_its_rollback_is_observed() {
    let (mut testbed, op) = rival_pods();
    testbed.claim(&written(bind_of(&op), "5"));
    testbed.claim(&free("p-gpu", "p", "6"));
    assert_eq!(testbed.ops(), [], "the bind may still write");
    testbed.fail(&op, FailureKind::Rejected);
    assert_eq!(&*bind_of(&one(&testbed.ops())).pod.name.name, "q");
}

#[test]
fn a_bind_to_a_deleted_node_is_not_resubmitted() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("p", "1"));
    let op = one(&testbed.ops());
    let a = octavo_kube_io::objects::Node::from_value(node("a", 4)).expect("an object");
    let gone = octavo_kube_io::objects::Delta::Delete(std::sync::Arc::new(a));
    testbed.scheduler.apply(&octavo_kube_io::objects::Change::Node(gone));
    end_indeterminate(&mut testbed, &op, FailureKind::Indeterminate, &[]);
    testbed.node(&node("b", 4));
    assert_eq!(testbed.after(60_000), [], "it may be bound");
    let since = testbed.scheduler.relist_needed_since().expect("a needed relist");
    testbed.scheduler.on_relist(since);
    let op = one(&testbed.after(60_000));
    assert_eq!(&*bind_of(&op).node, "b");
}

/// Another scheduler may have led: by the result, before the result, or before the next attempt.
#[test]
fn a_bind_is_not_resubmitted_after_a_leadership_gap() {
    let cases: [fn(&mut Testbed, &WriteOp); 4] = [
        |testbed, op| end_indeterminate(testbed, op, FailureKind::NotLeader, &["p-gpu"]),
        |testbed, op| {
            testbed.scheduler.on_leadership_lost();
            testbed.scheduler.on_leadership_acquired();
            end_indeterminate(testbed, op, FailureKind::Indeterminate, &["p-gpu"]);
        },
        |testbed, op| {
            end_indeterminate(testbed, op, FailureKind::Indeterminate, &["p-gpu"]);
            testbed.scheduler.on_leadership_lost();
            testbed.scheduler.on_leadership_acquired();
        },
        |testbed, op| {
            end_indeterminate(testbed, op, FailureKind::Indeterminate, &["p-gpu"]);
            let again = one(&testbed.after(1000));
            testbed.scheduler.on_leadership_lost();
            testbed.scheduler.on_leadership_acquired();
            end_indeterminate(testbed, &again, FailureKind::Indeterminate, &["p-gpu"]);
        },
    ];
    for (number, case) in cases.iter().enumerate() {
        let (mut testbed, op) = rival_pods();
        testbed.after(5000);
        case(&mut testbed, &op);
        assert_eq!(
            testbed.scheduler.relist_needed_since(),
            None,
            "{number}: its end has no time before the next tick"
        );
        assert_eq!(testbed.after(7), [], "{number}");
        let since = testbed.scheduler.relist_needed_since().expect("a needed relist");
        assert_eq!(testbed.after(3_600_000), [], "{number}: no timeout ends it");
        assert_eq!(testbed.scheduler.relist_needed_since(), Some(since));
        let message = explained(&mut testbed, "p").expect("an indeterminate bind");
        assert!(message.contains("another scheduler may have led"), "{message}");
        // Lists that began before the end of the bind may lack it.
        testbed.scheduler.on_relist(since - 1);
        assert_eq!(testbed.after(60_000), [], "{number}");
        testbed.scheduler.on_relist(since);
        assert_eq!(testbed.scheduler.relist_needed_since(), None);
        assert_eq!(testbed.ops().len(), 1, "{number}: the GPU can be allocated");
    }
}

/// `NotLeader` of one operation applies to all operations in flight.
#[test]
fn not_leader_applies_to_all_operations_in_flight() {
    let mut testbed = testbed(&["a"], 2);
    for name in ["p", "q"] {
        testbed.claim(&claim(&format!("{name}-gpu"), name));
        testbed.pod(&claiming(name));
    }
    let ops = testbed.ops();
    let [p, q] = &ops[..] else { panic!("two: {ops:?}") };
    testbed.fail(p, FailureKind::NotLeader);
    end_indeterminate(&mut testbed, q, FailureKind::Indeterminate, &["q-gpu"]);
    testbed.after(0);
    assert!(testbed.scheduler.relist_needed_since().is_some());
}

#[test]
fn the_relist_decides_whether_a_pod_is_bound() {
    for is_bound in [false, true] {
        let (mut testbed, op) = rival_pods();
        end_indeterminate(&mut testbed, &op, FailureKind::NotLeader, &["p-gpu"]);
        testbed.after(0);
        let since = testbed.scheduler.relist_needed_since().expect("a needed relist");
        testbed.claim(&written(bind_of(&op), "5"));
        if is_bound {
            testbed.pod(&with(claiming("p"), "/spec/nodeName", json!("a")));
        }
        testbed.scheduler.on_relist(since);
        testbed.after(0);
        let ops = testbed.after(1000);
        if is_bound {
            assert_eq!(ops, []);
            continue;
        }
        // Its claim is allocated, so only the binding is left to write.
        let op = one(&ops);
        assert_eq!(&*bind_of(&op).pod.name.name, "p");
        assert!(bind_of(&op).claims[0].allocation.is_none());
        assert!(!bind_of(&op).is_retry);
    }
}

#[test]
fn a_gang_with_an_indeterminate_member_keeps_its_places() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 2));
    testbed.object(&pod_group("g", 2, json!({})));
    testbed.pod(&member("g", "m0", "1"));
    testbed.pod(&member("g", "m1", "1"));
    let ops = testbed.ops();
    let [m0, m1] = &ops[..] else { panic!("two: {ops:?}") };
    testbed.complete(m0);
    end_indeterminate(&mut testbed, m1, FailureKind::Indeterminate, &[]);
    testbed.pod(&pod("late", "1"));
    assert_eq!(testbed.ops(), [], "its place stays assumed");
    let group = testbed.scheduler.explain_group(&ObjectName::new("team", "g")).expect("the gang");
    let message = group.waiting.expect("an indeterminate member").message;
    assert!(message.contains("team/m1") && message.contains("attempt 1 of 8"), "{message}");
    let again = one(&testbed.after(1000));
    let message = explained(&mut testbed, "m1").expect("an indeterminate bind");
    assert!(
        message.contains("OrderUndecided") && message.contains("another attempt is in flight"),
        "{message}"
    );
    testbed.complete(&again);
    assert_eq!(testbed.after(60_000), []);
}

/// A nomination waits for victims, and must not touch an indeterminate bind.
#[test]
fn the_place_of_an_indeterminate_bind_is_not_nominated() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 1));
    testbed.pod(&with(pod("p", "1"), "/spec/priority", json!(0)));
    let op = one(&testbed.ops());
    end_indeterminate(&mut testbed, &op, FailureKind::Indeterminate, &[]);
    testbed.pod(&with(pod("high", "1"), "/spec/priority", json!(1000)));
    for op in testbed.ops() {
        assert!(!matches!(op.kind, OpKind::Bind(_)), "{op:?}");
    }
    let again = testbed.after(1000);
    let again = again.iter().find(|op| matches!(op.kind, OpKind::Bind(_)));
    let again = again.expect("the bind is resubmitted").clone();
    assert_eq!(&*bind_of(&again).pod.name.name, "p");
}

#[test]
fn binds_are_resubmitted_in_their_first_order() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    for name in ["z", "y", "x"] {
        testbed.pod(&pod(name, "1"));
        let op = one(&testbed.ops());
        end_indeterminate(&mut testbed, &op, FailureKind::Indeterminate, &[]);
    }
    let names: Vec<_> =
        testbed.after(1000).iter().map(|op| bind_of(op).pod.name.name.to_string()).collect();
    assert_eq!(names, ["z", "y", "x"]);
}
