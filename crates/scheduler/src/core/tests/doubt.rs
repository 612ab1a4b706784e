//! Orders that end undecided.

use octavo_kube_io::objects::ObjectName;
use serde_json::{Value, json};

use super::claims::{bed, claim, claiming};
use super::kit::{Bed, allocation_json, gpu_pod, member, node, plugin_node, pod, pod_group, with};
use crate::bind::{Bind, Failure, FailureKind, Order, Outcome, Task};

pub(super) fn bind_of(order: &Order) -> &Bind {
    let Task::Bind(bind) = &order.task else { panic!("a binding: {order:?}") };
    bind
}

/// The one order that there is, a binding.
pub(super) fn one(orders: &[Order]) -> Order {
    let [order] = orders else { panic!("one: {orders:?}") };
    bind_of(order);
    order.clone()
}

/// Says that an order ended undecided, and that these claims are left.
pub(super) fn undecided(bed: &mut Bed, order: &Order, kind: FailureKind, left: &[&str]) {
    let left = left.iter().map(|name| ObjectName::new("team", *name)).collect();
    let failure = Failure { stage: "bind", message: "no answer".to_owned(), kind, left };
    bed.core.outcome(&Outcome { id: order.id, result: Err(failure) });
}

/// What an order writes to a claim, as the API shows it.
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

/// The claim with nothing on it.
pub(super) fn free(name: &str, pod: &str, version: &str) -> Value {
    with(claim(name, pod), "/metadata/resourceVersion", json!(version))
}

fn explained(bed: &mut Bed, pod: &str) -> Option<String> {
    let explained = bed.core.explain_pod(&ObjectName::new("team", pod)).expect("the pod");
    explained.waiting.map(|waiting| format!("{}: {}", waiting.reason, waiting.message))
}

/// One node with one GPU, and two pods that want it.
pub(super) fn rivals() -> (Bed, Order) {
    let mut bed = bed(&["a"], 1);
    for name in ["p", "q"] {
        bed.claim(&claim(&format!("{name}-gpu"), name));
    }
    bed.pod(&claiming("p"));
    let order = one(&bed.orders());
    bed.pod(&claiming("q"));
    assert_eq!(bed.orders(), [], "there is one GPU");
    (bed, order)
}

#[test]
fn an_undecided_order_is_sent_again_later_each_time_and_its_place_stays_its_own() {
    let (mut bed, first) = rivals();
    let mut order = first.clone();
    let mut waits = Vec::new();
    for _ in 0..7 {
        undecided(&mut bed, &order, FailureKind::Undecided, &["p-gpu"]);
        let mut waited = 0;
        order = loop {
            waited += 1;
            assert!(waited < 60, "it is sent again");
            let orders = bed.after(1000);
            if !orders.is_empty() {
                break one(&orders);
            }
        };
        waits.push(waited);
        let expected = Bind { is_again: true, ..bind_of(&first).clone() };
        assert_eq!(*bind_of(&order), expected, "as it was");
    }
    assert_eq!(waits, [1, 2, 4, 8, 10, 10, 10]);
    bed.carry_out(&order);
    assert_eq!(bed.after(600_000), [], "it is bound, and q has no GPU");
    assert_eq!(explained(&mut bed, "p"), None);
}

#[test]
fn an_order_that_fails_at_last_with_nothing_left_lets_others_have_its_place() {
    let (mut bed, order) = rivals();
    undecided(&mut bed, &order, FailureKind::Unreachable, &["p-gpu"]);
    let again = one(&bed.after(1000));
    bed.fail(&again, FailureKind::Refused);
    let order = one(&bed.orders());
    assert_eq!(&*bind_of(&order).pod.name.name, "q");
}

