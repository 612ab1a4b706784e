//! Ends of loans before the last victim has left: the nominated pods have a place without it, or
//! another nomination keeps room beside the borrowers.

use serde_json::{Value, json};

use super::fixtures::{Testbed, evicted, gpu_pod, node, pod, with};
use super::loans::{GRACE, HOUR_MS, NODES, carry_out, explained, is_leaving, lending, on_a};

const CPU: &str = "/spec/containers/0/resources/requests/cpu";
const NEVER: (&str, &str) = ("/spec/preemptionPolicy", "Never");

fn of_priority(pod: Value, priority: i32) -> Value {
    with(pod, "/spec/priority", json!(priority))
}

/// A pod that is worth a loan of its place: it keeps CPU for borrowers, too.
fn roomy(pod: Value) -> Value {
    with(pod, "/spec/containers/0/resources/requests/cpu", json!("8"))
}

fn slow(pod: Value) -> Value {
    with(pod, GRACE, json!(3600))
}

#[test]
fn a_higher_priority_takes_the_place_and_needs_no_borrower_to_stay() {
    for add_node in NODES {
        let mut testbed = lending(add_node);
        let lows: Vec<_> = (0..6).map(|number| format!("low{number}")).collect();
        let lows: Vec<&str> = lows.iter().map(String::as_str).collect();
        for name in &lows {
            testbed.pod(&gpu_pod(name, 1));
        }
        assert_eq!(testbed.settle(), on_a(&lows));
        testbed.pod(&of_priority(gpu_pod("top", 2), 200));
        let ops = testbed.ops();
        assert_eq!(evicted(&ops), lows);
        carry_out(&mut testbed, &ops);
        testbed.pod(&gpu_pod("late", 1));
        testbed.settle();
        assert_eq!(explained(&testbed, "late"), None, "nothing is lent any more");
        for name in &lows {
            testbed.drop_pod(name);
        }
        testbed.time(1000);
        assert_eq!(testbed.settle(), on_a(&["top"]), "v0 still runs");
    }
}

#[test]
fn a_higher_priority_gets_the_cores_of_a_borrower_that_are_not_kept() {
    let cores = |pod, cores: &str| with(pod, CPU, json!(cores));
    for add_node in NODES {
        // Eight of 64 cores are kept for the gang. Its last victim uses one.
        let mut testbed = lending(add_node);
        testbed.pod(&cores(gpu_pod("low", 1), "50"));
        assert_eq!(testbed.settle(), on_a(&["low"]));
        testbed.pod(&pod("equal", "20"));
        testbed.pod(&of_priority(pod("huge", "57"), 50));
        testbed.pod(&with(of_priority(pod("mild", "20"), 1000), NEVER.0, json!(NEVER.1)));
        assert_eq!(evicted(&testbed.ops()), Vec::<String>::new(), "none has a reason to evict it");

        for name in ["equal", "huge", "mild"] {
            testbed.drop_pod(name);
        }
        testbed.node(&node("large", 500));
        testbed.pod(&of_priority(pod("placed", "20"), 10));
        let placed = [("placed".to_owned(), "large".to_owned())];
        assert_eq!(testbed.settle(), placed, "without an eviction");
        let on_a_only = json!({"kubernetes.io/hostname": "a"});
        testbed.pod(&with(of_priority(pod("top", "20"), 10), "/spec/nodeSelector", on_a_only));
        let ops = testbed.ops();
        assert_eq!(evicted(&ops), ["low"]);
        carry_out(&mut testbed, &ops);
        testbed.drop_pod("low");
        assert_eq!(testbed.settle(), on_a(&["top"]), "v0 still runs");
        testbed.drop_pod("v0");
        assert_eq!(testbed.settle(), on_a(&["m0", "m1"]));
    }
}

#[test]
fn a_borrower_is_evicted_for_no_pod_of_lower_priority() {
    let cores = |pod, cores: &str| with(pod, CPU, json!(cores));
    for add_node in NODES {
        // Eight of 64 cores are kept for the gang, whose priority is 100.
        let mut testbed = lending(add_node);
        testbed.pod(&of_priority(cores(gpu_pod("lent", 1), "50"), 50));
        assert_eq!(testbed.settle(), on_a(&["lent"]));
        testbed.pod(&pod("ordinary", "6"));
        testbed.pod(&of_priority(pod("y", "52"), 10));
        assert_eq!(evicted(&testbed.ops()), Vec::<String>::new());
    }
}

