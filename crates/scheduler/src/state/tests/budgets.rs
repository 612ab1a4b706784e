//! Plans stay within disruption budgets.

use serde_json::{Value, json};

use super::fixtures::{
    Testbed, budget, evicted, gpu_pod, member, node, plugin_node, pod, pod_group, with,
};

/// A pod of this application on this node.
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

/// Two full nodes with two pods each. The pods on `a` are the cheaper victims. They share a budget
/// with `b1`.
fn two_full_nodes(allowed: i32) -> Testbed {
    let mut testbed = Testbed::new();
    for name in ["a", "b"] {
        testbed.node(&node(name, 4));
    }
    testbed.pod(&of("web", "a1", "2", "a"));
    testbed.pod(&of("web", "a2", "2", "a"));
    testbed.pod(&of("web", "b1", "2", "b"));
    testbed.pod(&with(on(pod("b2", "2"), "b"), "/spec/priority", json!(10)));
    assert_eq!(testbed.settle().len(), 4);
    testbed.budget(&budget("web", json!({"app": "web"}), allowed));
    testbed
}

#[test]
fn no_plan_exceeds_a_budget() {
    let mut testbed = two_full_nodes(2);
    testbed.pod(&urgent("high", "4"));
    assert_eq!(
        evicted(&testbed.ops()),
        ["a1", "a2"],
        "the cheapest victims if the budget allows both"
    );
    let mut testbed = two_full_nodes(1);
    testbed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&testbed.ops()), ["b1", "b2"]);
    let mut testbed = two_full_nodes(0);
    testbed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&testbed.ops()), [""; 0], "no eviction without effect");
    assert_eq!(testbed.reason("high").map(|(reason, _)| reason), Some("Unschedulable"));
}

#[test]
fn a_budget_that_allows_more_requeues_pods() {
    let mut testbed = two_full_nodes(0);
    testbed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
    testbed.budget(&budget("web", json!({"app": "web"}), 1));
    assert_eq!(evicted(&testbed.ops()), [""; 0], "the search for victims backs off");
    assert_eq!(evicted(&testbed.after(1000)), ["b1", "b2"]);
}

#[test]
fn an_eviction_not_yet_observed_counts_against_the_budget() {
    let mut testbed = two_full_nodes(1);
    testbed.pod(&urgent("first", "2"));
    assert_eq!(evicted(&testbed.ops()).len(), 1);
    // The budget's status does not show the eviction yet.
    testbed.pod(&urgent("second", "2"));
    assert_eq!(evicted(&testbed.ops()), ["b2"]);
    testbed.pod(&urgent("third", "2"));
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
}

#[test]
fn a_gang_preempts_within_a_budget() {
    let mut testbed = Testbed::new();
    for name in ["a", "b", "c"] {
        testbed.node(&node(name, 4));
    }
    testbed.pod(&of("web", "w1", "4", "a"));
    testbed.pod(&of("web", "w2", "4", "b"));
    testbed.pod(&with(on(pod("other", "4"), "c"), "/spec/priority", json!(10)));
    testbed.settle();
    testbed.budget(&budget("web", json!({"app": "web"}), 1));
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&with(member("g", name, "4"), "/spec/priority", json!(100)));
    }
    let victims = evicted(&testbed.ops());
    assert!(victims == ["other", "w1"] || victims == ["other", "w2"], "{victims:?}");
}

#[test]
fn a_gang_larger_than_its_budget_allows_is_no_victim() {
    for allowed in [1, 2] {
        let mut testbed = Testbed::new();
        testbed.node(&node("a", 4));
        testbed.object(&pod_group("g", 2, json!({})));
        for name in ["m0", "m1"] {
            testbed.pod(&with(member("g", name, "2"), "/metadata/labels/app", json!("train")));
        }
        assert_eq!(testbed.settle().len(), 2);
        testbed.budget(&budget("train", json!({"app": "train"}), allowed));
        testbed.pod(&urgent("high", "4"));
        let all = if allowed == 2 { vec!["m0", "m1"] } else { vec![] };
        assert_eq!(evicted(&testbed.ops()), all);
    }
}