#[test]
fn a_pod_without_claims_that_may_be_bound_keeps_its_place() {
    let mut bed = Bed::new();
    bed.node(&plugin_node("a"));
    bed.pod(&gpu_pod("p", 8));
    let order = one(&bed.orders());
    bed.pod(&gpu_pod("q", 8));
    undecided(&mut bed, &order, FailureKind::Undecided, &[]);
    assert_eq!(bed.after(999), [], "its GPUs may be taken");
    let again = one(&bed.after(1));
    assert!(bind_of(&again).is_again);
    bed.carry_out(&again);
    assert_eq!(bed.after(60_000), []);
}

#[test]
fn a_pod_that_is_seen_bound_meanwhile_is_not_asked_for_again() {
    let (mut bed, order) = rivals();
    undecided(&mut bed, &order, FailureKind::Undecided, &["p-gpu"]);
    bed.reports.clear();
    bed.pod(&with(claiming("p"), "/spec/nodeName", json!("a")));
    assert_eq!(bed.after(60_000), []);
    let told = bed.reports.iter().filter(|report| {
        matches!(report, crate::status::Report::PodBound { pod, .. } if &*pod.name.name == "p")
    });
    assert_eq!(told.count(), 1);
}

#[test]
fn a_pod_that_goes_while_its_order_is_in_doubt_leaves_its_place_to_others() {
    for is_sent in [false, true] {
        let (mut bed, order) = rivals();
        undecided(&mut bed, &order, FailureKind::Undecided, &["p-gpu"]);
        let again = is_sent.then(|| one(&bed.after(1000)));
        bed.drop_pod("p");
        let order = one(&bed.after(1000));
        assert_eq!(&*bind_of(&order).pod.name.name, "q");
        if let Some(again) = again {
            bed.fail(&again, FailureKind::PodGone);
        }
        assert_eq!(bed.after(60_000), []);
    }
}

#[test]
fn a_pod_that_others_bind_elsewhere_gives_its_devices_back() {
    let (mut bed, order) = rivals();
    bed.node(&node("b", 64));
    undecided(&mut bed, &order, FailureKind::Undecided, &["p-gpu"]);
    bed.pod(&with(claiming("p"), "/spec/nodeName", json!("b")));
    let order = one(&bed.after(60_000));
    assert_eq!(&*bind_of(&order).pod.name.name, "q");
}

/// The order's own undoing gave the claim back, the watch tells it late, and the order was sent again.
#[test]
fn devices_that_an_order_gave_back_on_its_way_are_its_own_when_a_watch_tells_it_late() {
    let (mut bed, order) = rivals();
    undecided(&mut bed, &order, FailureKind::Unreachable, &["p-gpu"]);
    let again = one(&bed.after(1000));
    bed.claim(&written(bind_of(&again), "5"));
    assert_eq!(bed.orders(), []);
    bed.claim(&free("p-gpu", "p", "6"));
    assert_eq!(bed.orders(), [], "the GPU is not q's");
    // It ends before the watch has told all.
    let outcome = Outcome { id: again.id, result: Ok(()) };
    bed.core.outcome(&outcome);
    assert_eq!(bed.orders(), []);
    bed.claim(&written(bind_of(&again), "5"));
    bed.claim(&free("p-gpu", "p", "6"));
    assert_eq!(bed.orders(), [], "nor is it now");
    bed.claim(&written(bind_of(&again), "7"));
    bed.pod(&with(claiming("p"), "/spec/nodeName", json!("a")));
    assert_eq!(bed.after(600_000), []);
    // Nothing of it stays when the pod goes.
    bed.drop_pod("p");
    bed.claim(&free("p-gpu", "p", "8"));
    assert_eq!(&*bind_of(&one(&bed.orders())).pod.name.name, "q");
}

#[test]
fn what_is_kept_for_a_pod_that_has_ended_is_free() {
    let (mut bed, order) = rivals();
    undecided(&mut bed, &order, FailureKind::Unreachable, &["p-gpu"]);
    let again = one(&bed.after(1000));
    bed.carry_out(&again);
    // It ends at once; of claims and pods either may be told first.
    bed.claim(&free("p-gpu", "p", "9"));
    let ended = with(bed.pods["p"].clone(), "/status/phase", json!("Succeeded"));
    bed.pod(&ended);
    assert_eq!(&*bind_of(&one(&bed.after(1))).pod.name.name, "q");
}