#[test]
fn a_pod_that_borrowers_keep_away_may_evict_others_elsewhere() {
    let cores = |pod, cores: &str| with(pod, CPU, json!(cores));
    for add_node in NODES {
        let mut testbed = lending(add_node);
        testbed.pod(&of_priority(cores(gpu_pod("lent", 1), "50"), 50));
        assert_eq!(testbed.settle(), on_a(&["lent"]));
        testbed.node(&node("b", 20));
        testbed.pod(&pod("low", "20"));
        assert_eq!(testbed.settle(), [("low".to_owned(), "b".to_owned())]);
        testbed.pod(&of_priority(pod("high", "20"), 10));
        assert_eq!(evicted(&testbed.ops()), ["low"], "the borrower has a higher priority");
    }
}

#[test]
fn pods_that_waited_get_the_rest_once_the_nomination_is_over() {
    for add_node in NODES {
        let mut testbed = Testbed::new();
        for node in ["a", "b"] {
            add_node(&mut testbed, node);
            for number in 0..8 {
                let victim = slow(gpu_pod(&format!("{node}{number}"), 1));
                testbed.pod(&with(
                    victim,
                    "/spec/nodeSelector",
                    json!({"kubernetes.io/hostname": node}),
                ));
            }
        }
        assert_eq!(testbed.settle().len(), 16);
        testbed.pod(&of_priority(gpu_pod("big", 8), 100));
        let ops = testbed.ops();
        let victims = evicted(&ops);
        carry_out(&mut testbed, &ops);
        for victim in &victims[1..] {
            testbed.drop_pod(victim);
        }
        testbed.settle();
        for name in ["lent0", "lent1", "lent2"] {
            testbed.pod(&gpu_pod(name, 1));
        }
        for name in ["wait0", "wait1", "wait2", "wait3"] {
            testbed.pod(&slow(gpu_pod(name, 1)));
        }
        let node = victims[0][..1].to_owned();
        let on = |names: &[&str]| -> Vec<(String, String)> {
            names.iter().map(|name| ((*name).to_owned(), node.clone())).collect()
        };
        assert_eq!(testbed.settle(), on(&["lent0", "lent1", "lent2"]));
        for _ in 0..10 {
            testbed.time(10_000);
            assert_eq!(testbed.settle(), []);
        }
        let ops = testbed.after(HOUR_MS);
        carry_out(&mut testbed, &ops);
        let binds: Vec<_> =
            ops.iter().filter(|op| matches!(op.kind, crate::bind::OpKind::Bind(_))).collect();
        assert_eq!(binds.len(), 4, "{ops:?}");
        assert_eq!(evicted(&ops).len(), 8, "of the other node");
    }
}

#[test]
fn a_victim_that_is_taken_over_has_no_more_time() {
    let mut testbed = lending(NODES[0]);
    testbed.time(HOUR_MS - 50_000);
    testbed.pod(&of_priority(roomy(gpu_pod("top", 8)), 200));
    assert_eq!(testbed.settle(), []);
    testbed.pod(&gpu_pod("low", 1));
    assert_eq!(testbed.settle(), [], "v0 leaves in less than a minute");
    testbed.drop_pod("v0");
    assert_eq!(testbed.settle(), on_a(&["top"]));
}

#[test]
fn two_nominations_on_a_node_lend_nothing() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    for name in ["v0", "v1", "v2", "v3"] {
        testbed.pod(&slow(pod(name, "2")));
    }
    testbed.settle();
    testbed.pod(&of_priority(pod("x", "4"), 100));
    let ops = testbed.ops();
    let first = evicted(&ops);
    carry_out(&mut testbed, &ops);
    testbed.drop_pod(&first[0]);
    testbed.pod(&pod("low", "2"));
    assert_eq!(testbed.settle(), on_a(&["low"]));
    testbed.pod(&of_priority(pod("y", "4"), 100));
    let ops = testbed.ops();
    let mut second = evicted(&ops);
    assert_eq!(second.remove(0), "low", "another nomination keeps room beside it");
    assert_eq!(second.len(), 2);
    carry_out(&mut testbed, &ops);
    testbed.drop_pod("low");
    testbed.pod(&pod("late", "2"));
    assert_eq!(testbed.settle(), []);
    assert!(!is_leaving(&testbed, "late"));
    testbed.drop_pod(&first[1]);
    assert_eq!(testbed.settle(), on_a(&["x"]));
    testbed.drop_pod(&second[0]);
    assert_eq!(testbed.settle(), on_a(&["late"]), "now one nomination lends");
    testbed.drop_pod(&second[1]);
    testbed.settle();
    testbed.drop_pod("late");
    assert_eq!(testbed.settle(), on_a(&["y"]));
}
