use serde_json::{Value, json};

use super::fixtures::{Testbed, evicted, member, node, pod, pod_group, with};
use crate::bind::{FailureKind, OpKind, WriteOp};
use crate::state::SchedulerConfig;

const RACK: &str = "/metadata/labels/topology.octavo.dev~1rack";

fn lost(node: Value) -> Value {
    let node = with(node, "/status/conditions", json!([{"type": "Ready", "status": "Unknown"}]));
    let unreachable = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
    with(node, "/spec/taints", unreachable)
}

fn tolerating(pod: Value, seconds: &Value) -> Value {
    let tolerations = json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists",
        "effect": "NoExecute", "tolerationSeconds": seconds}]);
    with(pod, "/spec/tolerations", tolerations)
}

/// Nodes of two cores in racks of four, all full of members of one gang.
fn full(count: usize) -> Testbed {
    let config = SchedulerConfig { repair_after_seconds: 10, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    for number in 0..count {
        testbed.node(&in_rack(number));
    }
    testbed.object(&pod_group("g", u32::try_from(count).unwrap(), json!({})));
    for number in 0..count {
        testbed.pod(&member("g", &format!("m{number}"), "2"));
    }
    assert_eq!(testbed.settle().len(), count);
    testbed
}

fn in_rack(number: usize) -> Value {
    with(node(&format!("n{number}"), 2), RACK, json!(format!("r{}", number / 4)))
}

fn reasons(ops: &[WriteOp]) -> Vec<&str> {
    let reasons = ops.iter().filter_map(|op| match &op.kind {
        OpKind::Evict(evict) => Some(evict.reason),
        _ => None,
    });
    reasons.collect()
}

#[test]
fn members_on_a_lost_node_are_deleted_after_a_while() {
    let config = SchedulerConfig { repair_after_seconds: 10, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    testbed.node(&node("a", 2));
    testbed.node(&node("b", 2));
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "2"));
    }
    testbed.settle();
    testbed.pod(&pod("alone", "1"));
    testbed.node(&lost(node("a", 2)));
    assert_eq!(testbed.after(9_000), []);
    let ops = testbed.after(2_000);
    assert_eq!(ops.len(), 1, "the member on the lost node: {ops:?}");
    assert_eq!(reasons(&ops), ["NodeLost"], "no other controller's reason");
    assert_eq!(testbed.after(2_000), [], "once");
}

#[test]
fn a_lost_node_is_tolerated_for_as_long_as_the_pod_says() {
    let cases = [(json!(300), Some(300_000)), (json!(1), Some(10_000)), (json!(null), None::<u64>)];
    for (seconds, at) in cases {
        let mut testbed = full(1);
        testbed.pod(&tolerating(testbed.pods["m0"].clone(), &seconds));
        testbed.node(&lost(in_rack(0)));
        assert_eq!(evicted(&testbed.after(9_900)), Vec::<String>::new());
        match at {
            Some(at) => {
                assert_eq!(evicted(&testbed.after(at - 10_000)), Vec::<String>::new());
                assert_eq!(evicted(&testbed.after(100)).len(), 1);
            }
            None => assert_eq!(evicted(&testbed.after(1_000_000)), Vec::<String>::new()),
        }
    }
}

#[test]
fn a_rack_without_its_switch_for_two_minutes_loses_no_pod() {
    let mut testbed = full(8);
    for number in 0..4 {
        testbed.node(&lost(in_rack(number)));
    }
    assert_eq!(evicted(&testbed.after(120_000)), Vec::<String>::new());
    // They come back one by one, with decisions between.
    for number in 0..4 {
        testbed.node(&in_rack(number));
        assert_eq!(evicted(&testbed.after(1000)), Vec::<String>::new());
    }
    assert_eq!(evicted(&testbed.after(120_000)), Vec::<String>::new());
}

#[test]
fn a_failed_deletion_is_tried_again_after_a_while() {
    let mut testbed = full(1);
    testbed.node(&lost(in_rack(0)));
    let ops = testbed.after(11_000);
    assert_eq!(evicted(&ops).len(), 1);
    testbed.fail(&ops[0], FailureKind::Rejected);
    assert_eq!(evicted(&testbed.after(29_000)), Vec::<String>::new());
    assert_eq!(evicted(&testbed.after(2_000)).len(), 1);
}

#[test]
fn nodes_out_of_service_do_not_count_as_cut_off() {
    let mut testbed = full(8);
    let taint = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
    for number in 0..3 {
        testbed.node(&with(lost(in_rack(number)), "/spec/taints", taint.clone()));
    }
    testbed.node(&lost(in_rack(3)));
    assert_eq!(evicted(&testbed.after(120_000)).len(), 4);
}

#[test]
fn two_lost_nodes_of_a_rack_are_repaired_and_three_are_not() {
    for (count, expected) in [(2, 2), (3, 0)] {
        let mut testbed = full(8);
        for number in 0..count {
            testbed.node(&lost(in_rack(number)));
        }
        assert_eq!(evicted(&testbed.after(120_000)).len(), expected, "{count} lost nodes");
    }
}

#[test]
fn three_lost_nodes_among_many_are_repaired() {
    let mut testbed = full(32);
    // In different racks: three of 32 nodes are less than a tenth of the cluster.
    for number in [0, 8, 16] {
        testbed.node(&lost(in_rack(number)));
    }
    assert_eq!(evicted(&testbed.after(120_000)).len(), 3);
}

#[test]
fn nodes_out_of_service_are_repaired_at_once() {
    let mut testbed = full(8);
    let taint = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
    for number in 0..4 {
        testbed.node(&with(lost(in_rack(number)), "/spec/taints", taint.clone()));
    }
    assert_eq!(evicted(&testbed.after(0)).len(), 4);
}

#[test]
fn a_node_that_is_ready_is_not_shut_down() {
    for effect in ["NoExecute", "NoSchedule"] {
        let mut testbed = full(1);
        let mut node = |is_ready: &str| {
            let conditions = json!([{"type": "Ready", "status": is_ready}]);
            let taints = json!([{"key": "node.kubernetes.io/out-of-service", "effect": effect}]);
            testbed.node(&with(
                with(in_rack(0), "/status/conditions", conditions),
                "/spec/taints",
                taints,
            ));
            evicted(&testbed.after(1_000)).len()
        };
        assert_eq!((node("True"), node("Unknown")), (0, 1), "{effect}");
    }
}
