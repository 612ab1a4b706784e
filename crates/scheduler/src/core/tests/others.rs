//! Others that wait, as far as decisions look at them.

use std::collections::BTreeMap;

use octavo_engine::explain;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::planner::{DecisionInput, Planner};
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::solve::NodeSet;
use octavo_engine::{Gang, Resources, Shape};
use octavo_kube_io::objects::ObjectName;
use serde_json::json;

use super::kit::{Bed, gpu_pod, member, node, plugin_node, pod, pod_group, with};
use crate::core::CoreConfig;

fn policy(unit: &str) -> PlacementPolicy {
    let spec = json!({"name": "p", "order": [{"unit": unit}]});
    serde_json::from_value(spec).expect("a policy")
}

fn asking(count: u32) -> Gang {
    let shape = Shape::new(Resources::of_pod(1000, 0), octavo_engine::GpuDemand::None);
    Gang::new("another", shape, count)
}

fn names(gangs: &[Gang]) -> Vec<(&str, u32)> {
    gangs.iter().map(|gang| (&*gang.profile.name, gang.count())).collect()
}

/// Nothing has room: all wait, by priority.
fn bed() -> Bed {
    let mut bed = Bed::new();
    bed.node(&node("a", 1));
    bed.pod(&pod("late", "8"));
    bed.pod(&with(pod("first", "8"), "/spec/priority", json!(5)));
    bed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        bed.pod(&with(member("g", name, "4"), "/spec/priority", json!(3)));
    }
    bed
}

#[test]
fn who_waits_is_told_in_the_order_of_the_queue_and_never_who_asks() {
    let mut bed = bed();
    let before = bed.core.others_than(&asking(2), &PlacementPolicy::default());
    let names_of = names(&before);
    assert_eq!(names_of.len(), 3, "before anybody was decided on: {names_of:?}");
    assert_eq!((names_of[0], names_of[2]), (("pod team/first", 1), ("pod team/late", 1)));
    assert_eq!(names_of[1].1, 2);
    assert_eq!(bed.settle(), []);
    let after = bed.core.others_than(&asking(2), &PlacementPolicy::default());
    assert_eq!(names(&after), names_of);
    let own = Gang { groups: asking(2).groups, ..before[1].clone() };
    let others = bed.core.others_than(&own, &policy("fairnessDeficit"));
    assert_eq!(names(&others), [names_of[0], names_of[2]]);
    bed.drop_pod("first");
    assert_eq!(bed.core.others_than(&asking(2), &policy("gpuMilliStranded")).len(), 2);
}

#[test]
fn they_are_not_looked_for_where_they_decide_nothing() {
    let bed = bed();
    assert_eq!(bed.core.others_than(&asking(2), &policy("hops")), []);
    // A single pod goes by the packing policy, which learns by itself.
    assert_eq!(bed.core.others_than(&asking(1), &PlacementPolicy::default()), []);
    assert_eq!(bed.core.others_than(&asking(1), &policy("fairnessDeficit")).len(), 3);
}

#[test]
fn of_many_the_first_are_told() {
    let mut bed = Bed::new();
    for number in 0..70 {
        bed.pod(&with(pod(&format!("p{number:02}"), "1"), "/spec/priority", json!(number)));
    }
    let others = bed.core.others_than(&asking(2), &PlacementPolicy::default());
    assert_eq!((others.len(), &*others[0].profile.name), (64, "pod team/p69"));
}

#[test]
fn those_of_whom_nothing_is_known_are_not_passed_over_for_who_is_far_behind() {
    let mut bed = Bed::new();
    for number in 0..70 {
        // Its claim is not made yet.
        let claims = json!([{"name": "c", "resourceClaimTemplateName": "t"}]);
        let pod = with(pod(&format!("p{number:02}"), "1"), "/spec/priority", json!(5));
        bed.pod(&with(pod, "/spec/resourceClaims", claims));
    }
    bed.pod(&pod("behind", "1"));
    let others = bed.core.others_than(&asking(2), &PlacementPolicy::default());
    assert_eq!(names(&others), [], "or one decision would ask for the whole queue");
}

#[test]
fn a_decision_that_others_had_a_part_in_is_recorded_with_them() {
    let config = CoreConfig { records: 1, ..CoreConfig::default() };
    let mut bed = Bed::with_config(config);
    for name in ["a", "b"] {
        bed.node(&plugin_node(name));
    }
    bed.object(&pod_group("g", 2, json!({})));
    let limits = json!({"nvidia.com/gpu": "2"});
    for name in ["m0", "m1"] {
        let pod = with(member("g", name, "1"), "/spec/priority", json!(3));
        bed.pod(&with(pod, "/spec/containers/0/resources/limits", limits.clone()));
    }
    bed.pod(&gpu_pod("p", 3));
    assert_eq!(bed.settle().len(), 3);
    let name = ObjectName { namespace: "team".into(), name: "g".into() };
    let recorded = bed.core.recorded(&name).expect("a record");
    let mut world = recorded.cluster.world().expect("a world");
    let waiting = recorded.cluster.gangs(&world).expect("others");
    assert_eq!(names(&waiting), [("pod team/p", 1)]);
    let own = octavo_engine::snapshot::Snapshot {
        waiting: vec![recorded.gang.clone()],
        ..Default::default()
    };
    let gang = own.gangs(&world).expect("the gang").remove(0);
    let mut planner = match &recorded.cluster.packing {
        Some(packing) => Planner::restored(packing, &world.cluster).expect("what was learned"),
        None => Planner::default(),
    };
    let (forbidden, weights) = (NodeSet::new(), BTreeMap::new());
    let case = DecisionInput {
        gang: &gang,
        pinned: &[],
        forbidden: &forbidden,
        preemption_budget: &PreemptionBudget::none(),
        policy: &recorded.policy,
        waiting: &waiting,
        weights: &weights,
    };
    let answer = planner.decide(&mut world, &case).expect("a policy");
    assert_eq!(explain::answer(&world, &recorded.policy, &gang, &answer), recorded.answer);
}
