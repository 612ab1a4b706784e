use serde_json::{Value, json};

use super::fixtures::{Testbed, budget, evicted, member, node, pod_group, with};
use crate::bind::FailureKind;

fn policy(seconds: &Value) -> Value {
    json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": "p", "uid": "uid-p", "generation": 1},
        "spec": {"order": [{"unit": "hops"}], "isDefault": true, "belowMinimumSeconds": seconds},
    })
}

/// A gang of three on three nodes; a fourth member has no room.
fn running(seconds: &Value) -> Testbed {
    let mut testbed = Testbed::new();
    for name in ["a", "b", "c"] {
        testbed.node(&node(name, 2));
    }
    testbed.object(&policy(seconds));
    testbed.object(&pod_group("g", 3, json!({})));
    for name in ["m0", "m1", "m2"] {
        testbed.pod(&member("g", name, "2"));
    }
    assert_eq!(testbed.settle().len(), 3);
    testbed
}

/// The member leaves, and its node with it.
fn loses_one(testbed: &mut Testbed) {
    let gone = testbed.pods["m2"]["spec"]["nodeName"].as_str().unwrap().to_owned();
    testbed.drop_pod("m2");
    testbed.scheduler.drop_node(&gone.as_str().into());
    assert_eq!(testbed.ops(), []);
}

const NONE: [&str; 0] = [];

#[test]
fn a_gang_below_its_minimum_gives_its_places_back_after_the_policys_time() {
    let mut testbed = running(&json!(60));
    loses_one(&mut testbed);
    testbed.pod(&member("g", "m3", "2"));
    assert_eq!(evicted(&testbed.after(59_000)), NONE);
    assert_eq!(evicted(&testbed.after(2_000)), ["m0", "m1"]);
    assert_eq!(evicted(&testbed.after(10_000)), NONE, "once");
}

#[test]
fn without_the_setting_a_gang_keeps_its_places() {
    let mut testbed = running(&Value::Null);
    loses_one(&mut testbed);
    assert_eq!(evicted(&testbed.after(100_000_000)), NONE);
}

#[test]
fn a_member_that_gets_a_place_in_time_saves_the_gang() {
    let mut testbed = running(&json!(60));
    loses_one(&mut testbed);
    assert_eq!(evicted(&testbed.after(50_000)), NONE);
    testbed.node(&node("d", 2));
    testbed.pod(&member("g", "m3", "2"));
    assert_eq!(testbed.settle(), [("m3".to_owned(), "d".to_owned())]);
    assert_eq!(evicted(&testbed.after(100_000)), NONE);
    // The time starts again.
    loses_one_named(&mut testbed, "m3");
    assert_eq!(evicted(&testbed.after(59_000)), NONE);
    assert_eq!(evicted(&testbed.after(2_000)), ["m0", "m1"]);
}

fn loses_one_named(testbed: &mut Testbed, name: &str) {
    testbed.drop_pod(name);
    testbed.scheduler.drop_node(&"d".into());
    assert_eq!(testbed.ops(), []);
}

#[test]
fn members_that_have_succeeded_count() {
    let mut testbed = running(&json!(60));
    testbed.pod(&with(testbed.pods["m2"].clone(), "/status/phase", json!("Succeeded")));
    assert_eq!(evicted(&testbed.after(100_000)), NONE);
}

#[test]
fn budgets_hold_and_a_failed_eviction_is_tried_again() {
    let mut testbed = running(&json!(60));
    testbed.budget(&budget("all", json!({"octavo.dev/pod-group": "g"}), 1));
    loses_one(&mut testbed);
    let ops = testbed.after(61_000);
    assert_eq!(evicted(&ops), ["m0", "m1"]);
    for op in &ops {
        testbed.fail(op, FailureKind::Budget);
    }
    assert_eq!(evicted(&testbed.after(29_000)), NONE);
    assert_eq!(evicted(&testbed.after(2_000)), ["m0", "m1"]);
}

#[test]
fn a_time_that_is_no_number_makes_the_policy_invalid() {
    let mut testbed = Testbed::new();
    testbed.object(&policy(&json!("soon")));
    testbed.ops();
    let is_invalid = |report: &crate::status::StatusUpdate| {
        matches!(report, crate::status::StatusUpdate::Policy { error: Some(error), .. }
            if error.reason == "InvalidPolicy" && error.message.contains("belowMinimumSeconds"))
    };
    assert!(testbed.reports.iter().any(is_invalid), "{:?}", testbed.reports);
}
