pub(in crate::search) mod fixtures;

use std::sync::Arc;

use fixtures::{at, shape, world};

use super::*;
use crate::cluster::Cluster;
use crate::fragmentation::TypicalPods;
use crate::gpu::{ModelId, ModelSet};
use crate::node::FeatureMask;
use crate::objective::CostVector;
use crate::objective::cost::PolicyCostModel;
use crate::objective::fairness::FairShares;
use crate::objective::policy::PlacementPolicy;
use crate::packing::Choice;
use crate::resources::Resources;
use crate::shape::GpuDemand;

/// Takes the first fitting node; its score is the negated node number.
struct FirstFit;

impl Packing for FirstFit {
    fn name(&self) -> &'static str {
        "firstFit"
    }

    fn choose(&mut self, cluster: &Cluster, shape: &Arc<Shape>) -> Option<Choice> {
        let mut places =
            cluster.nodes().filter_map(|node| crate::pick::default_placement(cluster, node, shape));
        let score = |node: NodeId| -i64::from(node.0) - 7;
        let placement = places.next()?;
        let rival = |place: Placement| Rival { node: place.node, score: score(place.node) };
        let score = score(placement.node);
        Some(Choice { placement, score, runner_up: places.next().map(rival) })
    }
}

fn decide(world: &World, shape: &Arc<Shape>) -> PlanResult {
    let policy = PlacementPolicy::default();
    let (typical, shares) = (TypicalPods::default(), FairShares::default());
    let cost_model = PolicyCostModel::new(world, &policy, &typical, &shares).unwrap();
    let mut gang = Gang::new("pod", (**shape).clone(), 1);
    gang.profile.seconds_at_risk = 100_000;
    plan_pod(world, &cost_model, &mut FirstFit, &gang)
}

#[test]
fn under_the_default_the_packing_policy_chooses_and_prices() {
    let world = world(4);
    let plan = decide(&world, &shape(1000, GpuDemand::of(1, 500)));
    let plan = plan.unwrap();
    assert_eq!(plan.placements[0].placement.node, NodeId(0));
    let cost = |cost: &CostVector| {
        [CostTerm::PackingPrice, CostTerm::Watts, CostTerm::CentsPerHour].map(|unit| cost.of(unit))
    };
    assert_eq!(cost(&plan.cost), [7, 350 + 80, 50]);
    let other = plan.runner_up.unwrap();
    assert_eq!(
        (other.place.as_str(), other.worse_in),
        ("node n1 in r0", Some(CostTerm::PackingPrice))
    );
    assert_eq!(cost(&other.cost), [8, 350 + 80, 50]);
}

#[test]
fn infeasible_nodes_are_counted_by_their_first_obstacle() {
    let mut world = world(8);
    let pod = |cpu| Resources { cpu_milli: cpu, memory_mib: 0, pods: 1 };
    world.cluster.set_open(NodeId(0), false).unwrap();
    world.cluster.place(&pod(15_000), &at(1, &[])).unwrap();
    world.cluster.place(&pod(0), &at(4, &[(0, 600), (1, 600), (2, 600), (3, 600)])).unwrap();
    world.cluster.place(&pod(0), &at(5, &[(0, 1000), (1, 1000), (2, 1000), (3, 200)])).unwrap();
    let wanted = shape(2000, GpuDemand::Whole { count: 1 });
    let mut only_big = (*wanted).clone();
    only_big.models = ModelSet(0).with(ModelId(0));
    let answer = decide(&world, &Arc::new(only_big.clone()));
    let refusal = answer.unwrap_err();
    assert_eq!(
        refusal.reason.to_string(),
        "the pod fits none of 8 nodes: another GPU model, or no such MIG profile (4), \
         closed for new pods (1), insufficient CPU (1), enough GPU capacity free, but fragmented (1), insufficient GPU capacity (1)"
    );
    assert_eq!(refusal.remedy, Some(Remedy::MoreNodes { nodes: 1, like: "n0".into() }));
    // The pod fits no node even when empty, so more such nodes are no remedy.
    let large = shape(17_000, GpuDemand::None);
    let refusal = decide(&world, &large).unwrap_err();
    let Reason::NoNode(infeasible) = &refusal.reason else { panic!("{refusal:?}") };
    assert_eq!(infeasible.counts, [(Obstacle::TooSmall, 8)].into());
    assert_eq!(refusal.remedy, None);
    let counts = |shape: Shape| InfeasibleCounts::of(&world.cluster, &shape).counts;
    let marked = Shape { needs: FeatureMask(1), ..(*wanted).clone() };
    assert_eq!(counts(marked), [(Obstacle::Selector, 8)].into());
    let mig = GpuDemand::Mig { count: 1, profile: "9g".into() };
    assert_eq!(counts(Shape::new(pod(0), mig)), [(Obstacle::Model, 8)].into());
    let memory = Resources { memory_mib: 1, ..pod(0) };
    world.cluster.place(&Resources { memory_mib: 64_000, ..pod(0) }, &at(2, &[])).unwrap();
    let shape = Shape::new(memory, GpuDemand::None);
    let infeasible = InfeasibleCounts::of(&world.cluster, &shape).counts;
    assert_eq!(infeasible, [(Obstacle::Closed, 1), (Obstacle::Memory, 1)].into());
}