#[test]
fn surplus_members_are_evicted_within_the_budget() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 6));
    testbed.object(&pod_group("g", 1, json!({})));
    for name in ["m0", "m1", "m2"] {
        testbed.pod(&with(member("g", name, "2"), "/metadata/labels/app", json!("train")));
    }
    assert_eq!(testbed.settle().len(), 3);
    testbed.budget(&budget("train", json!({"app": "train"}), 1));
    testbed.pod(&urgent("large", "4"));
    assert_eq!(evicted(&testbed.ops()), [""; 0], "two victims would be needed");
    testbed.drop_pod("large");
    testbed.pod(&urgent("small", "2"));
    assert_eq!(evicted(&testbed.ops()).len(), 1);
    testbed.pod(&urgent("next", "2"));
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
}

#[test]
fn pods_of_two_budgets_are_no_victims() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&of("web", "low", "4", "a"));
    testbed.settle();
    for name in ["one", "two"] {
        testbed.budget(&budget(name, json!({"app": "web"}), 1));
    }
    testbed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
    testbed.drop_budget(&budget("two", json!({"app": "web"}), 1));
    assert_eq!(evicted(&testbed.after(1000)), ["low"]);
}

#[test]
fn a_budget_change_is_no_departure_for_the_packing_policy() {
    let mut testbed = Testbed::new();
    testbed.node(&plugin_node("a"));
    testbed.pod(&with(gpu_pod("p", 2), "/metadata/labels", json!({"app": "web"})));
    assert_eq!(testbed.settle().len(), 1);
    let learned = testbed.scheduler.snapshot().packing;
    for allowed in [0, 1] {
        testbed.budget(&budget("web", json!({"app": "web"}), allowed));
    }
    assert_eq!(testbed.scheduler.snapshot().packing, learned, "no departure is learned");
    testbed.drop_pod("p");
    assert_ne!(testbed.scheduler.snapshot().packing, learned);
}

#[test]
fn a_pod_spared_for_a_budget_can_be_a_victim_later() {
    let mut testbed = two_full_nodes(1);
    testbed.pod(&urgent("high", "4"));
    for op in testbed.ops() {
        testbed.complete(&op);
    }
    for name in ["b1", "b2"] {
        testbed.drop_pod(name);
    }
    assert_eq!(testbed.settle(), [("high".to_owned(), "b".to_owned())]);
    testbed.budget(&budget("web", json!({"app": "web"}), 2));
    testbed.pod(&urgent("next", "4"));
    assert_eq!(evicted(&testbed.ops()), ["a1", "a2"]);
}

#[test]
fn an_unschedulable_pod_is_retried_when_a_victim_leaves_its_budget() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&of("web", "low", "4", "a"));
    testbed.settle();
    testbed.budget(&budget("web", json!({"app": "web"}), 0));
    testbed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
    testbed.pod(&with(testbed.pods["low"].clone(), "/metadata/labels", json!({"app": "other"})));
    assert_eq!(evicted(&testbed.after(1000)), ["low"]);
}

#[test]
fn only_a_budget_that_allows_more_requeues() {
    let of = |allowed| budget("web", json!({"app": "web"}), allowed);
    let mut testbed = two_full_nodes(1);
    testbed.pod(&pod("equal", "4"));
    let mut is_woken = |change: &dyn Fn(&mut Testbed)| {
        assert_eq!(testbed.ops(), []);
        assert!(!testbed.scheduler.cache.has_changes());
        change(&mut testbed);
        testbed.scheduler.cache.has_changes()
    };
    assert!(!is_woken(&|testbed| testbed.budget(&of(0))), "it allows none");
    assert!(!is_woken(&|testbed| testbed.budget(&of(0))), "it is unchanged");
    assert!(!is_woken(&|testbed| testbed.budget(&budget("new", json!({"app": "web"}), 1))));
    assert!(is_woken(&|testbed| testbed.drop_budget(&budget("new", json!({"app": "web"}), 1))));
    assert!(is_woken(&|testbed| testbed.budget(&of(1))), "it allows one");
    assert!(is_woken(&|testbed| testbed.budget(&of(2))), "it allows two");
    assert!(!is_woken(&|testbed| testbed.budget(&of(1))), "it allows less");
    assert!(is_woken(&|testbed| testbed.budget(&budget("web", json!({"app": "none"}), 1))));
    assert!(is_woken(&|testbed| testbed.drop_budget(&of(1))), "it is gone");
}

