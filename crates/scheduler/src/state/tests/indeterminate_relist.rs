//! Indeterminate binds that only a relist resolves.

use serde_json::json;

use super::claims::{claim, claiming, testbed};
use super::fixtures::with;
use super::indeterminate::{bind_of, end_indeterminate, free, one, rival_pods, written};
use crate::bind::FailureKind;

#[test]
fn a_bind_that_never_succeeds_is_rescheduled_after_many_attempts() {
    let (mut testbed, first) = rival_pods();
    let mut op = first;
    let mut sent = 1;
    // The pod is known to be unbound, and the leftover claim cannot be rolled back.
    while testbed.scheduler.relist_needed_since().is_none() {
        end_indeterminate(&mut testbed, &op, FailureKind::Rejected, &["p-gpu"]);
        let ops = testbed.after(10_000);
        if !ops.is_empty() {
            op = one(&ops);
            sent += 1;
        }
        assert!(sent < 20, "the bind is resubmitted without end");
    }
    assert_eq!(sent, 8);
    let since = testbed.scheduler.relist_needed_since().expect("a needed relist");
    assert_eq!(testbed.after(60_000), [], "the allocated claims are unknown before the relist");
    testbed.scheduler.on_relist(since);
    let op = one(&testbed.after(0));
    assert_eq!(testbed.reason("p").expect("a reason").0, "SchedulerError");
    assert_eq!(&*bind_of(&op).pod.name.name, "q", "the claim was observed without allocation");
}

#[test]
fn leftovers_of_an_indeterminate_bind_stay_assumed_until_the_relist() {
    let mut testbed = testbed(&["a"], 2);
    let mut both = claim("both", "nobody");
    both["metadata"].as_object_mut().expect("metadata").remove("ownerReferences");
    testbed.claim(&both);
    for name in ["r", "q"] {
        testbed.claim(&claim(&format!("{name}-gpu"), name));
    }
    let shares = json!([{"name": "both", "resourceClaimName": "both"}]);
    let first = with(claiming("p"), "/spec/resourceClaims", shares);
    testbed.pod(&with(first, "/spec/containers/0/resources/claims", json!([{"name": "both"}])));
    let first = one(&testbed.ops());
    let claims = json!([
        {"name": "gpu", "resourceClaimTemplateName": "one"},
        {"name": "both", "resourceClaimName": "both"},
    ]);
    let second = with(claiming("r"), "/spec/resourceClaims", claims);
    let used = json!([{"name": "gpu"}, {"name": "both"}]);
    testbed.pod(&with(second, "/spec/containers/0/resources/claims", used));
    let second = one(&testbed.ops());
    testbed.pod(&claiming("q"));
    assert_eq!(testbed.ops(), [], "both GPUs are allocated");
    // Its shared claim is allocated by the other bind, so it is not resubmitted alone.
    end_indeterminate(&mut testbed, &second, FailureKind::Conflict, &["r-gpu"]);
    assert_eq!(testbed.after(0), []);
    let since = testbed.scheduler.relist_needed_since().expect("a needed relist");
    testbed.complete(&first);
    assert_eq!(testbed.after(600_000), [], "r-gpu may be allocated");
    testbed.scheduler.on_relist(since);
    assert_eq!(testbed.after(60_000).len(), 1, "one GPU is free");
}

#[test]
fn a_resubmitted_bind_stays_indeterminate_after_losing_the_lease() {
    let (mut testbed, op) = rival_pods();
    end_indeterminate(&mut testbed, &op, FailureKind::Indeterminate, &["p-gpu"]);
    let again = one(&testbed.after(1000));
    testbed.fail(&again, FailureKind::NotLeader);
    assert_eq!(testbed.after(600_000), [], "an earlier attempt may have bound it");
    let since = testbed.scheduler.relist_needed_since().expect("a needed relist");
    testbed.scheduler.on_relist(since);
    assert_eq!(testbed.after(0).len() + testbed.after(60_000).len(), 1);
}

#[test]
fn shared_claim_stays_allocated_for_other_binds_when_its_allocating_pod_goes() {
    for goes in [true, false] {
        let mut testbed = testbed(&["a"], 1);
        let mut both = claim("both", "nobody");
        both["metadata"].as_object_mut().expect("metadata").remove("ownerReferences");
        testbed.claim(&both);
        testbed.claim(&claim("q-gpu", "q"));
        let mut ops = Vec::new();
        for name in ["p", "r"] {
            let shares = json!([{"name": "both", "resourceClaimName": "both"}]);
            let pod = with(claiming(name), "/spec/resourceClaims", shares);
            testbed.pod(&with(
                pod,
                "/spec/containers/0/resources/claims",
                json!([{"name": "both"}]),
            ));
            ops.push(one(&testbed.ops()));
        }
        testbed.pod(&claiming("q"));
        if goes {
            testbed.drop_pod("p");
        } else {
            testbed.fail(&ops[0], FailureKind::PodGone);
            testbed.drop_pod("p");
        }
        let others = testbed.after(60_000);
        assert!(others.iter().all(|op| &*bind_of(op).pod.name.name != "q"), "{others:?}");
        // Its bind finds that nothing has allocated the claim.
        testbed.fail(&ops[1], FailureKind::Conflict);
        testbed.drop_pod("r");
        let op = one(&testbed.after(60_000));
        assert_eq!(&*bind_of(&op).pod.name.name, "q");
    }
}

#[test]
fn devices_stay_assumed_until_the_relist_while_no_other_leader_is_possible() {
    let (mut testbed, first) = rival_pods();
    let mut op = first.clone();
    while testbed.scheduler.relist_needed_since().is_none() {
        end_indeterminate(&mut testbed, &op, FailureKind::Indeterminate, &["p-gpu"]);
        let ops = testbed.after(10_000);
        if !ops.is_empty() {
            op = one(&ops);
        }
    }
    // The first attempt and its rollback are delivered late; the last attempt may still succeed.
    testbed.claim(&written(bind_of(&first), "5"));
    testbed.claim(&free("p-gpu", "p", "6"));
    assert_eq!(testbed.after(1000), [], "its device stays assumed");
    let since = testbed.scheduler.relist_needed_since().expect("a needed relist");
    testbed.scheduler.on_relist(since);
    let op = one(&testbed.after(0));
    assert_eq!(&*bind_of(&op).pod.name.name, "q", "the relist shows that p is not bound");
}
