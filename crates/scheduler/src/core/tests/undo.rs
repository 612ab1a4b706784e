//! Claims that cannot be taken back at once.

use octavo_kube_io::objects::ObjectName;
use serde_json::{Value, json};

use super::claims::{bed, claim, claiming};
use super::kit::{Bed, gpu_pod, pod, with};
use crate::bind::{Bind, Failure, FailureKind, OpKind, OpResult, WriteOp};

/// The claim of `p`, allocated on `b` for it.
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
fn half_done() -> Bed {
    let mut bed = bed(&["a", "b"], 1);
    let on_b = json!({"kubernetes.io/hostname": "b"});
    bed.pod(&with(pod("filler", "64"), "/spec/nodeSelector", on_b));
    assert_eq!(bed.settle().len(), 1);
    bed.claim(&allocated("1"));
    bed.pod(&claiming("p"));
    bed
}

fn is_undo(order: &WriteOp) -> bool {
    matches!(order.kind, OpKind::Rollback { .. })
}

fn fail(bed: &mut Bed, order: &WriteOp, kind: FailureKind) {
    let left = vec![ObjectName::new("team", "p-gpu")];
    let failure = Failure { step: "undo", message: "no".to_owned(), kind, unreleased: left };
    bed.core.outcome(&OpResult { id: order.id, result: Err(failure) });
}

#[test]
fn a_claim_that_is_not_given_back_is_asked_for_again_later_each_time_until_it_is_given_up() {
    let mut bed = half_done();
    let mut orders = bed.orders();
    let mut tries = 0;
    let mut waits = Vec::new();
    let mut waited = 0;
    while waited < 3_600 {
        if let [order] = &orders[..] {
            assert!(is_undo(order), "{order:?}");
            tries += 1;
            waits.push(std::mem::take(&mut waited));
            fail(&mut bed, &order.clone(), FailureKind::Rejected);
        }
        orders = bed.after(1000);
        waited += 1;
    }
    assert_eq!(tries, 10);
    assert_eq!(waits, [0, 4, 8, 16, 32, 64, 64, 64, 64, 64]);
    assert_eq!(bed.core.take_given_up(), 1);
    assert_eq!(bed.core.take_given_up(), 0);
    // Somebody has touched it.
    bed.claim(&allocated("2"));
    let orders = bed.orders();
    assert!(orders.len() == 1 && is_undo(&orders[0]), "{orders:?}");
}

#[test]
fn a_pod_is_not_bound_with_a_claim_that_is_just_taken_from_it() {
    let mut bed = half_done();
    let orders = bed.orders();
    let [undo] = &orders[..] else { panic!("one: {orders:?}") };
    // There is room now where the claim is.
    bed.drop_pod("filler");
    assert_eq!(bed.after(2000), []);
    fail(&mut bed, undo, FailureKind::Rejected);
    assert_eq!(bed.settle(), [("p".to_owned(), "b".to_owned())]);
    assert_eq!(bed.after(60_000), [], "there is nothing to take back");
}

#[test]
fn what_was_taken_back_lets_the_pod_go_elsewhere() {
    let mut bed = half_done();
    let orders = bed.orders();
    fail(&mut bed, &orders[0], FailureKind::Unreachable);
    let orders = bed.after(4000);
    assert!(orders.len() == 1 && is_undo(&orders[0]), "{orders:?}");
    bed.claim(&with(claim("p-gpu", "p"), "/metadata/resourceVersion", json!("2")));
    bed.carry_out(&orders[0]);
    assert_eq!(bed.settle(), [("p".to_owned(), "a".to_owned())]);
}

#[test]
fn a_refused_order_whose_claim_stayed_allocated_is_sent_again() {
    let mut bed = bed(&["b"], 1);
    bed.claim(&claim("p-gpu", "p"));
    bed.pod(&claiming("p"));
    let orders = bed.orders();
    fail(&mut bed, &orders[0], FailureKind::Rejected);
    bed.claim(&allocated("2"));
    assert_eq!(bed.after(999), []);
    let again = bed.after(1);
    assert!(matches!(&again[..], [order] if matches!(order.kind, OpKind::Bind(_))), "{again:?}");
    bed.carry_out(&again[0]);
    assert_eq!(bed.after(60_000), [], "it is bound: nothing is taken back");
}

#[test]
fn a_refused_order_whose_claim_stayed_allocated_gives_it_back_where_the_pod_finds_no_place() {
    let mut bed = bed(&["b"], 1);
    bed.claim(&claim("p-gpu", "p"));
    bed.pod(&claiming("p"));
    let orders = bed.orders();
    bed.claim(&allocated("2"));
    fail(&mut bed, &orders[0], FailureKind::NotLeader);
    bed.after(0);
    let since = bed.core.wants_reading().expect("another may have led");
    bed.core.on_relist(since);
    // It asks for more than there is from now on, and is not decided on for its gate's sake.
    let gated = with(claiming("p"), "/spec/schedulingGates", json!([{"name": "quota"}]));
    bed.pod(&gated);
    assert_eq!(bed.after(10_000), [], "who is gated is not touched");
    bed.pod(&with(claiming("p"), "/spec/nodeSelector", json!({"no": "node"})));
    let orders = bed.after(1000);
    assert!(orders.len() == 1 && is_undo(&orders[0]), "{orders:?}");
}

