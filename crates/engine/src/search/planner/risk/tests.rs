//! Risk of GPUs in decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_health::risk::RiskClass;
use proptest::prelude::*;
use serde_json::json;

use crate::World;
use crate::cluster::Cluster;
use crate::gang::Gang;
use crate::gpu::GpuModel;
use crate::node::{NodeClass, NodeId, NodeSet, NodeSpec};
use crate::objective::CostTerm;
use crate::objective::policy::PlacementPolicy;
use crate::plan::Plan;
use crate::planner::{DecisionInput, Planner};
use crate::pod_planner::tests::fixtures::policy;
use crate::preemption::PreemptionBudget;
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};
use crate::topology::{Level, Topology};
use crate::workload::Workloads;

const GPUS: u16 = 4;

/// Nodes of four GPUs, two in a rack, with these risks.
fn world(nodes: u32, risks: &[(u32, u16, RiskClass)]) -> World {
    let model = GpuModel {
        name: "H100".to_owned(),
        memory_mib: 80_000,
        idle_watts: 0,
        full_watts: 0,
        mig: Vec::new(),
    };
    let capacity = Resources { cpu_milli: 64_000, memory_mib: 512_000, pods: 110 };
    let spec = |number: u32| NodeSpec {
        name: format!("n{number:03}").into(),
        class: NodeClass { capacity, gpus: GPUS, ..NodeClass::default() },
        labels: BTreeMap::from([("rack".to_owned(), format!("r{}", number / 2))]),
    };
    let specs: Vec<_> = (0..nodes).map(spec).collect();
    let labels: Vec<_> = specs.iter().map(|spec| spec.labels.clone()).collect();
    let levels = [Level { name: "rack".to_owned(), label: "rack".to_owned(), is_unique: false }];
    let topology = Topology::from_labels(&levels, labels.iter()).unwrap();
    let mut cluster = Cluster::new(vec![model], specs).unwrap();
    for (node, gpu, risk) in risks {
        cluster.set_gpu_risk(NodeId(*node), *gpu, *risk).unwrap();
    }
    World { cluster, topology, workloads: Workloads::default() }
}

fn gang(count: u32, gpus: u16) -> Gang {
    let resources = Resources { cpu_milli: 1000, memory_mib: 1000, pods: 1 };
    Gang::new("gang", Shape::new(resources, GpuDemand::Whole { count: gpus }), count)
}

fn decide(planner: &mut Planner, world: &mut World, policy: &PlacementPolicy, gang: &Gang) -> Plan {
    let input = DecisionInput {
        gang,
        pinned: &[],
        forbidden: &NodeSet::new(),
        preemption_budget: &PreemptionBudget::none(),
        policy,
        waiting: &[],
        weights: &BTreeMap::new(),
    };
    planner.decide(world, &input).expect("a policy").expect("a plan")
}

/// Node and GPUs of each member.
fn places(plan: &Plan) -> Vec<(u32, Vec<u16>)> {
    let gpus =
        |placed: &crate::plan::Placed| placed.placement.gpus.iter().map(|part| part.gpu).collect();
    plan.placements.iter().map(|placed| (placed.placement.node.0, gpus(placed))).collect()
}

/// Places single pods one after another until nothing is free. Returns their places.
fn fill(world: &mut World, policy: &PlacementPolicy) -> Vec<(u32, u16)> {
    let (mut planner, pod) = (Planner::default(), gang(1, 1));
    let shape = Arc::clone(&pod.groups[0].shape);
    let mut order = Vec::new();
    for _ in 0..world.cluster.totals().gpus {
        planner.arrived(&shape);
        let plan = decide(&mut planner, world, policy, &pod);
        let placement = &plan.placements[0].placement;
        world.cluster.place(&shape.resources, placement).unwrap();
        order.push((placement.node.0, placement.gpus[0].gpu));
    }
    order
}

#[test]
fn a_pod_gets_a_risky_gpu_only_if_no_other_is_free() {
    let risks = [(0, 0, RiskClass::High), (0, 2, RiskClass::Raised), (1, 1, RiskClass::Extreme)];
    let mut world = world(2, &risks);
    let order = fill(&mut world, &PlacementPolicy::default());
    assert_eq!(order[5..], [(0, 2), (0, 0), (1, 1)], "{order:?}");
}

#[test]
fn a_policy_without_the_term_packs_by_price_and_still_prefers_gpus_of_less_risk_on_a_node() {
    let mut world = world(2, &[(0, 0, RiskClass::High)]);
    let order = fill(&mut world, &policy(&json!([{"unit": "packingPrice"}]), &json!({})));
    assert_eq!(order[3], (0, 0), "one node is filled first: {order:?}");
}

#[test]
fn a_pod_that_needs_all_gpus_of_a_node_goes_to_one_without_risk() {
    let mut world = world(3, &[(0, 3, RiskClass::Raised), (1, 3, RiskClass::High)]);
    let default = PlacementPolicy::default();
    let plan = decide(&mut Planner::default(), &mut world, &default, &gang(1, GPUS));
    assert_eq!(places(&plan)[0].0, 2);
    assert_eq!(plan.cost.of(CostTerm::GpuRisk), 0);
    let runner_up = plan.runner_up.expect("another node");
    assert_eq!(runner_up.worse_in, Some(CostTerm::GpuRisk));
}

