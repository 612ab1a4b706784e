//! Single pods under policies that compare more than the packing price.

use serde_json::json;

use super::*;
use crate::cluster::Cluster;
use crate::gpu::{Slices, WHOLE};
use crate::node::{NodeClass, NodeId, NodeSpec};
use crate::objective::CostTerm;
use crate::plan::Remedy;
use crate::pod_planner::tests::fixtures::{at, policy, shape, world};
use crate::resources::Resources;
use crate::topology::{Level, Topology};
use crate::workload::Workloads;

fn decide(world: &mut World, policy: &PlacementPolicy, shape: &Arc<Shape>) -> PlanResult {
    let mut gang = Gang::new("pod", (**shape).clone(), 1);
    gang.profile.seconds_at_risk = 100_000;
    let input = DecisionInput {
        gang: &gang,
        pinned: &[],
        forbidden: &NodeSet::new(),
        preemption_budget: &PreemptionBudget::none(),
        policy,
        waiting: &[],
        weights: &BTreeMap::new(),
    };
    Planner::default().decide(world, &input).unwrap()
}

#[test]
fn policy_takes_the_best_and_names_the_runner_up() {
    let mut world = world(4);
    let order = json!([{ "unit": "watts" }, { "unit": "packingPrice" }]);
    let half = shape(1000, GpuDemand::of(1, 500));
    // A small GPU wakes for 60 W, a big one for 350 W; the package costs 80 W on any node.
    let plan = decide(&mut world, &policy(&order, &json!({})), &half).unwrap();
    assert_eq!(plan.placements[0].placement, at(2, &[(0, 500)]));
    assert_eq!(plan.cost.of(CostTerm::Watts), 140);
    let other = plan.runner_up.unwrap();
    // n3 is in another state because its hazard differs; it costs the same.
    assert_eq!((other.place.as_str(), other.worse_in), ("r1: n3", None));
    // Awake GPUs and packages cost nothing more: the tighter GPU decides.
    world.cluster.place(&Resources::of_pod(2000, 0), &at(0, &[(1, 300), (2, 500)])).unwrap();
    let plan = decide(&mut world, &policy(&order, &json!({})), &half).unwrap();
    assert_eq!(plan.placements[0].placement, at(0, &[(2, 500)]));
    let other = plan.runner_up.unwrap();
    assert_eq!((other.place.as_str(), other.worse_in), ("r1: n2", Some(CostTerm::Watts)));
    assert_eq!(plan.cost.of(CostTerm::Watts), 0);
}

#[test]
fn packing_passes_over_forbidden_nodes_and_the_search_says_which_are() {
    let mut world = world(4);
    let half = shape(1000, GpuDemand::of(1, 500));
    let gang = Gang::new("pod", (*half).clone(), 1);
    let mut planner = Planner::default();
    let mut decide = |forbidden: &NodeSet| {
        let input = DecisionInput {
            gang: &gang,
            pinned: &[],
            forbidden,
            preemption_budget: &PreemptionBudget::none(),
            policy: &PlacementPolicy::default(),
            waiting: &[],
            weights: &BTreeMap::new(),
        };
        planner.decide(&mut world, &input).unwrap()
    };
    let mut forbidden = NodeSet::new();
    for left in (1..=4).rev() {
        let plan = decide(&forbidden).unwrap();
        assert_eq!(plan.steps == 1, left > 1, "of packing while half is left: {left} are");
        assert!(forbidden.insert(plan.placements[0].placement.node));
    }
    let refusal = decide(&forbidden).unwrap_err();
    assert!(!matches!(refusal.reason, Reason::NoNode(_)), "{refusal:?}");
}

#[test]
fn a_limit_sends_the_pod_elsewhere_or_refuses_it() {
    let mut world = world(4);
    let order = json!([{ "unit": "expectedLostGpuSeconds" }]);
    let whole = shape(1000, GpuDemand::Whole { count: 1 });
    let mut decide = |constraints: &serde_json::Value| {
        super::tests::decide(&mut world, &policy(&order, constraints), &whole)
    };
    // The most reliable node is n0, which is large; idle, all draw 2 * 240 + 2 * 50 = 580 W.
    let node = |answer: PlanResult| answer.unwrap().placements[0].placement.node;
    assert_eq!(node(decide(&json!({}))), NodeId(0));
    assert_eq!(node(decide(&json!({ "maxWatts": 580 + 430 }))), NodeId(0));
    assert_eq!(node(decide(&json!({ "maxWatts": 580 + 429 }))), NodeId(2));
    assert_eq!(node(decide(&json!({ "maxCentsPerHour": 99 }))), NodeId(2));
    let refusal = decide(&json!({ "maxCentsPerHour": 79 })).unwrap_err();
    // The best plan would be on n0.
    let reason = Reason::Constraint { unit: "cents per hour", most: 79, found: 100 };
    assert_eq!(refusal.reason, reason);
    let remedy = Remedy::Constraint { unit: "cents per hour".to_owned(), to: 100 };
    assert_eq!(refusal.remedy, Some(remedy));
}

