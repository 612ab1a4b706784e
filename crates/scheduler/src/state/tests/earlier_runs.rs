//! A scheduler that starts while gangs lack members.

use serde_json::{Value, json};

use super::fixtures::{GANG_PLACED, Testbed, node, pod_group, with};
use super::repairs::{delete, member, placed, running, spare_nodes, testbed};
use crate::bind::{FailureKind, OpKind, WriteOp};

const NODES: [&str; 3] = ["a", "b", "c"];

/// A scheduler that starts with what the API has. The node of a pod that is gone has been removed.
fn restarted(before: &Testbed, min: u32, removed: &str) -> Testbed {
    let nodes: Vec<_> = NODES.into_iter().filter(|name| *name != removed).collect();
    let mut after = testbed(&nodes, &spare_nodes(1));
    after.object(&pod_group("g", min, json!({})));
    before.claims.values().for_each(|claim| after.claim(claim));
    before.pods.values().for_each(|pod| after.pod(pod));
    after
}

fn node_of(testbed: &Testbed, pod: &str) -> String {
    testbed.pods[pod]["spec"]["nodeName"].as_str().expect("a node").to_owned()
}

/// A member that is created so many minutes after the first ones.
fn late_member(testbed: &mut Testbed, index: u32, suffix: &str, minutes: u32) {
    member(testbed, index, suffix, 0);
    let pod = testbed.pods[&format!("m{index}{suffix}")].clone();
    let created = format!("2026-01-01T00:{minutes}:00Z");
    testbed.pod(&with(pod, "/metadata/creationTimestamp", json!(created)));
}

/// A gang of two with its binds, none of which is carried out.
fn binds_of_two(testbed: &mut Testbed) -> Vec<WriteOp> {
    testbed.object(&pod_group("g", 2, json!({})));
    member(testbed, 0, "", 0);
    member(testbed, 1, "", 0);
    let ops = testbed.ops();
    assert_eq!(ops.len(), 2, "{ops:?}");
    ops
}

/// Pod and node of a bind.
fn bind_of(op: &WriteOp) -> (String, String) {
    let OpKind::Bind(bind) = &op.kind else { panic!("no bind: {op:?}") };
    (bind.pod.name.name.to_string(), bind.node.to_string())
}

fn in_rack(name: &str) -> Value {
    with(node(name, 64), "/metadata/labels/topology.octavo.dev~1rack", json!("r1"))
}

#[test]
fn a_gang_that_ran_in_full_before_the_start_is_repaired() {
    // The member left, and perhaps its successor came, while no scheduler ran.
    for is_there_first in [true, false] {
        let mut first = testbed(&NODES, &spare_nodes(1));
        running(&mut first, 2, 2, 0);
        let lost = node_of(&first, "m0");
        delete(&mut first, "m0");
        let mut second = restarted(&first, 2, &lost);
        if !is_there_first {
            assert_eq!(placed(&mut second), [""; 0]);
        }
        late_member(&mut second, 0, "-again", 10);
        assert_eq!(placed(&mut second), ["m0-again"]);
        // The member that came back knows it, too.
        let lost = node_of(&second, "m1");
        delete(&mut second, "m1");
        let mut third = restarted(&second, 2, &lost);
        late_member(&mut third, 1, "-again", 20);
        assert_eq!(placed(&mut third), ["m1-again"]);
    }
}

#[test]
fn a_gang_that_a_killed_scheduler_bound_in_part_gets_no_spare_node() {
    for number in 0..2 {
        let mut before = testbed(&NODES, &spare_nodes(1));
        let ops = binds_of_two(&mut before);
        before.complete(&ops[number]);
        let (waiting, lost) = bind_of(&ops[1 - number]);
        let mut after = restarted(&before, 2, &lost);
        assert_eq!(placed(&mut after), [""; 0], "{waiting} was never bound");
        after.node(&in_rack(&lost));
        after.slice(&super::claims::slice(&lost, 1));
        assert_eq!(placed(&mut after), [waiting], "another node is free");
    }
}

/// A gang of two, of which a bind was refused by a node that is gone since. Returns the pod that waits, and the node.
fn bound_in_part() -> (Testbed, String, String) {
    let mut testbed = testbed(&NODES, &spare_nodes(1));
    let ops = binds_of_two(&mut testbed);
    testbed.complete(&ops[0]);
    testbed.fail(&ops[1], FailureKind::Rejected);
    let (waiting, lost) = bind_of(&ops[1]);
    testbed.drop_node(&in_rack(&lost));
    testbed.time(20_000);
    (testbed, waiting, lost)
}

#[test]
fn a_gang_of_which_a_bind_fails_gets_no_spare_node() {
    let (mut testbed, waiting, lost) = bound_in_part();
    assert_eq!(placed(&mut testbed), [""; 0]);
    testbed.node(&in_rack(&lost));
    testbed.time(20_000);
    assert_eq!(placed(&mut testbed), [waiting]);
}

#[test]
fn a_gang_of_which_a_bind_failed_stays_new_when_that_pod_is_created_again() {
    let (mut testbed, waiting, _) = bound_in_part();
    delete(&mut testbed, &waiting);
    testbed.time(20_000);
    let index = waiting.trim_start_matches('m').parse().unwrap();
    late_member(&mut testbed, index, "-again", 10);
    testbed.time(20_000);
    assert_eq!(placed(&mut testbed), [""; 0], "the gang never ran in full");
}

#[test]
fn a_gang_that_grew_while_no_scheduler_ran_gets_no_spare_node() {
    let mut before = testbed(&NODES, &spare_nodes(1));
    running(&mut before, 2, 2, 0);
    let mut after = restarted(&before, 3, "");
    late_member(&mut after, 2, "", 10);
    assert_eq!(placed(&mut after), [""; 0]);
}

#[test]
fn what_cannot_be_read_of_a_binding_says_nothing() {
    let good = json!({"minMembers": {"members": 2}, "youngestCreated": 0}).to_string();
    for (value, count) in [("?", 0), ("{}", 0), (&*good, 1)] {
        let mut before = testbed(&NODES, &spare_nodes(1));
        running(&mut before, 2, 2, 0);
        let lost = node_of(&before, "m0");
        delete(&mut before, "m0");
        let changed = with(before.pods["m1"].clone(), GANG_PLACED, json!(value));
        before.pod(&changed);
        let mut after = restarted(&before, 2, &lost);
        late_member(&mut after, 0, "-again", 10);
        assert_eq!(placed(&mut after).len(), count, "{value}");
    }
}

#[test]
fn a_binding_names_the_minimum_and_the_youngest_pod() {
    let mut testbed = testbed(&NODES, &spare_nodes(1));
    testbed.object(&pod_group("g", 2, json!({})));
    member(&mut testbed, 0, "", 0);
    late_member(&mut testbed, 1, "", 10);
    assert_eq!(testbed.settle().len(), 2);
    let late = 1_767_226_200;
    for name in ["m0", "m1"] {
        let text = testbed.pods[name].pointer(GANG_PLACED).and_then(Value::as_str);
        let value: Value = serde_json::from_str(text.expect("the annotation")).expect("JSON");
        assert_eq!(value, json!({"minMembers": {"members": 2}, "youngestCreated": late}));
    }
    // A pod in no gang has none.
    testbed.pod(&super::fixtures::pod("alone", "1"));
    assert_eq!(testbed.settle().len(), 1);
    assert_eq!(testbed.pods["alone"].pointer(GANG_PLACED), None);
}
