use serde_json::json;

use super::kit::{Bed, member, node, pod, pod_group};
use crate::status::Report;

fn told(bed: &mut Bed) -> Vec<String> {
    let reports = bed.core.take_reports().into_iter().filter_map(|report| match report {
        Report::PodWaits { pod, statement, .. } => {
            Some(format!("{} {}", pod.name.name, statement.reason))
        }
        Report::Group(group) => Some(format!("{} {}", group.name.name, group.statement.reason)),
        Report::Policy { name, .. } => Some(name.to_string()),
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
