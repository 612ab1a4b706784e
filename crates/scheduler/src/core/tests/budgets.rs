//! Disruption budgets bound whom plans disturb.

use serde_json::{Value, json};

use super::kit::{Bed, budget, evicted, gpu_pod, member, node, plugin_node, pod, pod_group, with};

/// A pod that a budget for this application is for, on this node.
fn of(app: &str, name: &str, cpu: &str, node: &str) -> Value {
    let pod = with(pod(name, cpu), "/metadata/labels", json!({"app": app}));
    on(pod, node)
}

fn on(pod: Value, node: &str) -> Value {
    with(pod, "/spec/nodeSelector", json!({"kubernetes.io/hostname": node}))
}

fn urgent(name: &str, cpu: &str) -> Value {
    with(pod(name, cpu), "/spec/priority", json!(100))
}

/// Two nodes, each full of two pods; those on `a` are the cheaper victims, and with `b1` they are of one
/// budget.
fn two_full_nodes(allowed: i32) -> Bed {
    let mut bed = Bed::new();
    for name in ["a", "b"] {
        bed.node(&node(name, 4));
    }
    bed.pod(&of("web", "a1", "2", "a"));
    bed.pod(&of("web", "a2", "2", "a"));
    bed.pod(&of("web", "b1", "2", "b"));
    bed.pod(&with(on(pod("b2", "2"), "b"), "/spec/priority", json!(10)));
    assert_eq!(bed.settle().len(), 4);
    bed.budget(&budget("web", json!({"app": "web"}), allowed));
    bed
}

#[test]
fn no_plan_asks_more_of_a_budget_than_it_allows() {
    let mut bed = two_full_nodes(2);
    bed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&bed.orders()), ["a1", "a2"], "the cheapest where both may go");
    let mut bed = two_full_nodes(1);
    bed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&bed.orders()), ["b1", "b2"]);
    let mut bed = two_full_nodes(0);
    bed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&bed.orders()), [""; 0], "nobody goes in vain");
    assert_eq!(bed.reason("high").map(|(reason, _)| reason), Some("Unschedulable"));
}

#[test]
fn a_budget_that_allows_more_makes_who_was_refused_ready() {
    let mut bed = two_full_nodes(0);
    bed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&bed.orders()), [""; 0]);
    bed.budget(&budget("web", json!({"app": "web"}), 1));
    assert_eq!(evicted(&bed.orders()), ["b1", "b2"]);
}

#[test]
fn who_was_asked_to_leave_and_is_not_seen_to_counts() {
    let mut bed = two_full_nodes(1);
    bed.pod(&urgent("first", "2"));
    assert_eq!(evicted(&bed.orders()).len(), 1);
    // The budget's status does not say so yet.
    bed.pod(&urgent("second", "2"));
    assert_eq!(evicted(&bed.orders()), ["b2"]);
    bed.pod(&urgent("third", "2"));
    assert_eq!(evicted(&bed.orders()), [""; 0]);
}

#[test]
fn a_gang_clears_no_more_nodes_of_a_budget_than_it_allows() {
    let mut bed = Bed::new();
    for name in ["a", "b", "c"] {
        bed.node(&node(name, 4));
    }
    bed.pod(&of("web", "w1", "4", "a"));
    bed.pod(&of("web", "w2", "4", "b"));
    bed.pod(&with(on(pod("other", "4"), "c"), "/spec/priority", json!(10)));
    bed.settle();
    bed.budget(&budget("web", json!({"app": "web"}), 1));
    bed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        bed.pod(&with(member("g", name, "4"), "/spec/priority", json!(100)));
    }
    let victims = evicted(&bed.orders());
    assert!(victims == ["other", "w1"] || victims == ["other", "w2"], "{victims:?}");
}

#[test]
fn a_gang_of_which_a_budget_lets_not_all_go_is_no_victim() {
    for allowed in [1, 2] {
        let mut bed = Bed::new();
        bed.node(&node("a", 4));
        bed.object(&pod_group("g", 2, json!({})));
        for name in ["m0", "m1"] {
            bed.pod(&with(member("g", name, "2"), "/metadata/labels/app", json!("train")));
        }
        assert_eq!(bed.settle().len(), 2);
        bed.budget(&budget("train", json!({"app": "train"}), allowed));
        bed.pod(&urgent("high", "4"));
        let all = if allowed == 2 { vec!["m0", "m1"] } else { vec![] };
        assert_eq!(evicted(&bed.orders()), all);
    }
}

#[test]
fn members_above_the_minimum_leave_one_by_one_as_far_as_the_budget_goes() {
    let mut bed = Bed::new();
    bed.node(&node("a", 6));
    bed.object(&pod_group("g", 1, json!({})));
    for name in ["m0", "m1", "m2"] {
        bed.pod(&with(member("g", name, "2"), "/metadata/labels/app", json!("train")));
    }
    assert_eq!(bed.settle().len(), 3);
    bed.budget(&budget("train", json!({"app": "train"}), 1));
    bed.pod(&urgent("large", "4"));
    assert_eq!(evicted(&bed.orders()), [""; 0], "two would have to go");
    bed.drop_pod("large");
    bed.pod(&urgent("small", "2"));
    assert_eq!(evicted(&bed.orders()).len(), 1);
    bed.pod(&urgent("next", "2"));
    assert_eq!(evicted(&bed.orders()), [""; 0]);
}

#[test]
fn pods_of_two_budgets_cannot_be_evicted_and_are_no_victims() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&of("web", "low", "4", "a"));
    bed.settle();
    for name in ["one", "two"] {
        bed.budget(&budget(name, json!({"app": "web"}), 1));
    }
    bed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&bed.orders()), [""; 0]);
    bed.drop_budget(&budget("two", json!({"app": "web"}), 1));
    assert_eq!(evicted(&bed.orders()), ["low"]);
}