#[test]
fn an_order_whose_devices_were_seen_given_back_before_it_ended_is_not_sent_again() {
    let (mut bed, order) = rivals();
    bed.claim(&written(bind_of(&order), "5"));
    bed.claim(&free("p-gpu", "p", "6"));
    // The GPU is free by all that is known: q has it.
    let other = one(&bed.orders());
    assert_eq!(&*bind_of(&other).pod.name.name, "q");
    undecided(&mut bed, &order, FailureKind::Unreachable, &["p-gpu"]);
    bed.carry_out(&other);
    for order in bed.after(60_000) {
        assert!(!matches!(order.task, Task::Bind(_)), "{order:?}");
    }
}

#[test]
fn an_order_for_a_node_that_is_gone_is_not_sent_again() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("p", "1"));
    let order = one(&bed.orders());
    let a = octavo_kube_io::objects::Node::from_value(node("a", 4)).expect("an object");
    let gone = octavo_kube_io::objects::Delta::Delete(std::sync::Arc::new(a));
    bed.core.apply(&octavo_kube_io::objects::Change::Node(gone));
    undecided(&mut bed, &order, FailureKind::Undecided, &[]);
    bed.node(&node("b", 4));
    assert_eq!(bed.after(60_000), [], "it may be bound");
    let since = bed.core.wants_reading().expect("a reading");
    bed.core.read_anew(since);
    let order = one(&bed.after(60_000));
    assert_eq!(&*bind_of(&order).node, "b");
}

/// Another scheduler may have led: by its outcome, before it, or while the order waits to be sent again.
#[test]
fn an_order_is_not_sent_again_once_another_may_have_led() {
    let cases: [fn(&mut Bed, &Order); 4] = [
        |bed, order| undecided(bed, order, FailureKind::NotLeader, &["p-gpu"]),
        |bed, order| {
            bed.core.stand_down();
            bed.core.stand_up();
            undecided(bed, order, FailureKind::Undecided, &["p-gpu"]);
        },
        |bed, order| {
            undecided(bed, order, FailureKind::Undecided, &["p-gpu"]);
            bed.core.stand_down();
            bed.core.stand_up();
        },
        |bed, order| {
            undecided(bed, order, FailureKind::Undecided, &["p-gpu"]);
            let again = one(&bed.after(1000));
            bed.core.stand_down();
            bed.core.stand_up();
            undecided(bed, &again, FailureKind::Undecided, &["p-gpu"]);
        },
    ];
    for (number, case) in cases.iter().enumerate() {
        let (mut bed, order) = rivals();
        bed.after(5000);
        case(&mut bed, &order);
        assert_eq!(bed.core.wants_reading(), None, "{number}: the time of its end is not told yet");
        assert_eq!(bed.after(7), [], "{number}");
        let since = bed.core.wants_reading().expect("a reading");
        assert_eq!(bed.after(3_600_000), [], "{number}: no wait ends it");
        assert_eq!(bed.core.wants_reading(), Some(since));
        let said = explained(&mut bed, "p").expect("it is in doubt");
        assert!(said.contains("another scheduler may have led"), "{said}");
        // Lists that began before the order's end may not have it.
        bed.core.read_anew(since - 1);
        assert_eq!(bed.after(60_000), [], "{number}");
        bed.core.read_anew(since);
        assert_eq!(bed.core.wants_reading(), None);
        assert_eq!(bed.orders().len(), 1, "{number}: the GPU can be given");
    }
}