#[test]
fn a_gang_avoids_risk_unless_that_takes_more_hops() {
    let default = PlacementPolicy::default();
    // Two racks will do as well.
    let mut world = world(4, &[(0, 0, RiskClass::High), (1, 1, RiskClass::High)]);
    let plan = decide(&mut Planner::default(), &mut world, &default, &gang(2, GPUS));
    assert_eq!(places(&plan).iter().map(|place| place.0).collect::<Vec<_>>(), [2, 3]);
    assert!(
        world.cluster.nodes().all(|node| world.cluster.gpus(node).iter().all(|gpu| !gpu.is_closed))
    );
    // Every rack has a risky GPU. The one of less risk is taken.
    let mut world = self::world(4, &[(0, 0, RiskClass::Extreme), (3, 1, RiskClass::High)]);
    let plan = decide(&mut Planner::default(), &mut world, &default, &gang(2, GPUS));
    assert_eq!(places(&plan).iter().map(|place| place.0).collect::<Vec<_>>(), [2, 3]);
    assert!(plan.cost.of(CostTerm::GpuRisk) > 0);
}

#[test]
fn of_very_many_risky_gpus_the_nodes_are_avoided() {
    let default = PlacementPolicy::default();
    let mut world = world(100, &[]);
    for node in world.cluster.nodes().filter(|node| !matches!(node.0, 40 | 41)).collect::<Vec<_>>()
    {
        world.cluster.set_gpu_risk(node, 0, RiskClass::High).unwrap();
    }
    let plan = decide(&mut Planner::default(), &mut world, &default, &gang(2, GPUS));
    assert_eq!(places(&plan).iter().map(|place| place.0).collect::<Vec<_>>(), [40, 41]);
}

#[test]
fn an_expected_loss_counts_risky_gpus_once() {
    let mut world = world(1, &[(0, 0, RiskClass::High)]);
    let mut pod = gang(1, GPUS);
    pod.profile.seconds_at_risk = 3600;
    let default = PlacementPolicy::default();
    let plan = decide(&mut Planner::default(), &mut world, &default, &pod);
    let risk = plan.cost.of(CostTerm::GpuRisk);
    assert!(risk > 0);
    let lost = plan.cost.of(CostTerm::ExpectedLostGpuSeconds);
    assert_eq!(lost, (risk * i64::from(GPUS) * 3600 + 500_000) / 1_000_000);
}

fn risks() -> impl Strategy<Value = Vec<(u32, u16, RiskClass)>> {
    let class = prop::sample::select(RiskClass::ALL.to_vec());
    let risks = prop::collection::vec((0_u32..6, 0..GPUS, class), 0..12);
    // One risk for each GPU, so that the order does not matter.
    risks.prop_map(|risks| {
        let mut seen = BTreeSet::new();
        risks.into_iter().filter(|(node, gpu, _)| seen.insert((*node, *gpu))).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Single pods get GPUs in the order of their risk, in whatever order the risks were learned.
    #[test]
    fn pods_take_gpus_by_risk_whatever_was_known_first(
        risks in risks(),
        order in any::<prop::sample::Index>(),
    ) {
        let default = PlacementPolicy::default();
        let mut world = world(6, &risks);
        let places = fill(&mut world, &default);
        let risk = |(node, gpu): &(u32, u16)| world.cluster.gpus(NodeId(*node))[usize::from(*gpu)].risk;
        prop_assert!(places.is_sorted_by_key(risk), "{:?}", places);
        let mut others = risks.clone();
        if !others.is_empty() {
            let by = order.index(others.len());
            others.rotate_left(by);
        }
        prop_assert_eq!(fill(&mut self::world(6, &others), &default), places);
    }

    /// A gang's plan has no more risk than the plan that the search finds first, at no cost in earlier terms.
    #[test]
    fn gangs_get_no_worse_plans(risks in risks(), count in 1_u32..5, gpus in 1..=GPUS) {
        let default = PlacementPolicy::default();
        let mut world = world(6, &risks);
        let before = format!("{:?}", world.cluster.nodes().map(|node| world.cluster.gpus(node).to_vec()).collect::<Vec<_>>());
        let plan = decide(&mut Planner::without_packing(), &mut world, &default, &gang(count, gpus));
        let input_order: Vec<_> = ["podsDisturbed", "hops", "preferencesMissed", "packingPrice"]
            .iter().map(|unit| json!({"unit": unit})).collect();
        let without = policy(&json!(input_order), &json!({}));
        let other = decide(&mut Planner::without_packing(), &mut world, &without, &gang(count, gpus));
        prop_assert!(default.compare(&plan.cost, &other.cost).is_le());
        let after = format!("{:?}", world.cluster.nodes().map(|node| world.cluster.gpus(node).to_vec()).collect::<Vec<_>>());
        prop_assert_eq!(before, after, "the world is unchanged");
    }
}