#[test]
fn spare_nodes_are_kept_in_the_domain_that_would_lose_its_last() {
    let mut world = world(4);
    // n0 is used, so n1 is the last spare node of r0.
    world.cluster.place(&Resources::of_pod(0, 0), &at(0, &[(0, 500)])).unwrap();
    let order = json!([{ "unit": "expectedLostGpuSeconds" }]);
    let spares = json!({ "spares": [{ "level": "rack", "nodes": 1 }] });
    let pod = |count| shape(1000, GpuDemand::Whole { count });
    let plan = decide(&mut world, &policy(&order, &spares), &pod(3)).unwrap();
    assert_eq!(plan.placements[0].placement.node, NodeId(0));
    assert_eq!(plan.runner_up, None);
    let refusal = decide(&mut world, &policy(&order, &spares), &pod(4)).unwrap_err();
    assert_eq!(
        refusal.reason.to_string(),
        "the policy keeps spare nodes in rack r0, at least 1; the best plan would leave 0"
    );
}

#[test]
fn first_node_of_a_state_whose_domain_keeps_its_spares_is_taken() {
    // n4 and n5 differ from n0 in their hazard, so the cluster gets only large nodes.
    let mut nodes = Vec::new();
    for (name, rack) in [("a", "r0"), ("b", "r1"), ("c", "r1")] {
        let capacity = Resources { cpu_milli: 1000, memory_mib: 0, pods: 1 };
        let class = NodeClass { capacity, gpus: 1, ..NodeClass::default() };
        let labels = [("rack".to_owned(), rack.to_owned())].into();
        nodes.push(NodeSpec { name: name.into(), class, labels });
    }
    let levels = [Level { name: "rack".into(), label: "rack".to_owned(), is_unique: false }];
    let topology = Topology::from_labels(&levels, nodes.iter().map(|node| &node.labels)).unwrap();
    let models = world(1).cluster.models().to_vec();
    let cluster = Cluster::new(models, nodes).unwrap();
    let mut world = World { cluster, topology, workloads: Workloads::default() };
    let spares = json!({ "spares": [{ "level": "rack", "nodes": 1 }] });
    let policy = policy(&json!([{ "unit": "watts" }]), &spares);
    let plan = decide(&mut world, &policy, &shape(0, GpuDemand::of(1, 100))).unwrap();
    assert_eq!(plan.placements[0].placement, at(1, &[(0, 100)]));
}

#[test]
fn a_share_of_nothing_is_not_placed_on_a_full_gpu() {
    let mut world = world(8);
    // n0 is the only node with an awake CPU package. Of its GPUs one is full and one is partitioned.
    let running = Resources::of_pod(1000, 0);
    let mut instance = at(0, &[(2, 0)]);
    instance.gpus[0].slices = Slices::range(0, 2);
    world.cluster.place(&running, &at(0, &[(1, WHOLE)])).unwrap();
    world.cluster.place(&Resources::default(), &instance).unwrap();
    let order = json!([{ "unit": "watts" }, { "unit": "packingPrice" }]);
    let policy = policy(&order, &json!({}));
    let shape = shape(1000, GpuDemand::Share { count: 3, milli: 0, memory_mib: 0 });
    let plan = decide(&mut world, &policy, &shape).unwrap();
    assert_eq!(plan.placements[0].placement, at(1, &[(0, 0), (1, 0), (2, 0)]));
}

/// A search for victims could only say that too few GPUs are free.
#[test]
fn a_refusal_that_no_disruption_could_change_names_the_scarce_resource() {
    use crate::plan::Scarce;
    use crate::preemption::fixtures;
    let mut world = fixtures::world(&[1], 4);
    fixtures::pod(&mut world, "a", 1, 4, 0);
    let gang = Gang::new("new", fixtures::whole(2), 2);
    let mut scarce = |priority, moves| {
        let preemption_budget =
            PreemptionBudget { moves, ..PreemptionBudget::evictions_below(priority) };
        let input = DecisionInput {
            gang: &gang,
            pinned: &[],
            forbidden: &NodeSet::new(),
            preemption_budget: &preemption_budget,
            policy: &PlacementPolicy::default(),
            waiting: &[],
            weights: &BTreeMap::new(),
        };
        let answer = Planner::without_packing().decide(&mut world, &input).unwrap();
        answer.map(|plan| plan.evictions.len()).map_err(|refusal| match refusal.reason {
            Reason::Bound(bound) => bound.scarce,
            _ => Scarce::Free,
        })
    };
    assert_eq!(scarce(1, 0), Err(Scarce::Gpus), "the priority is equal");
    assert_eq!(scarce(2, 0), Ok(1));
    assert_eq!(scarce(1, 1), Err(Scarce::Free), "a search for a move, which has no target");
}