#[test]
fn who_leads_again_decides_anew_on_a_pod_from_which_a_claim_was_just_taken() {
    let mut bed = half_done();
    let orders = bed.orders();
    let [undo] = &orders[..] else { panic!("one: {orders:?}") };
    bed.drop_pod("filler");
    assert_eq!(bed.orders(), [], "it waits for what becomes of its claim");
    bed.core.stand_down();
    fail(&mut bed, undo, FailureKind::NotLeader);
    bed.core.stand_up();
    assert_eq!(bed.settle(), [("p".to_owned(), "b".to_owned())]);
}

#[test]
fn what_was_given_up_is_forgotten_when_its_pod_goes() {
    let mut bed = half_done();
    let mut orders = bed.orders();
    while bed.core.take_given_up() == 0 {
        for order in orders.iter().filter(|order| is_undo(order)) {
            fail(&mut bed, order, FailureKind::Rejected);
        }
        orders = bed.after(1000);
    }
    assert!(!bed.core.undos.is_empty());
    bed.drop_pod("p");
    assert!(bed.core.undos.is_empty());
}

/// The order that binds the pod of this name.
fn bind_of(orders: &[WriteOp], pod: &str) -> Bind {
    let mut binds = orders.iter().filter_map(|order| match &order.kind {
        OpKind::Bind(bind) if &*bind.pod.name.name == pod => Some(bind.clone()),
        _ => None,
    });
    binds.next().unwrap_or_else(|| panic!("one for {pod}: {orders:?}"))
}

#[test]
fn a_claim_that_was_taken_back_is_looked_at_before_its_pod_is_bound_with_it() {
    for is_rolled_back in [false, true] {
        let mut bed = half_done();
        let orders = bed.orders();
        if is_rolled_back {
            bed.carry_out(&orders[0]);
        } else {
            // Somebody else leads, and all is read anew.
            bed.core.stand_down();
            bed.after(0);
            bed.core.on_relist(0);
            bed.core.stand_up();
        }
        // The watch shows it as it was.
        bed.drop_pod("filler");
        let bind = bind_of(&bed.after(1000), "p");
        assert!(bind.claims[0].allocation.is_none());
        assert_eq!(bind.is_retry, is_rolled_back);
    }
}

#[test]
fn a_claim_that_an_order_of_before_took_back_frees_nothing_when_that_is_told_until_its_pod_has_ended()
 {
    let mut bed = bed(&["b"], 1);
    bed.claim(&claim("p-gpu", "p"));
    bed.pod(&claiming("p"));
    let orders = bed.orders();
    bed.fail(&orders[0], FailureKind::Rejected);
    let orders = bed.after(60_000);
    assert_eq!(&*bind_of(&orders, "p").node, "b");
    bed.claim(&claim("q-gpu", "q"));
    bed.pod(&claiming("q"));
    let free = |version| with(claim("p-gpu", "p"), "/metadata/resourceVersion", json!(version));
    for is_done in [false, true] {
        bed.claim(&allocated("2"));
        assert_eq!(bed.after(1000), []);
        bed.claim(&free("3"));
        assert_eq!(bed.after(1000), [], "its device is its own");
        if !is_done {
            bed.carry_out(&orders[0]);
        }
    }
    bed.claim(&allocated("4"));
    let ended = with(bed.pods["p"].clone(), "/status/phase", json!("Succeeded"));
    bed.pod(&ended);
    assert_eq!(bed.after(1000), [], "its claim still has it");
    bed.claim(&free("5"));
    assert_eq!(bed.settle(), [("q".to_owned(), "b".to_owned())]);
}

#[test]
fn an_extended_claim_that_an_order_of_before_took_back_frees_nothing_when_that_is_told() {
    let mut bed = bed(&["b"], 1);
    bed.pod(&gpu_pod("p", 1));
    let orders = bed.orders();
    bed.fail(&orders[0], FailureKind::Rejected);
    let orders = bed.after(60_000);
    assert!(bind_of(&orders, "p").extended.is_some());
    bed.pod(&gpu_pod("q", 1));
    let first = with(allocated("2"), "/metadata/uid", json!("uid-first"));
    let annotation = "/metadata/annotations/resource.kubernetes.io~1extended-resource-claim";
    let first = with(first, annotation, json!("true"));
    let second = with(first.clone(), "/metadata/uid", json!("uid-second"));
    bed.claim(&first);
    assert_eq!(bed.after(1000), []);
    bed.drop_claim("p-gpu");
    assert_eq!(bed.after(1000), [], "its device is its own");
    bed.claim(&second);
    assert_eq!(bed.core.counts().clashes, 0);
    bed.drop_pod("p");
    assert_eq!(bed.after(1000), [], "its claim still has it");
    bed.drop_claim("p-gpu");
    assert_eq!(&*bind_of(&bed.after(1000), "q").node, "b");
}