#[test]
fn who_may_not_leave_any_more_has_not_left() {
    let mut bed = Bed::new();
    bed.node(&plugin_node("a"));
    bed.pod(&with(gpu_pod("p", 2), "/metadata/labels", json!({"app": "web"})));
    assert_eq!(bed.settle().len(), 1);
    let learned = bed.core.snapshot().packing;
    for allowed in [0, 1] {
        bed.budget(&budget("web", json!({"app": "web"}), allowed));
    }
    assert_eq!(bed.core.snapshot().packing, learned, "the packing policy counts who leaves");
    bed.drop_pod("p");
    assert_ne!(bed.core.snapshot().packing, learned);
}

#[test]
fn who_was_spared_for_a_budget_is_a_victim_like_any_other_afterwards() {
    let mut bed = two_full_nodes(1);
    bed.pod(&urgent("high", "4"));
    for order in bed.orders() {
        bed.carry_out(&order);
    }
    for name in ["b1", "b2"] {
        bed.drop_pod(name);
    }
    assert_eq!(bed.settle(), [("high".to_owned(), "b".to_owned())]);
    bed.budget(&budget("web", json!({"app": "web"}), 2));
    bed.pod(&urgent("next", "4"));
    assert_eq!(evicted(&bed.orders()), ["a1", "a2"]);
}

#[test]
fn who_was_refused_is_decided_on_anew_when_a_running_pod_leaves_a_closed_budget() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&of("web", "low", "4", "a"));
    bed.settle();
    bed.budget(&budget("web", json!({"app": "web"}), 0));
    bed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&bed.orders()), [""; 0]);
    bed.pod(&with(bed.pods["low"].clone(), "/metadata/labels", json!({"app": "other"})));
    assert_eq!(evicted(&bed.orders()), ["low"]);
}

#[test]
fn only_a_budget_that_lets_more_go_makes_who_was_refused_ready() {
    let of = |allowed| budget("web", json!({"app": "web"}), allowed);
    let mut bed = two_full_nodes(1);
    bed.pod(&pod("equal", "4"));
    let mut is_woken = |change: &dyn Fn(&mut Bed)| {
        assert_eq!(bed.orders(), []);
        assert_eq!(bed.core.counts().ready, 0);
        change(&mut bed);
        bed.core.counts().ready > 0
    };
    assert!(!is_woken(&|bed| bed.budget(&of(0))), "it closes");
    assert!(!is_woken(&|bed| bed.budget(&of(0))), "it is as it was");
    assert!(!is_woken(&|bed| bed.budget(&budget("new", json!({"app": "web"}), 1))));
    assert!(is_woken(&|bed| bed.drop_budget(&budget("new", json!({"app": "web"}), 1))));
    assert!(is_woken(&|bed| bed.budget(&of(1))), "it opens");
    assert!(is_woken(&|bed| bed.budget(&of(2))), "it opens more");
    assert!(!is_woken(&|bed| bed.budget(&of(1))), "it allows less");
    assert!(is_woken(&|bed| bed.budget(&budget("web", json!({"app": "none"}), 1))));
    assert!(is_woken(&|bed| bed.drop_budget(&of(1))), "it is gone");
}

#[test]
fn of_those_of_a_budget_the_one_goes_that_makes_enough_room() {
    for (cheap, large) in [("a1", "a2"), ("a2", "a1")] {
        let mut bed = Bed::new();
        bed.node(&node("a", 4));
        for (name, cpu) in [(cheap, "1"), (large, "2")] {
            bed.pod(&of("web", name, cpu, "a"));
        }
        bed.pod(&with(on(pod("b", "1"), "a"), "/spec/priority", json!(10)));
        assert_eq!(bed.settle().len(), 3);
        bed.budget(&budget("web", json!({"app": "web"}), 1));
        bed.pod(&urgent("high", "3"));
        assert_eq!(evicted(&bed.orders()), [large, "b"]);
    }
}

#[test]
fn who_goes_already_is_not_held_against_a_budget() {
    let mut bed = Bed::new();
    bed.node(&node("a", 6));
    bed.pod(&with(of("web", "going", "2", "a"), "/spec/priority", json!(10)));
    bed.pod(&of("web", "one", "2", "a"));
    bed.pod(&of("web", "two", "2", "a"));
    assert_eq!(bed.settle().len(), 3);
    bed.budget(&budget("web", json!({"app": "web"}), 1));
    let going = bed.pods["going"].clone();
    bed.pod(&with(going, "/metadata/deletionTimestamp", json!("2026-01-01T00:01:00Z")));
    bed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&bed.orders()).len(), 1, "the other is on its way");
}

#[test]
fn of_those_of_a_budget_the_one_goes_that_has_enough_gpus_whatever_else_it_has() {
    for (small, large) in [("a1", "a2"), ("a2", "a1")] {
        let of = |name: &str, gpus: u32, cpu: &str| {
            let pod = with(gpu_pod(name, gpus), "/metadata/labels", json!({"app": "web"}));
            with(pod, "/spec/containers/0/resources/requests", json!({"cpu": cpu}))
        };
        let mut bed = Bed::new();
        bed.node(&plugin_node("a"));
        for pod in [of(small, 1, "8"), of(large, 4, "1")] {
            bed.pod(&pod);
        }
        bed.pod(&with(gpu_pod("b", 3), "/spec/priority", json!(10)));
        assert_eq!(bed.settle().len(), 3);
        bed.budget(&budget("web", json!({"app": "web"}), 1));
        bed.pod(&with(gpu_pod("high", 5), "/spec/priority", json!(100)));
        assert_eq!(evicted(&bed.orders()), [large, "b"]);
    }
}
