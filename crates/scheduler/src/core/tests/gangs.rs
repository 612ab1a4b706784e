use serde_json::json;

use super::kit::{Bed, member, node, pod_group, with};
use crate::bind::FailureKind;
use crate::core::CoreConfig;
use crate::status::{GroupPhase, StatusUpdate};

fn racked(name: &str, cpu: u32, rack: &str) -> serde_json::Value {
    with(node(name, cpu), "/metadata/labels/topology.octavo.dev~1rack", json!(rack))
}

fn phase(bed: &Bed) -> Option<GroupPhase> {
    bed.reports.iter().rev().find_map(|report| match report {
        StatusUpdate::Group(group) => Some(group.phase),
        _ => None,
    })
}

#[test]
fn a_gang_waits_for_its_members_and_goes_whole() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.node(&node("b", 4));
    bed.object(&pod_group("g", 3, json!({})));
    bed.pod(&member("g", "m0", "2"));
    bed.pod(&member("g", "m1", "2"));
    assert_eq!(bed.settle(), []);
    assert_eq!(phase(&bed), Some(GroupPhase::Gathering));
    bed.pod(&member("g", "m2", "2"));
    assert_eq!(bed.settle().len(), 3);
    assert_eq!(phase(&bed), Some(GroupPhase::Scheduled));
}

#[test]
fn a_gang_that_does_not_fit_takes_nothing() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.object(&pod_group("g", 3, json!({})));
    for name in ["m0", "m1", "m2"] {
        bed.pod(&member("g", name, "2"));
    }
    assert_eq!(bed.settle(), []);
    let (reason, message) = bed.reason("m0").expect("a reason");
    assert_eq!(reason, "Unschedulable");
    assert!(message.contains('3') && message.contains('2'), "the bound that fails: {message}");
    // Another has the room.
    bed.pod(&super::kit::pod("p", "4"));
    assert_eq!(bed.settle().len(), 1);
    bed.node(&node("b", 8));
    assert_eq!(bed.settle().len(), 3);
}

#[test]
fn members_lie_in_one_rack_where_that_is_required() {
    let mut bed = Bed::new();
    for (name, rack) in [("a", "r1"), ("b", "r2"), ("c", "r2")] {
        bed.node(&racked(name, 2, rack));
    }
    bed.object(&pod_group("g", 2, json!({"required": "rack"})));
    for name in ["m0", "m1"] {
        bed.pod(&member("g", name, "2"));
    }
    let bound = bed.settle();
    let nodes: Vec<_> = bound.iter().map(|(_, node)| node.as_str()).collect();
    assert_eq!(nodes, ["b", "c"]);
}

#[test]
fn a_member_that_is_made_again_goes_where_the_gang_is() {
    let mut bed = Bed::new();
    for (name, rack) in [("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2"), ("e", "r2")] {
        bed.node(&racked(name, 2, rack));
    }
    bed.object(&pod_group("g", 3, json!({"required": "rack"})));
    for name in ["m0", "m1", "m2"] {
        bed.pod(&member("g", name, "2"));
    }
    assert_eq!(bed.settle().len(), 3);
    // A node of its rack is free again, and one of the other rack too.
    bed.drop_pod("m1");
    bed.pod(&member("g", "m1-again", "2"));
    let bound = bed.settle();
    assert_eq!(bound.len(), 1);
    assert!(["c", "d", "e"].contains(&bound[0].1.as_str()), "{bound:?}");
}

#[test]
fn a_level_that_there_is_not_is_said() {
    let mut bed = Bed::new();
    bed.node(&node("a", 8));
    bed.object(&pod_group("g", 1, json!({"required": "pod-of-racks"})));
    bed.pod(&member("g", "m0", "1"));
    assert_eq!(bed.settle(), []);
    let (_, message) = bed.reason("m0").expect("a reason");
    assert!(message.contains("pod-of-racks"), "{message}");
    // Others go on.
    bed.pod(&super::kit::pod("p", "1"));
    assert_eq!(bed.settle().len(), 1);
}

#[test]
fn labels_that_contradict_one_another_stop_nobody() {
    let clique =
        |node, value: &str| with(node, "/metadata/labels/nvidia.com~1gpu.clique", json!(value));
    let mut bed = Bed::new();
    bed.node(&clique(racked("a", 4, "r1"), "c.1"));
    bed.node(&clique(racked("b", 4, "r2"), "c.1"));
    bed.object(&pod_group("g", 2, json!({"preferred": "rack"})));
    for name in ["m0", "m1"] {
        bed.pod(&member("g", name, "3"));
    }
    assert_eq!(bed.settle().len(), 2);
}

#[test]
fn one_member_whose_order_failed_is_placed_again_beside_the_others() {
    let mut bed = Bed::new();
    for name in ["a", "b", "c"] {
        bed.node(&node(name, 2));
    }
    bed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        bed.pod(&member("g", name, "2"));
    }
    let orders = bed.orders();
    assert_eq!(orders.len(), 2);
    bed.carry_out(&orders[0]);
    bed.fail(&orders[1], FailureKind::Rejected);
    assert_eq!(bed.orders(), [], "not at once");
    let orders = bed.after(5000);
    assert_eq!(orders.len(), 1);
    bed.carry_out(&orders[0]);
    assert_eq!(phase(&bed), Some(GroupPhase::Scheduled));
}

#[test]
fn members_on_a_lost_node_are_deleted_after_a_while() {
    let config = CoreConfig { repair_after_seconds: 10, ..CoreConfig::default() };
    let mut bed = Bed::with_config(config);
    bed.node(&node("a", 2));
    bed.node(&node("b", 2));
    bed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        bed.pod(&member("g", name, "2"));
    }
    bed.settle();
    bed.pod(&super::kit::pod("alone", "1"));
    let lost = json!([{"type": "Ready", "status": "Unknown"}]);
    let unreachable = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
    let node = with(node("a", 2), "/status/conditions", lost);
    bed.node(&with(node, "/spec/taints", unreachable));
    assert_eq!(bed.after(9_000), []);
    let orders = bed.after(2_000);
    assert_eq!(orders.len(), 1, "the member on the lost node: {orders:?}");
    assert_eq!(bed.after(2_000), [], "once");
}

#[test]
fn a_gangs_status_says_that_its_pods_are_gone() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        bed.pod(&member("g", name, "2"));
    }
    assert_eq!(bed.settle().len(), 2);
    let bound = |bed: &Bed| {
        bed.reports.iter().rev().find_map(|report| match report {
            StatusUpdate::Group(group) => Some(group.bound.values().sum::<u32>()),
            _ => None,
        })
    };
    bed.drop_pod("m0");
    bed.settle();
    assert_eq!(bound(&bed), Some(1));
    bed.drop_pod("m1");
    bed.settle();
    assert_eq!((phase(&bed), bound(&bed)), (Some(GroupPhase::Gathering), Some(0)));
}