/// `NotLeader` is told by one order for all that fly.
#[test]
fn an_order_that_met_another_leader_speaks_for_all_that_were_sent_before() {
    let mut bed = bed(&["a"], 2);
    for name in ["p", "q"] {
        bed.claim(&claim(&format!("{name}-gpu"), name));
        bed.pod(&claiming(name));
    }
    let orders = bed.orders();
    let [p, q] = &orders[..] else { panic!("two: {orders:?}") };
    bed.fail(p, FailureKind::NotLeader);
    undecided(&mut bed, q, FailureKind::Undecided, &["q-gpu"]);
    bed.after(0);
    assert!(bed.core.wants_reading().is_some());
}

#[test]
fn what_is_read_anew_decides_whether_a_pod_is_bound() {
    for is_bound in [false, true] {
        let (mut bed, order) = rivals();
        undecided(&mut bed, &order, FailureKind::NotLeader, &["p-gpu"]);
        bed.after(0);
        let since = bed.core.wants_reading().expect("a reading");
        bed.claim(&written(bind_of(&order), "5"));
        if is_bound {
            bed.pod(&with(claiming("p"), "/spec/nodeName", json!("a")));
        }
        bed.core.read_anew(since);
        bed.after(0);
        let orders = bed.after(1000);
        if is_bound {
            assert_eq!(orders, []);
            continue;
        }
        // Its claim is allocated: what is left is its binding.
        let order = one(&orders);
        assert_eq!(&*bind_of(&order).pod.name.name, "p");
        assert!(bind_of(&order).claims[0].allocation.is_none());
        assert!(!bind_of(&order).is_again);
    }
}

#[test]
fn a_gang_with_a_member_in_doubt_keeps_all_its_places_and_says_so() {
    let mut bed = Bed::new();
    bed.node(&node("a", 2));
    bed.object(&pod_group("g", 2, json!({})));
    bed.pod(&member("g", "m0", "1"));
    bed.pod(&member("g", "m1", "1"));
    let orders = bed.orders();
    let [m0, m1] = &orders[..] else { panic!("two: {orders:?}") };
    bed.carry_out(m0);
    undecided(&mut bed, m1, FailureKind::Undecided, &[]);
    bed.pod(&pod("late", "1"));
    assert_eq!(bed.orders(), [], "its place is kept");
    let group = bed.core.explain_group(&ObjectName::new("team", "g")).expect("the gang");
    let said = group.waiting.expect("a member is in doubt").message;
    assert!(said.contains("team/m1") && said.contains("sent 1 times"), "{said}");
    let again = one(&bed.after(1000));
    let said = explained(&mut bed, "m1").expect("it is in doubt");
    assert!(said.contains("OrderUndecided") && said.contains("being asked again"), "{said}");
    bed.carry_out(&again);
    assert_eq!(bed.after(60_000), []);
}

/// A promise to somebody else waits for victims; an order in doubt is not touched by it.
#[test]
fn a_place_in_doubt_is_not_promised_to_others() {
    let mut bed = Bed::new();
    bed.node(&node("a", 1));
    bed.pod(&with(pod("p", "1"), "/spec/priority", json!(0)));
    let order = one(&bed.orders());
    undecided(&mut bed, &order, FailureKind::Undecided, &[]);
    bed.pod(&with(pod("high", "1"), "/spec/priority", json!(1000)));
    for order in bed.orders() {
        assert!(!matches!(order.task, Task::Bind(_)), "{order:?}");
    }
    let again = bed.after(1000);
    let again = again.iter().find(|order| matches!(order.task, Task::Bind(_)));
    let again = again.expect("it is sent again").clone();
    assert_eq!(&*bind_of(&again).pod.name.name, "p");
}

#[test]
fn orders_of_one_claim_are_sent_again_in_their_order() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    for name in ["z", "y", "x"] {
        bed.pod(&pod(name, "1"));
        let order = one(&bed.orders());
        undecided(&mut bed, &order, FailureKind::Undecided, &[]);
    }
    let names: Vec<_> =
        bed.after(1000).iter().map(|order| bind_of(order).pod.name.name.to_string()).collect();
    assert_eq!(names, ["z", "y", "x"]);
}
