use octavo_kube_io::objects::ObjectName;
use serde_json::json;

use super::kit::{Bed, member, node, pod, pod_group};
use crate::status::{GroupPhase, GroupStatus, StatusUpdate};

fn told(bed: &mut Bed) -> Vec<String> {
    let reports = bed.core.take_reports().into_iter().filter_map(|report| match report {
        StatusUpdate::PodUnschedulable { pod, status_text, .. } => {
            Some(format!("{} {}", pod.name.name, status_text.reason))
        }
        StatusUpdate::Group(group) => {
            Some(format!("{} {}", group.name.name, group.status_text.reason))
        }
        StatusUpdate::Policy { name, .. } => Some(name.to_string()),
        _ => None,
    });
    let mut told: Vec<_> = reports.collect();
    told.sort();
    told
}

#[test]
fn who_leads_again_tells_anew_what_waits_though_nothing_has_changed() {
    let mut bed = Bed::new();
    bed.node(&node("a", 1));
    bed.object(&json!({"apiVersion": "octavo.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": "dense", "uid": "uid-dense", "generation": 1}, "spec": {}}));
    bed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        bed.pod(&member("g", name, "2"));
    }
    bed.object(&pod_group("h", 2, json!({})));
    bed.pod(&member("h", "alone", "2"));
    bed.pod(&pod("p", "2"));
    bed.core.stand_up();
    assert_eq!(bed.orders(), []);
    let all = [
        "dense",
        "g Unschedulable",
        "h Gathering",
        "m0 Unschedulable",
        "m1 Unschedulable",
        "p Unschedulable",
    ];
    assert_eq!(told(&mut bed), [""; 0], "all was told");
    bed.core.stand_up();
    assert_eq!(told(&mut bed), all);
    bed.core.stand_down();
    bed.core.take_reports();
    bed.core.stand_up();
    assert_eq!(bed.core.counts().ready, 0);
    assert_eq!(told(&mut bed), all);
}

fn flap(bed: &mut Bed) {
    bed.reports.clear();
    bed.core.stand_down();
    bed.core.stand_up();
    assert_eq!(bed.settle(), []);
}

fn groups(bed: &Bed) -> Vec<&GroupStatus> {
    let mut groups = Vec::new();
    for report in &bed.reports {
        if let StatusUpdate::Group(group) = report {
            groups.push(group);
        }
    }
    groups
}

#[test]
fn a_pod_that_waits_is_told_again_when_its_scheduler_leads_again() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("p", "8"));
    assert_eq!(bed.settle(), []);
    let before = bed.reason("p").expect("a reason");
    flap(&mut bed);
    assert_eq!(bed.reason("p"), Some(before));
    let explained = bed.core.explain_pod(&ObjectName::new("team", "p")).expect("the pod");
    assert!(explained.waiting.is_some(), "{explained:?}");
}

#[test]
fn gangs_that_wait_are_not_said_to_be_placed_when_their_scheduler_leads_again() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.object(&pod_group("gathers", 2, json!({})));
    bed.pod(&member("gathers", "gathers-0", "1"));
    bed.object(&pod_group("large", 2, json!({})));
    bed.pod(&member("large", "large-0", "3"));
    bed.pod(&member("large", "large-1", "3"));
    assert_eq!(bed.settle(), []);
    flap(&mut bed);
    let told: Vec<_> = groups(&bed)
        .iter()
        .map(|group| (&*group.name.name, group.phase, group.status_text.reason))
        .collect();
    let wanted = [
        ("gathers", GroupPhase::Gathering, "Gathering"),
        ("large", GroupPhase::Waiting, "Unschedulable"),
    ];
    assert_eq!(told, wanted);
}

#[test]
fn a_gang_that_runs_is_told_when_another_scheduler_leads() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.object(&pod_group("runs", 1, json!({})));
    bed.pod(&member("runs", "runs-0", "1"));
    assert_eq!(bed.settle().len(), 1);
    bed.core.take_reports();
    flap(&mut bed);
    let told = groups(&bed);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].phase, GroupPhase::Scheduled);
}
