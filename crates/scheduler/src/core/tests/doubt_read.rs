//! Orders in doubt of which only a new reading says what became of them.

use serde_json::json;

use super::claims::{bed, claim, claiming};
use super::doubt::{bind_of, free, one, rivals, undecided, written};
use super::kit::with;
use crate::bind::FailureKind;

#[test]
fn an_order_that_something_is_in_the_way_of_for_good_is_decided_anew_after_many_tries() {
    let (mut bed, first) = rivals();
    let mut order = first;
    let mut sent = 1;
    // It is known that the pod is not bound, and what is left cannot be taken back.
    while bed.core.wants_reading().is_none() {
        undecided(&mut bed, &order, FailureKind::Rejected, &["p-gpu"]);
        let orders = bed.after(10_000);
        if !orders.is_empty() {
            order = one(&orders);
            sent += 1;
        }
        assert!(sent < 20, "it is sent again and again");
    }
    assert_eq!(sent, 8);
    let since = bed.core.wants_reading().expect("a reading");
    assert_eq!(bed.after(60_000), [], "until then nobody knows which claims are allocated");
    bed.core.on_relist(since);
    let order = one(&bed.after(0));
    assert_eq!(bed.reason("p").expect("p is told").0, "SchedulerError");
    assert_eq!(&*bind_of(&order).pod.name.name, "q", "the claim is seen free");
}

#[test]
fn what_is_left_of_an_order_that_cannot_be_sent_again_is_given_to_nobody_before_it_is_read() {
    let mut bed = bed(&["a"], 2);
    let mut both = claim("both", "nobody");
    both["metadata"].as_object_mut().expect("metadata").remove("ownerReferences");
    bed.claim(&both);
    for name in ["r", "q"] {
        bed.claim(&claim(&format!("{name}-gpu"), name));
    }
    let shares = json!([{"name": "both", "resourceClaimName": "both"}]);
    let first = with(claiming("p"), "/spec/resourceClaims", shares);
    bed.pod(&with(first, "/spec/containers/0/resources/claims", json!([{"name": "both"}])));
    let first = one(&bed.orders());
    let claims = json!([
        {"name": "gpu", "resourceClaimTemplateName": "one"},
        {"name": "both", "resourceClaimName": "both"},
    ]);
    let second = with(claiming("r"), "/spec/resourceClaims", claims);
    let used = json!([{"name": "gpu"}, {"name": "both"}]);
    bed.pod(&with(second, "/spec/containers/0/resources/claims", used));
    let second = one(&bed.orders());
    bed.pod(&claiming("q"));
    assert_eq!(bed.orders(), [], "both GPUs are given");
    // It joins what the other allocates, so it is not sent again by itself.
    undecided(&mut bed, &second, FailureKind::Conflict, &["r-gpu"]);
    assert_eq!(bed.after(0), []);
    let since = bed.core.wants_reading().expect("a reading");
    bed.carry_out(&first);
    assert_eq!(bed.after(600_000), [], "r-gpu may be allocated");
    bed.core.on_relist(since);
    assert_eq!(bed.after(60_000).len(), 1, "one GPU is free");
}

#[test]
fn an_order_that_is_sent_again_by_who_no_longer_leads_stays_in_doubt() {
    let (mut bed, order) = rivals();
    undecided(&mut bed, &order, FailureKind::Indeterminate, &["p-gpu"]);
    let again = one(&bed.after(1000));
    bed.fail(&again, FailureKind::NotLeader);
    assert_eq!(bed.after(600_000), [], "what was sent before may have bound it");
    let since = bed.core.wants_reading().expect("a reading");
    bed.core.on_relist(since);
    assert_eq!(bed.after(0).len() + bed.after(60_000).len(), 1);
}

#[test]
fn a_claim_that_others_are_on_the_way_to_use_is_theirs_when_the_pod_goes_that_was_to_allocate_it() {
    for goes in [true, false] {
        let mut bed = bed(&["a"], 1);
        let mut both = claim("both", "nobody");
        both["metadata"].as_object_mut().expect("metadata").remove("ownerReferences");
        bed.claim(&both);
        bed.claim(&claim("q-gpu", "q"));
        let mut orders = Vec::new();
        for name in ["p", "r"] {
            let shares = json!([{"name": "both", "resourceClaimName": "both"}]);
            let pod = with(claiming(name), "/spec/resourceClaims", shares);
            bed.pod(&with(pod, "/spec/containers/0/resources/claims", json!([{"name": "both"}])));
            orders.push(one(&bed.orders()));
        }
        bed.pod(&claiming("q"));
        if goes {
            bed.drop_pod("p");
        } else {
            bed.fail(&orders[0], FailureKind::PodGone);
            bed.drop_pod("p");
        }
        let others = bed.after(60_000);
        assert!(others.iter().all(|order| &*bind_of(order).pod.name.name != "q"), "{others:?}");
        // Its order finds that nobody has allocated it.
        bed.fail(&orders[1], FailureKind::Conflict);
        bed.drop_pod("r");
        let order = one(&bed.after(60_000));
        assert_eq!(&*bind_of(&order).pod.name.name, "q");
    }
}

#[test]
fn devices_of_an_order_that_waits_for_a_reading_are_its_own_while_nobody_else_can_have_led() {
    let (mut bed, first) = rivals();
    let mut order = first.clone();
    while bed.core.wants_reading().is_none() {
        undecided(&mut bed, &order, FailureKind::Indeterminate, &["p-gpu"]);
        let orders = bed.after(10_000);
        if !orders.is_empty() {
            order = one(&orders);
        }
    }
    // The first sending is told late, with its undoing; the last may be carried out.
    bed.claim(&written(bind_of(&first), "5"));
    bed.claim(&free("p-gpu", "p", "6"));
    assert_eq!(bed.after(1000), [], "its device is its own");
    let since = bed.core.wants_reading().expect("a reading");
    bed.core.on_relist(since);
    let order = one(&bed.after(0));
    assert_eq!(&*bind_of(&order).pod.name.name, "q", "by now it is known that p is not bound");
}