#[test]
fn a_nominated_pod_is_displaced_whatever_its_budget_allows() {
    for allowed in [0, 1] {
        let mut testbed = Testbed::new();
        testbed.node(&node("a", 4));
        testbed.pod(&on(pod("low", "4"), "a"));
        testbed.settle();
        testbed.budget(&budget("web", json!({"app": "web"}), allowed));
        testbed.pod(&with(of("web", "middle", "4", "a"), "/spec/priority", json!(50)));
        let ops = testbed.ops();
        assert_eq!(evicted(&ops), ["low"]);
        for op in ops {
            testbed.complete(&op);
        }
        testbed.pod(&urgent("high", "4"));
        assert_eq!(evicted(&testbed.ops()), [""; 0], "the only running pod is leaving already");
        testbed.drop_pod("low");
        assert_eq!(testbed.settle(), [("high".to_owned(), "a".to_owned())]);
    }
}

#[test]
fn one_budget_is_shared_by_the_nodes_of_a_gang() {
    // Each node has a cheap victim of the budget, and one that costs more.
    let mut testbed = Testbed::new();
    for name in ["a", "b", "c"] {
        testbed.node(&node(name, 4));
        testbed.pod(&of("web", &format!("web-{name}"), "2", name));
        let other = on(pod(&format!("other-{name}"), "2"), name);
        testbed.pod(&with(other, "/spec/priority", json!(10)));
    }
    assert_eq!(testbed.settle().len(), 6);
    testbed.budget(&budget("web", json!({"app": "web"}), 1));
    testbed.object(&pod_group("g", 3, json!({})));
    for name in ["m0", "m1", "m2"] {
        testbed.pod(&with(member("g", name, "2"), "/spec/priority", json!(100)));
    }
    let victims = evicted(&testbed.ops());
    assert_eq!(victims.len(), 3, "{victims:?}");
    assert_eq!(victims.iter().filter(|name| name.starts_with("web")).count(), 1, "{victims:?}");
}

#[test]
fn the_budgeted_victim_that_frees_enough_cpu_is_evicted() {
    for (cheap, large) in [("a1", "a2"), ("a2", "a1")] {
        let mut testbed = Testbed::new();
        testbed.node(&node("a", 4));
        for (name, cpu) in [(cheap, "1"), (large, "2")] {
            testbed.pod(&of("web", name, cpu, "a"));
        }
        testbed.pod(&with(on(pod("b", "1"), "a"), "/spec/priority", json!(10)));
        assert_eq!(testbed.settle().len(), 3);
        testbed.budget(&budget("web", json!({"app": "web"}), 1));
        testbed.pod(&urgent("high", "3"));
        assert_eq!(evicted(&testbed.ops()), [large, "b"]);
    }
}

#[test]
fn a_terminating_pod_does_not_count_against_the_budget() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 6));
    testbed.pod(&with(of("web", "going", "2", "a"), "/spec/priority", json!(10)));
    testbed.pod(&of("web", "one", "2", "a"));
    testbed.pod(&of("web", "two", "2", "a"));
    assert_eq!(testbed.settle().len(), 3);
    testbed.budget(&budget("web", json!({"app": "web"}), 1));
    let going = testbed.pods["going"].clone();
    testbed.pod(&with(going, "/metadata/deletionTimestamp", json!("2026-01-01T00:01:00Z")));
    testbed.pod(&urgent("high", "4"));
    assert_eq!(evicted(&testbed.ops()).len(), 1, "the other is terminating");
}

#[test]
fn the_budgeted_victim_with_enough_gpus_is_evicted() {
    for (small, large) in [("a1", "a2"), ("a2", "a1")] {
        let of = |name: &str, gpus: u32, cpu: &str| {
            let pod = with(gpu_pod(name, gpus), "/metadata/labels", json!({"app": "web"}));
            with(pod, "/spec/containers/0/resources/requests", json!({"cpu": cpu}))
        };
        let mut testbed = Testbed::new();
        testbed.node(&plugin_node("a"));
        for pod in [of(small, 1, "8"), of(large, 4, "1")] {
            testbed.pod(&pod);
        }
        testbed.pod(&with(gpu_pod("b", 3), "/spec/priority", json!(10)));
        assert_eq!(testbed.settle().len(), 3);
        testbed.budget(&budget("web", json!({"app": "web"}), 1));
        testbed.pod(&with(gpu_pod("high", 5), "/spec/priority", json!(100)));
        assert_eq!(evicted(&testbed.ops()), [large, "b"]);
    }
}
