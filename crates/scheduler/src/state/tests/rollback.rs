//! Rollbacks of claims that fail at first.

use octavo_kube_io::objects::ObjectName;
use serde_json::{Value, json};

use super::claims::{claim, claiming, testbed};
use super::fixtures::{Testbed, gpu_pod, pod, with};
use crate::bind::{Bind, Failure, FailureKind, OpKind, OpResult, WriteOp};

/// The claim of `p`, allocated for it on `b`.
fn allocated(version: &str) -> Value {
    let mut claim = with(claim("p-gpu", "p"), "/metadata/resourceVersion", json!(version));
    claim["status"] = json!({
        "allocation": {
            "devices": {"results": [{
                "request": "gpu", "driver": "gpu.nvidia.com", "pool": "b", "device": "gpu-0",
            }]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["b"]}
            ]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
    });
    claim
}

/// A pod whose claim an earlier scheduler allocated on a node that is full now.
fn half_done() -> Testbed {
    let mut testbed = testbed(&["a", "b"], 1);
    let on_b = json!({"kubernetes.io/hostname": "b"});
    testbed.pod(&with(pod("filler", "64"), "/spec/nodeSelector", on_b));
    assert_eq!(testbed.settle().len(), 1);
    testbed.claim(&allocated("1"));
    testbed.pod(&claiming("p"));
    testbed
}

fn is_undo(op: &WriteOp) -> bool {
    matches!(op.kind, OpKind::Rollback { .. })
}

fn fail(testbed: &mut Testbed, op: &WriteOp, kind: FailureKind) {
    let left = vec![ObjectName::new("team", "p-gpu")];
    let failure = Failure { step: "undo", message: "no".to_owned(), kind, unreleased: left };
    testbed.scheduler.complete_op(&OpResult { id: op.id, result: Err(failure) });
}

#[test]
fn a_failing_rollback_is_retried_with_backoff_and_then_abandoned() {
    let mut testbed = half_done();
    let mut ops = testbed.ops();
    let mut tries = 0;
    let mut waits = Vec::new();
    let mut waited = 0;
    while waited < 3_600 {
        if let [op] = &ops[..] {
            assert!(is_undo(op), "{op:?}");
            tries += 1;
            waits.push(std::mem::take(&mut waited));
            fail(&mut testbed, &op.clone(), FailureKind::Rejected);
        }
        ops = testbed.after(1000);
        waited += 1;
    }
    assert_eq!(tries, 10);
    assert_eq!(waits, [0, 4, 8, 16, 32, 64, 64, 64, 64, 64]);
    assert_eq!(testbed.scheduler.take_abandoned_rollbacks(), 1);
    assert_eq!(testbed.scheduler.take_abandoned_rollbacks(), 0);
    // A user has changed it.
    testbed.claim(&allocated("2"));
    let ops = testbed.ops();
    assert!(ops.len() == 1 && is_undo(&ops[0]), "{ops:?}");
}

#[test]
fn a_pod_is_not_bound_during_its_claims_rollback() {
    let mut testbed = half_done();
    let ops = testbed.ops();
    let [undo] = &ops[..] else { panic!("one: {ops:?}") };
    // The node of the claim has room now.
    testbed.drop_pod("filler");
    assert_eq!(testbed.after(2000), []);
    fail(&mut testbed, undo, FailureKind::Rejected);
    assert_eq!(testbed.settle(), [("p".to_owned(), "b".to_owned())]);
    assert_eq!(testbed.after(60_000), [], "no rollback is needed");
}

#[test]
fn a_rolled_back_claim_can_be_allocated_elsewhere() {
    let mut testbed = half_done();
    let ops = testbed.ops();
    fail(&mut testbed, &ops[0], FailureKind::Unreachable);
    let ops = testbed.after(4000);
    assert!(ops.len() == 1 && is_undo(&ops[0]), "{ops:?}");
    testbed.claim(&with(claim("p-gpu", "p"), "/metadata/resourceVersion", json!("2")));
    testbed.complete(&ops[0]);
    assert_eq!(testbed.settle(), [("p".to_owned(), "a".to_owned())]);
}

#[test]
fn a_rejected_bind_with_a_leftover_claim_is_retried() {
    let mut testbed = testbed(&["b"], 1);
    testbed.claim(&claim("p-gpu", "p"));
    testbed.pod(&claiming("p"));
    let ops = testbed.ops();
    fail(&mut testbed, &ops[0], FailureKind::Rejected);
    testbed.claim(&allocated("2"));
    assert_eq!(testbed.after(999), []);
    let again = testbed.after(1);
    assert!(matches!(&again[..], [op] if matches!(op.kind, OpKind::Bind(_))), "{again:?}");
    testbed.complete(&again[0]);
    assert_eq!(testbed.after(60_000), [], "a bound pod needs no rollback");
}