#[test]
fn the_cheapest_disruption_of_a_refused_gang_is_by_moves_or_by_evictions() {
    use crate::preemption::fixtures;
    let mut world = fixtures::world(&[2], 4);
    fixtures::pod(&mut world, "a", 0, 1, 0);
    fixtures::pod(&mut world, "b", 0, 2, 1);
    let mut gang = Gang::new("new", fixtures::whole(4), 1);
    gang.profile.priority = 1;
    let ask = |world: &mut World, steps| {
        let input = DecisionInput {
            gang: &gang,
            pinned: &[],
            forbidden: &NodeSet::new(),
            preemption_budget: &PreemptionBudget { steps, ..PreemptionBudget::none() },
            policy: &PlacementPolicy::default(),
            waiting: &[],
            weights: &BTreeMap::new(),
        };
        assert!(Planner::without_packing().decide(world, &input).unwrap().is_err());
        let (plan, is_truncated) = Planner::cheapest_disruption(world, &input, 1).unwrap();
        (plan.map(|plan| (plan.moves.len(), plan.evictions.len())), is_truncated)
    };
    let steps = PreemptionBudget::STEPS;
    assert_eq!(ask(&mut world, steps), (Some((1, 0)), false));
    fixtures::pod(&mut world, "c", 0, 2, 1);
    fixtures::pod(&mut world, "d", 0, 3, 0);
    assert_eq!(ask(&mut world, steps), (Some((0, 2)), false));
    assert_eq!(ask(&mut world, 0), (None, true));
}

/// What a planner has counted: the weights in pods, and whether the cluster is steady.
fn learned(planner: &Planner, world: &World) -> (Vec<i64>, bool) {
    let record = planner.saved(&world.cluster).unwrap();
    (record.counts.iter().map(|count| count.weight >> 16).collect(), record.churn.is_steady)
}

fn decide_by(planner: &mut Planner, world: &mut World, gang: &Gang) -> Plan {
    let input = DecisionInput {
        gang,
        pinned: &[],
        forbidden: &NodeSet::new(),
        preemption_budget: &PreemptionBudget::none(),
        policy: &PlacementPolicy::default(),
        waiting: &[],
        weights: &BTreeMap::new(),
    };
    planner.decide(world, &input).unwrap().unwrap()
}

#[test]
fn a_new_planner_learns_the_demand_from_the_running_pods() {
    use crate::preemption::fixtures::{pod, whole, world};
    for (of_each, is_steady) in [(5, false), (6, true)] {
        let mut world = world(&[4], 8);
        for (name, node) in [("a", 0), ("b", 1), ("c", 2)] {
            pod(&mut world, name, 0, of_each, node);
        }
        for number in 0..9 {
            pod(&mut world, &format!("without {number}"), 0, 0, 3);
        }
        let gang = Gang::new("pod", whole(1), 1);
        let mut planner = Planner::default();
        // What arrived before the first decision counts too.
        planner.arrived(&gang.groups[0].shape);
        for _ in 0..2 {
            decide_by(&mut planner, &mut world, &gang);
            // The running pods with GPUs are counted once.
            assert_eq!(learned(&planner, &world), (vec![3, 1], is_steady), "{of_each}");
        }
    }
}

#[test]
fn a_cluster_that_runs_only_pods_without_gpus_is_not_steady() {
    use crate::preemption::fixtures::{pod, whole, world};
    let mut world = world(&[1], 1);
    pod(&mut world, "without", 0, 0, 0);
    let mut planner = Planner::default();
    decide_by(&mut planner, &mut world, &Gang::new("pod", whole(1), 1));
    assert_eq!(learned(&planner, &world), (vec![], false));
}

#[test]
fn members_of_the_first_gangs_are_counted_once() {
    use crate::preemption::fixtures::{in_a_rack, run, whole, world};
    let mut world = world(&[2], 8);
    let gang = in_a_rack("gang", 8, 2);
    let mut planner = Planner::default();
    for _ in 0..2 {
        planner.arrived(&gang.groups[0].shape);
    }
    let plan = decide_by(&mut planner, &mut world, &gang);
    let nodes: Vec<u32> = plan.placements.iter().map(|one| one.placement.node.0).collect();
    run(&mut world, gang.profile.clone(), 2, &whole(8), &nodes[..1]);
    decide_by(&mut planner, &mut world, &Gang::new("pod", whole(1), 1));
    assert_eq!(learned(&planner, &world), (vec![2], false));
}
