//! Preferences of pods and gangs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::World;
use crate::gang::Gang;
use crate::gpu::WHOLE;
use crate::node::{NodeId, NodeSet};
use crate::objective::CostTerm;
use crate::objective::policy::PlacementPolicy;
use crate::plan::Plan;
use crate::planner::{DecisionInput, Planner};
use crate::pod_planner::tests::fixtures::{at, policy, shape, world};
use crate::preemption::PreemptionBudget;
use crate::resources::Resources;
use crate::shape::GpuDemand;

fn plan(world: &mut World, policy: &PlacementPolicy, gang: &Gang) -> Plan {
    let input = DecisionInput {
        gang,
        pinned: &[],
        forbidden: &NodeSet::new(),
        preemption_budget: &PreemptionBudget::none(),
        policy,
        waiting: &[],
        weights: &BTreeMap::new(),
    };
    let plan = Planner::default().decide(world, &input).expect("a policy");
    plan.expect("a plan")
}

fn gang(count: u32, penalties: &[(u32, u32)]) -> Gang {
    let shape = shape(1000, GpuDemand::Whole { count: 1 });
    let mut gang = Gang::new("gang", (*shape).clone(), count);
    let penalties = penalties.iter().map(|(node, points)| (NodeId(*node), *points));
    gang.groups[0].penalties = Arc::new(penalties.collect());
    gang
}

fn nodes(plan: &Plan) -> Vec<u32> {
    plan.placements.iter().map(|placed| placed.placement.node.0).collect()
}

#[test]
fn a_pod_goes_to_the_feasible_node_that_misses_the_fewest_points() {
    let mut world = world(4);
    let default = PlacementPolicy::default();
    let unbiased = nodes(&plan(&mut world, &default, &gang(1, &[])))[0];
    let liked = if unbiased == 3 { 2 } else { 3 };
    let penalties: Vec<_> = (0..4).filter(|node| *node != liked).map(|node| (node, 40)).collect();
    let found = plan(&mut world, &default, &gang(1, &penalties));
    assert_eq!(nodes(&found), [liked]);
    assert_eq!(found.cost.of(CostTerm::PreferencesMissed), 0);
    let runner_up = found.runner_up.expect("the node without preferences");
    assert_eq!(runner_up.worse_in, Some(CostTerm::PreferencesMissed));
    // Once the node that the pod likes is full, the next best one is taken.
    let gpus = world.cluster.gpus(NodeId(liked)).len();
    let parts: Vec<_> = (0..gpus).map(|gpu| (u16::try_from(gpu).expect("few"), WHOLE)).collect();
    let full = at(liked, &parts);
    world.cluster.place(&Resources::default(), &full).expect("room");
    let second = (0..4).rev().find(|node| *node != liked && *node != unbiased).expect("a node");
    let mut penalties: Vec<_> = penalties;
    for (node, points) in &mut penalties {
        *points = if *node == second { 10 } else { 40 };
    }
    let found = plan(&mut world, &default, &gang(1, &penalties));
    assert_eq!(nodes(&found), [second]);
    assert_eq!(found.cost.of(CostTerm::PreferencesMissed), 10);
}

#[test]
fn a_policy_without_the_term_ignores_preferences() {
    let mut world = world(4);
    let order = json!([{ "unit": "packingPrice" }]);
    let policy = policy(&order, &json!({}));
    let unbiased = nodes(&plan(&mut world, &policy, &gang(1, &[])))[0];
    let found = plan(&mut world, &policy, &gang(1, &[(unbiased, 100)]));
    assert_eq!(nodes(&found), [unbiased]);
}

#[test]
fn an_earlier_term_outweighs_preferences() {
    let mut world = world(4);
    let order = json!([{ "unit": "expectedLostGpuSeconds" }, { "unit": "preferencesMissed" }]);
    let policy = policy(&order, &json!({}));
    let mut pod = gang(1, &[]);
    pod.profile.seconds_at_risk = 100_000;
    let reliable = nodes(&plan(&mut world, &policy, &pod))[0];
    let mut biased = gang(1, &[(reliable, 100)]);
    biased.profile.seconds_at_risk = 100_000;
    assert_eq!(nodes(&plan(&mut world, &policy, &biased)), [reliable]);
}

#[test]
fn members_of_a_gang_avoid_nodes_that_they_do_not_like() {
    let mut world = world(4);
    let default = PlacementPolicy::default();
    let unbiased = nodes(&plan(&mut world, &default, &gang(2, &[])));
    let penalties: Vec<_> = unbiased.iter().map(|node| (*node, 5)).collect();
    let found = plan(&mut world, &default, &gang(2, &penalties));
    assert!(nodes(&found).iter().all(|node| !unbiased.contains(node)), "{found:?}");
    assert_eq!(found.cost.of(CostTerm::PreferencesMissed), 0);
    assert_eq!(found.cost.of(CostTerm::Hops), 0);
}
