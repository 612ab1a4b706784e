use octavo_kube_io::objects::ObjectName;
use serde_json::json;

use super::fixtures::{Testbed, member, node, pod_group, with};
use crate::bind::FailureKind;
use crate::status::{GroupPhase, StatusUpdate};

fn racked(name: &str, cpu: u32, rack: &str) -> serde_json::Value {
    with(node(name, cpu), "/metadata/labels/topology.octavo.dev~1rack", json!(rack))
}

fn phase(testbed: &Testbed) -> Option<GroupPhase> {
    testbed.reports.iter().rev().find_map(|report| match report {
        StatusUpdate::Group(group) => Some(group.phase),
        _ => None,
    })
}

#[test]
fn a_gang_waits_for_its_members_and_goes_whole() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.node(&node("b", 4));
    testbed.object(&pod_group("g", 3, json!({})));
    testbed.pod(&member("g", "m0", "2"));
    testbed.pod(&member("g", "m1", "2"));
    assert_eq!(testbed.settle(), []);
    assert_eq!(phase(&testbed), Some(GroupPhase::Gathering));
    testbed.pod(&member("g", "m2", "2"));
    assert_eq!(testbed.settle().len(), 3);
    assert_eq!(phase(&testbed), Some(GroupPhase::Scheduled));
}

#[test]
fn a_gang_that_does_not_fit_takes_nothing() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.object(&pod_group("g", 3, json!({})));
    for name in ["m0", "m1", "m2"] {
        testbed.pod(&member("g", name, "2"));
    }
    assert_eq!(testbed.settle(), []);
    let (reason, message) = testbed.reason("m0").expect("a reason");
    assert_eq!(reason, "Unschedulable");
    let why = "there would not be enough room even if nothing ran";
    assert_eq!(message, format!("too few places for group \"members\": {why}"));
    let group = ObjectName::new("team", "g");
    let explained = testbed.scheduler.explain_group(&group).expect("the gang");
    let detail = explained.waiting.expect("a reason").message;
    assert!(detail.contains("3 wanted at least, at most 2 are possible"), "{detail}");
    // The capacity is free for another pod.
    testbed.pod(&super::fixtures::pod("p", "4"));
    assert_eq!(testbed.settle().len(), 1);
    testbed.node(&node("b", 8));
    assert_eq!(testbed.settle().len(), 3);
}

#[test]
fn members_lie_in_one_rack_where_that_is_required() {
    let mut testbed = Testbed::new();
    for (name, rack) in [("a", "r1"), ("b", "r2"), ("c", "r2")] {
        testbed.node(&racked(name, 2, rack));
    }
    testbed.object(&pod_group("g", 2, json!({"required": "rack"})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "2"));
    }
    let bound = testbed.settle();
    let nodes: Vec<_> = bound.iter().map(|(_, node)| node.as_str()).collect();
    assert_eq!(nodes, ["b", "c"]);
}

#[test]
fn a_recreated_member_joins_its_gang() {
    let mut testbed = Testbed::new();
    for (name, rack) in [("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2"), ("e", "r2")] {
        testbed.node(&racked(name, 2, rack));
    }
    testbed.object(&pod_group("g", 3, json!({"required": "rack"})));
    for name in ["m0", "m1", "m2"] {
        testbed.pod(&member("g", name, "2"));
    }
    assert_eq!(testbed.settle().len(), 3);
    // A node of its rack is free again, and so is one of the other rack.
    testbed.drop_pod("m1");
    testbed.pod(&member("g", "m1-again", "2"));
    let bound = testbed.settle();
    assert_eq!(bound.len(), 1);
    assert!(["c", "d", "e"].contains(&bound[0].1.as_str()), "{bound:?}");
}

#[test]
fn an_unknown_topology_level_is_reported() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    testbed.object(&pod_group("g", 1, json!({"required": "pod-of-racks"})));
    testbed.pod(&member("g", "m0", "1"));
    assert_eq!(testbed.settle(), []);
    let (_, message) = testbed.reason("m0").expect("a reason");
    assert!(message.contains("pod-of-racks"), "{message}");
    // Other pods are still scheduled.
    testbed.pod(&super::fixtures::pod("p", "1"));
    assert_eq!(testbed.settle().len(), 1);
}

#[test]
fn contradicting_topology_labels_block_no_gang() {
    let clique =
        |node, value: &str| with(node, "/metadata/labels/nvidia.com~1gpu.clique", json!(value));
    let mut testbed = Testbed::new();
    testbed.node(&clique(racked("a", 4, "r1"), "c.1"));
    testbed.node(&clique(racked("b", 4, "r2"), "c.1"));
    testbed.object(&pod_group("g", 2, json!({"preferred": "rack"})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "3"));
    }
    assert_eq!(testbed.settle().len(), 2);
}

#[test]
fn a_member_whose_bind_failed_is_placed_again() {
    let mut testbed = Testbed::new();
    for name in ["a", "b", "c"] {
        testbed.node(&node(name, 2));
    }
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "2"));
    }
    let ops = testbed.ops();
    assert_eq!(ops.len(), 2);
    testbed.complete(&ops[0]);
    testbed.fail(&ops[1], FailureKind::Rejected);
    assert_eq!(testbed.ops(), [], "no retry without delay");
    let ops = testbed.after(5000);
    assert_eq!(ops.len(), 1);
    testbed.complete(&ops[0]);
    assert_eq!(phase(&testbed), Some(GroupPhase::Scheduled));
}

#[test]
fn a_gang_status_reports_that_its_pods_are_gone() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "2"));
    }
    assert_eq!(testbed.settle().len(), 2);
    let bound = |testbed: &Testbed| {
        testbed.reports.iter().rev().find_map(|report| match report {
            StatusUpdate::Group(group) => Some(group.bound.values().sum::<u32>()),
            _ => None,
        })
    };
    testbed.drop_pod("m0");
    testbed.settle();
    assert_eq!(bound(&testbed), Some(1));
    testbed.drop_pod("m1");
    testbed.settle();
    assert_eq!((phase(&testbed), bound(&testbed)), (Some(GroupPhase::Gathering), Some(0)));
}

#[test]
fn a_member_in_the_place_of_another_gets_its_condition() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "4"));
    }
    assert_eq!(testbed.settle(), []);
    assert!(testbed.reason("m1").is_some());
    // The controller makes another pod in the same moment.
    let gone = with(
        testbed.pods["m1"].clone(),
        "/metadata/deletionTimestamp",
        json!("2026-01-01T00:01:00Z"),
    );
    testbed.pod(&gone);
    testbed.pod(&member("g", "m2", "4"));
    testbed.drop_pod("m1");
    assert_eq!(testbed.settle(), []);
    assert!(testbed.reason("m2").is_some());
}

#[test]
fn a_gang_whose_binds_failed_waits_for_its_backoff() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "2"));
    }
    let ops = testbed.ops();
    assert_eq!(ops.len(), 2);
    for op in &ops {
        testbed.fail(op, FailureKind::Rejected);
    }
    assert_eq!(testbed.ops(), []);
    assert_eq!(testbed.after(900), [], "one second");
    assert_eq!(testbed.after(2000).len(), 2);
}
