//! Competing demand of other pending entries.

use std::collections::BTreeMap;

use octavo_engine::explain;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::planner::{DecisionInput, Planner};
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::solve::NodeSet;
use octavo_engine::{Gang, Resources, Shape};
use octavo_kube_io::objects::ObjectName;
use serde_json::json;

use super::fixtures::{Testbed, gpu_pod, member, node, plugin_node, pod, pod_group, with};
use crate::state::SchedulerConfig;

fn policy(key: &str) -> PlacementPolicy {
    let spec = json!({"name": "p", "order": [{"unit": key}]});
    serde_json::from_value(spec).expect("a policy")
}

fn asking(count: u32) -> Gang {
    let shape = Shape::new(Resources::of_pod(1000, 0), octavo_engine::GpuDemand::None);
    Gang::new("another", shape, count)
}

fn names(gangs: &[Gang]) -> Vec<(&str, u32)> {
    gangs.iter().map(|gang| (&*gang.profile.name, gang.count())).collect()
}

/// A cluster without free capacity: all pods are pending, by priority.
fn testbed() -> Testbed {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 1));
    testbed.pod(&pod("late", "8"));
    testbed.pod(&with(pod("first", "8"), "/spec/priority", json!(5)));
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&with(member("g", name, "4"), "/spec/priority", json!(3)));
    }
    // Gangs enter the queue with the clock.
    testbed.time(0);
    testbed
}

#[test]
fn competing_gangs_are_in_queue_order_without_the_requester() {
    let mut testbed = testbed();
    let before = testbed.scheduler.competing_gangs(&asking(2), &PlacementPolicy::default());
    let names_of = names(&before);
    assert_eq!(names_of.len(), 3, "before the first decision: {names_of:?}");
    assert_eq!((names_of[0], names_of[2]), (("pod team/first", 1), ("pod team/late", 1)));
    assert_eq!(names_of[1].1, 2);
    assert_eq!(testbed.settle(), []);
    let after = testbed.scheduler.competing_gangs(&asking(2), &PlacementPolicy::default());
    assert_eq!(names(&after), names_of);
    let own = Gang { groups: asking(2).groups, ..before[1].clone() };
    let others = testbed.scheduler.competing_gangs(&own, &policy("fairnessDeficit"));
    assert_eq!(names(&others), [names_of[0], names_of[2]]);
    testbed.drop_pod("first");
    assert_eq!(testbed.scheduler.competing_gangs(&asking(2), &policy("gpuMilliStranded")).len(), 2);
}

#[test]
fn competing_gangs_are_skipped_where_the_policy_ignores_them() {
    let testbed = testbed();
    assert_eq!(testbed.scheduler.competing_gangs(&asking(2), &policy("hops")), []);
    // A single pod is placed by the packing policy, which learns by itself.
    assert_eq!(testbed.scheduler.competing_gangs(&asking(1), &PlacementPolicy::default()), []);
    assert_eq!(testbed.scheduler.competing_gangs(&asking(1), &policy("fairnessDeficit")).len(), 3);
}

#[test]
fn competing_gangs_are_limited_to_the_first() {
    let mut testbed = Testbed::new();
    for number in 0..70 {
        testbed.pod(&with(pod(&format!("p{number:02}"), "1"), "/spec/priority", json!(number)));
    }
    let others = testbed.scheduler.competing_gangs(&asking(2), &PlacementPolicy::default());
    assert_eq!((others.len(), &*others[0].profile.name), (64, "pod team/p69"));
}

#[test]
fn pods_without_known_requests_count_against_the_limit() {
    let mut testbed = Testbed::new();
    for number in 0..70 {
        // Its claim does not exist yet.
        let claims = json!([{"name": "c", "resourceClaimTemplateName": "t"}]);
        let pod = with(pod(&format!("p{number:02}"), "1"), "/spec/priority", json!(5));
        testbed.pod(&with(pod, "/spec/resourceClaims", claims));
    }
    testbed.pod(&pod("behind", "1"));
    let others = testbed.scheduler.competing_gangs(&asking(2), &PlacementPolicy::default());
    assert_eq!(names(&others), [], "one decision must not check the whole queue");
}

#[test]
fn recorded_decisions_contain_the_competing_gangs() {
    let config = SchedulerConfig { records: 1, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    for name in ["a", "b"] {
        testbed.node(&plugin_node(name));
    }
    testbed.object(&pod_group("g", 2, json!({})));
    let limits = json!({"nvidia.com/gpu": "2"});
    for name in ["m0", "m1"] {
        let pod = with(member("g", name, "1"), "/spec/priority", json!(3));
        testbed.pod(&with(pod, "/spec/containers/0/resources/limits", limits.clone()));
    }
    testbed.pod(&gpu_pod("p", 3));
    assert_eq!(testbed.settle().len(), 3);
    let name = ObjectName { namespace: "team".into(), name: "g".into() };
    let recorded = testbed.scheduler.recorded_group_decision(&name).expect("a record");
    let mut world = recorded.cluster.world().expect("a world");
    let waiting = recorded.cluster.gangs(&world).expect("others");
    assert_eq!(names(&waiting), [("pod team/p", 1)]);
    let own = octavo_engine::snapshot::Snapshot {
        waiting: vec![recorded.gang.clone()],
        ..Default::default()
    };
    let gang = own.gangs(&world).expect("the gang").remove(0);
    let mut planner = match &recorded.cluster.packing {
        Some(packing) => {
            Planner::restored(packing, &world.cluster).expect("the packing policy's state")
        }
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
