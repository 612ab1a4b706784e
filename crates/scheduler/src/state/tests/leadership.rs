use octavo_kube_io::objects::ObjectName;
use serde_json::json;

use super::fixtures::{Testbed, member, node, pod, pod_group};
use crate::status::{GroupPhase, GroupStatus, StatusUpdate};

fn reported(testbed: &mut Testbed) -> Vec<String> {
    let reports = testbed.scheduler.take_reports().into_iter().filter_map(|report| match report {
        StatusUpdate::PodUnschedulable { pod, status_text, .. } => {
            Some(format!("{} {}", pod.name.name, status_text.reason))
        }
        StatusUpdate::Group(group) => {
            Some(format!("{} {}", group.name.name, group.status_text.reason))
        }
        StatusUpdate::Policy { name, .. } => Some(name.to_string()),
        _ => None,
    });
    let mut reported: Vec<_> = reports.collect();
    reported.sort();
    reported
}

#[test]
fn a_new_term_reports_all_pending_units_again() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 1));
    testbed.object(&json!({"apiVersion": "octavo.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": "dense", "uid": "uid-dense", "generation": 1}, "spec": {}}));
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "2"));
    }
    testbed.object(&pod_group("h", 2, json!({})));
    testbed.pod(&member("h", "alone", "2"));
    testbed.pod(&pod("p", "2"));
    testbed.scheduler.on_leadership_acquired();
    assert_eq!(testbed.ops(), []);
    let all = [
        "dense",
        "g Unschedulable",
        "h Gathering",
        "m0 Unschedulable",
        "m1 Unschedulable",
        "p Unschedulable",
    ];
    assert_eq!(reported(&mut testbed), [""; 0], "everything was reported");
    testbed.scheduler.on_leadership_acquired();
    assert_eq!(reported(&mut testbed), all);
    testbed.scheduler.on_leadership_lost();
    testbed.scheduler.take_reports();
    testbed.scheduler.on_leadership_acquired();
    assert_eq!(testbed.scheduler.counts().ready, 0);
    assert_eq!(reported(&mut testbed), all);
}

fn flap(testbed: &mut Testbed) {
    testbed.reports.clear();
    testbed.scheduler.on_leadership_lost();
    testbed.scheduler.on_leadership_acquired();
    assert_eq!(testbed.settle(), []);
}

fn groups(testbed: &Testbed) -> Vec<&GroupStatus> {
    let mut groups = Vec::new();
    for report in &testbed.reports {
        if let StatusUpdate::Group(group) = report {
            groups.push(group);
        }
    }
    groups
}

#[test]
fn a_pending_pod_is_reported_again_after_a_leadership_change() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("p", "8"));
    assert_eq!(testbed.settle(), []);
    let before = testbed.reason("p").expect("a reason");
    flap(&mut testbed);
    assert_eq!(testbed.reason("p"), Some(before));
    let explained = testbed.scheduler.explain_pod(&ObjectName::new("team", "p")).expect("the pod");
    assert!(explained.waiting.is_some(), "{explained:?}");
}

#[test]
fn pending_gangs_keep_their_phase_after_a_leadership_change() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.object(&pod_group("gathers", 2, json!({})));
    testbed.pod(&member("gathers", "gathers-0", "1"));
    testbed.object(&pod_group("large", 2, json!({})));
    testbed.pod(&member("large", "large-0", "3"));
    testbed.pod(&member("large", "large-1", "3"));
    assert_eq!(testbed.settle(), []);
    flap(&mut testbed);
    let reported: Vec<_> = groups(&testbed)
        .iter()
        .map(|group| (&*group.name.name, group.phase, group.status_text.reason))
        .collect();
    let wanted = [
        ("gathers", GroupPhase::Gathering, "Gathering"),
        ("large", GroupPhase::Waiting, "Unschedulable"),
    ];
    assert_eq!(reported, wanted);
}

#[test]
fn a_running_gang_is_reported_after_a_leadership_change() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.object(&pod_group("runs", 1, json!({})));
    testbed.pod(&member("runs", "runs-0", "1"));
    assert_eq!(testbed.settle().len(), 1);
    testbed.scheduler.take_reports();
    flap(&mut testbed);
    let reported = groups(&testbed);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!(reported[0].phase, GroupPhase::Scheduled);
}