#[test]
fn a_leftover_claim_is_rolled_back_when_its_pod_is_unschedulable() {
    let mut testbed = testbed(&["b"], 1);
    testbed.claim(&claim("p-gpu", "p"));
    testbed.pod(&claiming("p"));
    let ops = testbed.ops();
    testbed.claim(&allocated("2"));
    fail(&mut testbed, &ops[0], FailureKind::NotLeader);
    testbed.after(0);
    let since = testbed.scheduler.relist_needed_since().expect("another scheduler may have led");
    testbed.scheduler.on_relist(since);
    // A gated pod is not decided on, so nothing is rolled back.
    let gated = with(claiming("p"), "/spec/schedulingGates", json!([{"name": "quota"}]));
    testbed.pod(&gated);
    assert_eq!(testbed.after(10_000), [], "a gated pod needs no rollback");
    testbed.pod(&with(claiming("p"), "/spec/nodeSelector", json!({"no": "node"})));
    let ops = testbed.after(1000);
    assert!(ops.len() == 1 && is_undo(&ops[0]), "{ops:?}");
}

#[test]
fn a_new_term_reschedules_a_pod_with_a_rollback_in_flight() {
    let mut testbed = half_done();
    let ops = testbed.ops();
    let [undo] = &ops[..] else { panic!("one: {ops:?}") };
    testbed.drop_pod("filler");
    assert_eq!(testbed.ops(), [], "it waits for the rollback");
    testbed.scheduler.on_leadership_lost();
    fail(&mut testbed, undo, FailureKind::NotLeader);
    testbed.scheduler.on_leadership_acquired();
    assert_eq!(testbed.settle(), [("p".to_owned(), "b".to_owned())]);
}

#[test]
fn an_abandoned_rollback_is_forgotten_with_its_pod() {
    let mut testbed = half_done();
    let mut ops = testbed.ops();
    while testbed.scheduler.take_abandoned_rollbacks() == 0 {
        for op in ops.iter().filter(|op| is_undo(op)) {
            fail(&mut testbed, op, FailureKind::Rejected);
        }
        ops = testbed.after(1000);
    }
    assert!(testbed.scheduler.operations.has_rollbacks());
    testbed.drop_pod("p");
    assert!(!testbed.scheduler.operations.has_rollbacks());
}

/// The bind of the pod of this name.
fn bind_of(ops: &[WriteOp], pod: &str) -> Bind {
    let mut binds = ops.iter().filter_map(|op| match &op.kind {
        OpKind::Bind(bind) if &*bind.pod.name.name == pod => Some(bind.clone()),
        _ => None,
    });
    binds.next().unwrap_or_else(|| panic!("one for {pod}: {ops:?}"))
}

#[test]
fn rolled_back_claim_stays_assumed_until_its_version_is_observed() {
    let mut testbed = testbed(&["b"], 1);
    testbed.claim(&claim("p-gpu", "p"));
    testbed.pod(&claiming("p"));
    let ops = testbed.ops();
    testbed.fail(&ops[0], FailureKind::Rejected);
    let ops = testbed.after(60_000);
    assert_eq!(&*bind_of(&ops, "p").node, "b");
    testbed.claim(&claim("q-gpu", "q"));
    testbed.pod(&claiming("q"));
    let free = |version| with(claim("p-gpu", "p"), "/metadata/resourceVersion", json!(version));
    for is_done in [false, true] {
        testbed.claim(&allocated("2"));
        assert_eq!(testbed.after(1000), []);
        testbed.claim(&free("3"));
        assert_eq!(testbed.after(1000), [], "its device stays assumed");
        if !is_done {
            // The watch delivers the earlier writes after the result.
            let versions = [("uid-p-gpu".into(), 4)].into();
            let done = OpResult { id: ops[0].id, result: Ok(versions) };
            testbed.scheduler.complete_op(&done);
        }
    }
    testbed.claim(&allocated("4"));
    assert!(!testbed.scheduler.cache.devices().is_assumed("uid-p"));
    testbed.pod(&with(testbed.pods["p"].clone(), "/spec/nodeName", json!("b")));
    let ended = with(testbed.pods["p"].clone(), "/status/phase", json!("Succeeded"));
    testbed.pod(&ended);
    assert_eq!(testbed.after(1000), [], "its claim still holds it");
    testbed.claim(&free("5"));
    assert_eq!(testbed.settle(), [("q".to_owned(), "b".to_owned())]);
}

#[test]
fn rolled_back_extended_claim_stays_assumed_until_its_pod_ends() {
    let mut testbed = testbed(&["b"], 1);
    testbed.pod(&gpu_pod("p", 1));
    let ops = testbed.ops();
    testbed.fail(&ops[0], FailureKind::Rejected);
    let ops = testbed.after(60_000);
    assert!(bind_of(&ops, "p").extended.is_some());
    testbed.pod(&gpu_pod("q", 1));
    let first = with(allocated("2"), "/metadata/uid", json!("uid-first"));
    let annotation = "/metadata/annotations/resource.kubernetes.io~1extended-resource-claim";
    let first = with(first, annotation, json!("true"));
    let second = with(first.clone(), "/metadata/uid", json!("uid-second"));
    testbed.claim(&first);
    assert_eq!(testbed.after(1000), []);
    testbed.drop_claim("p-gpu");
    assert_eq!(testbed.after(1000), [], "its device stays assumed");
    testbed.claim(&second);
    assert_eq!(testbed.scheduler.counts().clashes, 0);
    testbed.drop_pod("p");
    assert_eq!(testbed.after(1000), [], "its claim still holds it");
    testbed.drop_claim("p-gpu");
    assert_eq!(&*bind_of(&testbed.after(1000), "q").node, "b");
}
