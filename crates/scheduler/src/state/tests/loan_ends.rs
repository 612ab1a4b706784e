//! Ends of loans before the last victim has left: the nominated pods have a place without it, or
//! another nomination keeps room beside the borrowers.

use serde_json::{Value, json};

use super::claim_preemption::{asking, cluster, leave, paired, request, with_gpu};
use super::fixtures::{Testbed, evicted, gpu_pod, node, pod, with};
use super::loans::{
    AddNode, GRACE, HOUR_MS, NODES, carry_out, explained, is_leaving, lending, on_a,
};
use crate::state::SchedulerConfig;

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

/// Names of the devices of a pod's claim.
fn devices_of(testbed: &Testbed, name: &str) -> Vec<String> {
    let claim = &testbed.claims[&format!("{name}-gpu")];
    let results = claim["status"]["allocation"]["devices"]["results"].as_array();
    let devices = results.expect("an allocation").iter().map(|result| &result["device"]);
    devices.map(|device| device.as_str().expect("a name").to_owned()).collect()
}

/// Four GPUs of eight are kept for `p`, for which three victims have left. Four other pods stay.
fn half_lending(add_node: AddNode) -> Testbed {
    let mut testbed = Testbed::new();
    add_node(&mut testbed, "a");
    testbed.pod(&slow(gpu_pod("v0", 1)));
    for number in 1..4 {
        testbed.pod(&gpu_pod(&format!("v{number}"), 1));
    }
    for number in 0..4 {
        testbed.pod(&of_priority(gpu_pod(&format!("n{number}"), 1), 200));
    }
    assert_eq!(testbed.settle().len(), 8);
    testbed.pod(&of_priority(roomy(gpu_pod("p", 4)), 100));
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["v0", "v1", "v2", "v3"]);
    carry_out(&mut testbed, &ops);
    for name in ["v1", "v2", "v3"] {
        testbed.drop_pod(name);
    }
    assert_eq!(testbed.settle(), []);
    testbed
}

#[test]
fn borrowers_leave_early_if_the_place_suffices_without_them() {
    for add_node in NODES {
        let mut testbed = half_lending(add_node);
        let lows = ["low1", "low2", "low3"];
        for name in lows {
            testbed.pod(&gpu_pod(name, 1));
        }
        assert_eq!(testbed.settle(), on_a(&lows));
        assert_eq!(evicted(&testbed.after(1000)), [""; 0], "one GPU is missing");
        testbed.drop_pod("n0");
        let ops = testbed.after(1000);
        assert_eq!(evicted(&ops), lows);
        carry_out(&mut testbed, &ops);
        for name in lows {
            testbed.drop_pod(name);
        }
        testbed.time(1000);
        assert_eq!(testbed.settle(), on_a(&["p"]), "v0 still runs");
    }
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
        testbed.drop_pod("late");
        testbed.time(1000);
        assert_eq!(testbed.settle(), on_a(&["top"]), "v0 still runs");
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

#[test]
fn a_borrower_gets_devices_of_the_place_that_is_lent() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 4, 0)]);
    let stays = with_gpu(&mut testbed, "n", 200);
    testbed.pod(&stays);
    assert_eq!(testbed.settle(), on_a(&["n"]));
    assert_eq!(devices_of(&testbed, "n"), ["gpu-0"]);
    for name in ["v0", "v1", "v2"] {
        let victim = with_gpu(&mut testbed, name, 0);
        testbed.pod(&slow(victim));
    }
    assert_eq!(testbed.settle().len(), 3);
    let three = json!([request("gpu", "gpu.nvidia.com", 3)]);
    let high = asking(&mut testbed, "high", 100, three);
    testbed.pod(&roomy(high));
    let ops = testbed.ops();
    leave(&mut testbed, &ops, &["v1".to_owned(), "v2".to_owned(), "n".to_owned()]);
    let two = json!([request("gpu", "gpu.nvidia.com", 2)]);
    let low = asking(&mut testbed, "low", 0, two);
    testbed.pod(&low);
    assert_eq!(testbed.settle(), on_a(&["low"]));
    let mut devices = devices_of(&testbed, "low");
    devices.sort();
    let mut kept: Vec<_> = ["gpu-1", "gpu-2", "gpu-3"].map(str::to_owned).into();
    let slow = devices_of(&testbed, "v0");
    kept.retain(|name| !slow.contains(name));
    assert_eq!(devices, kept, "gpu-0 is free for all");
    let one = with_gpu(&mut testbed, "one", 0);
    testbed.pod(&one);
    assert_eq!(testbed.settle(), on_a(&["one"]));
    assert_eq!(devices_of(&testbed, "one"), ["gpu-0"]);
}

#[test]
fn devices_of_a_nomination_serve_no_other_pod() {
    let mut testbed = cluster(SchedulerConfig::default(), &[("a", 3, 1)]);
    for (name, priority) in [("low0", 0), ("low1", 0), ("mid", 50)] {
        let pod = with_gpu(&mut testbed, name, priority);
        testbed.pod(&pod);
        assert_eq!(testbed.settle(), on_a(&[name]));
    }
    assert_eq!(devices_of(&testbed, "low0"), ["gpu-0"], "beside the only NIC");
    let two = json!([request("gpu", "gpu.nvidia.com", 2)]);
    let high = asking(&mut testbed, "high", 100, two);
    testbed.pod(&high);
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["low0", "low1"]);
    leave(&mut testbed, &ops, &["low0".to_owned(), "mid".to_owned()]);
    // The engine has a free GPU for it, the allocator only that which is kept.
    let late = paired(&mut testbed, "late", 0);
    testbed.pod(&late);
    assert_eq!(testbed.settle(), []);
    leave(&mut testbed, &[], &["low1".to_owned()]);
    assert_eq!(testbed.settle(), on_a(&["high"]));
}
