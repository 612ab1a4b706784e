use std::sync::Arc;

use super::*;
use crate::World;
use crate::fragmentation::{NodeResidual, TypicalPods};
use crate::gang::Gang;
use crate::gpu::{GpuModel, Slices};
use crate::node::{NodeClass, NodeSpec};
use crate::objective::CostModel;
use crate::objective::fairness::{FairShares, Tenant};
use crate::objective::policy::PlacementPolicy;
use crate::objective::{CostTerm, CostVector};
use crate::placement::{GpuPart, Placement};
use crate::plan::{DisruptionSet, Move, Placed, Reason};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};
use crate::topology::{Level, Topology};
use crate::workload::{Coupling, Member, MemberId, Profile, Workload, Workloads};

/// Two racks of two nodes; each node has two GPUs, 8 cores in two packages, and costs 100 cents per
/// hour. `n0` fails the most often.
fn world() -> World {
    let model = GpuModel {
        name: "T4".to_owned(),
        memory_mib: 16_000,
        idle_watts: 10,
        full_watts: 70,
        mig: Vec::new(),
    };
    let node = |number: u32| {
        let class = NodeClass {
            capacity: Resources { cpu_milli: 16_000, memory_mib: 64_000, pods: 10 },
            gpus: 2,
            cents_per_hour: 100,
            idle_watts: 40,
            full_watts: 200,
            package_cores: 4,
            hazard_ppm: if number == 0 { 900 } else { 100 },
            ..NodeClass::default()
        };
        let labels = [("rack".to_owned(), format!("r{}", number / 2))].into();
        NodeSpec { name: format!("n{number}").into(), class, labels }
    };
    let nodes: Vec<_> = (0..4).map(node).collect();
    let levels = [Level { name: "rack".into(), label: "rack".to_owned(), is_unique: false }];
    let topology = Topology::from_labels(&levels, nodes.iter().map(|node| &node.labels)).unwrap();
    let cluster = Cluster::new(vec![model], nodes).unwrap();
    World { cluster, topology, workloads: Workloads::default() }
}

fn at(node: u32, parts: &[(u16, u16, u32)]) -> Placement {
    let part = |&(gpu, milli, memory_mib)| GpuPart { gpu, milli, slices: Slices::NONE, memory_mib };
    Placement { node: NodeId(node), gpus: parts.iter().map(part).collect() }
}

fn placed(places: &[Placement]) -> Vec<Placed> {
    let placed =
        |(rank, place): (u32, &Placement)| Placed { group: 0, rank, placement: place.clone() };
    (0..).zip(places).map(placed).collect()
}

fn gang(cpu_milli: i64, count: u32) -> Gang {
    let shape = Shape::new(Resources::of_pod(cpu_milli, 0), GpuDemand::of(1, 500));
    Gang::new("asked", shape, count)
}

/// The cost of placing members of 3000 milli-CPU each.
fn cost(world: &World, typical: &TypicalPods, places: &[Placement]) -> CostVector {
    let policy = PlacementPolicy::default();
    let shares = FairShares::default();
    let cost_model = PolicyCostModel::new(world, &policy, typical, &shares).unwrap();
    let count = u32::try_from(places.len()).unwrap();
    let mut gang = gang(3000, count);
    gang.profile.seconds_at_risk = 600;
    cost_model.cost(world, &gang, &placed(places), DisruptionSet::default())
}

fn run(world: &mut World, name: &str, tenant: &str, places: &[Placement]) {
    let shape = Arc::new(Shape::new(Resources::of_pod(1000, 0), GpuDemand::of(1, 500)));
    let member = |placement: &Placement| {
        world.cluster.place(&shape.resources, placement).unwrap();
        Some(Member { shape: Arc::clone(&shape), placement: placement.clone(), limit: None })
    };
    let members = places.iter().map(member).collect();
    let profile = Profile { tenant: tenant.into(), ..Profile::new(name) };
    let coupling = Coupling::default();
    world.workloads.add(Workload { profile, min_members: 1, coupling, members }).unwrap();
}

#[test]
fn hops_are_those_of_the_ring_back_to_the_first_rank() {
    let world = world();
    let hops = |nodes: &[u32]| {
        let places: Vec<_> = nodes.iter().map(|node| at(*node, &[])).collect();
        cost(&world, &TypicalPods::default(), &places).of(CostTerm::Hops)
    };
    assert_eq!(hops(&[0]), 0);
    assert_eq!(hops(&[0, 1]), 2 + 2);
    assert_eq!(hops(&[0, 0, 1, 2]), 2 + 4 + 4);
    assert_eq!(hops(&[0, 2, 1, 3]), 4 * 4, "the order of ranks matters");
}

#[test]
fn watts_are_those_that_are_added() {
    let mut world = world();
    let watts = |world: &World, places: &[Placement]| {
        cost(world, &TypicalPods::default(), places).of(CostTerm::Watts)
    };
    // A GPU wakes (10 -> 70) and one of two packages of four cores does (20 -> 100).
    assert_eq!(watts(&world, &[at(1, &[(0, 500, 0)])]), 60 + 80);
    // Two GPUs, and 6,000 milli are three cores: still one package.
    assert_eq!(watts(&world, &[at(1, &[(0, 500, 0)]), at(1, &[(1, 500, 0)])]), 120 + 80);
    // Two nodes cost twice as much.
    assert_eq!(watts(&world, &[at(1, &[(0, 500, 0)]), at(2, &[(0, 500, 0)])]), 2 * 140);
    run(&mut world, "runs", "a", &[at(1, &[(0, 500, 0)])]);
    assert_eq!(watts(&world, &[at(1, &[(0, 500, 0)])]), 0, "both are awake");
    // With the 1,000 of the running pod, 9,000 are five cores: the second package wakes.
    let three = [at(1, &[(0, 100, 0)]), at(1, &[(0, 100, 0)]), at(1, &[(0, 100, 0)])];
    assert_eq!(watts(&world, &three), 80);
}

#[test]
fn cents_follow_the_larger_part_of_the_node() {
    let mut world = world();
    let cents = |world: &World, place: Placement| {
        cost(world, &TypicalPods::default(), &[place]).of(CostTerm::CentsPerHour)
    };
    // 3,000 of 16,000 milli-CPU are 18.75 %; rounded up.
    assert_eq!(cents(&world, at(1, &[])), 19);
    assert_eq!(cents(&world, at(1, &[(0, 500, 0)])), 25);
    // All memory of a GPU takes the GPU, whatever the compute.
    assert_eq!(cents(&world, at(1, &[(0, 1, 16_000)])), 50);
    run(&mut world, "runs", "a", &[at(1, &[(0, 1000, 0)])]);
    // Its GPU pays for half of the node; 4,000 milli-CPU are less.
    assert_eq!(cents(&world, at(1, &[])), 0);
    assert_eq!(cents(&world, at(1, &[(1, 10, 0)])), 1, "50.5 %, rounded up");
}

#[test]
fn a_whole_gang_is_at_risk_on_each_of_its_nodes() {
    let mut world = world();
    let lost = |world: &World, places: &[Placement]| {
        cost(world, &TypicalPods::default(), places).of(CostTerm::ExpectedLostGpuSeconds)
    };
    let whole = |node| at(node, &[(0, 1000, 0), (1, 1000, 0)]);
    // (900 + 100) ppm x 4 GPUs x 600 s = 2.4; (100 + 100) x 4 x 600 = 0.48.
    assert_eq!(lost(&world, &[whole(0), whole(1)]), 2);
    assert_eq!(lost(&world, &[whole(1), whole(2)]), 0);
    // Four members on one node count once. 900 x 2 x 600 = 1.08.
    let half = |gpu| at(0, &[(gpu, 500, 0)]);
    assert_eq!(lost(&world, &[half(0), half(0), half(1), half(1)]), 1);
    // A late member: the running members are lost with it. 900 ppm x (1 + 2) x 600 = 1.62.
    run(&mut world, "asked", "a", &[whole(2)]);
    assert_eq!(lost(&world, &[at(0, &[(0, 1000, 0)])]), 2);
}

#[test]
fn stranded_cost_is_the_fragmentation_increase() {
    let mut world = world();
    run(&mut world, "runs", "a", &[at(1, &[(0, 700, 0)])]);
    let half = Shape::new(Resources::of_pod(1000, 0), GpuDemand::of(1, 500));
    let whole = Shape::new(Resources::of_pod(1000, 0), GpuDemand::Whole { count: 1 });
    let typical = TypicalPods::new(world.cluster.models(), [(&half, 3), (&whole, 1)]);
    // Half of a GPU is taken on the idle n2. The other half is useless for whole GPUs, which are a
    // quarter of all: 500 / 4.
    let cost = cost(&world, &typical, &[at(2, &[(0, 500, 0)])]);
    assert_eq!(cost.of(CostTerm::GpuMilliStranded), 125);
    assert_eq!(cost.of(CostTerm::PackingPrice), 125_000);
    // Equal to the measure itself on every node.
    for place in [at(1, &[(0, 300, 0)]), at(1, &[(1, 300, 0)]), at(3, &[(1, 300, 0)])] {
        let mut after = world.cluster.clone();
        after.place(&Resources::of_pod(3000, 0), &place).unwrap();
        let amounts =
            |cluster: &Cluster| typical.amounts(&NodeResidual::of_node(cluster, place.node));
        let expected = amounts(&after).minus(&amounts(&world.cluster)).rounded_fragment();
        let ours = self::cost(&world, &typical, &[place]).of(CostTerm::GpuMilliStranded);
        assert_eq!(ours, expected);
    }
}

#[test]
fn a_decision_that_moves_and_evicts_costs_what_it_does_to_others() {
    let mut world = world();
    run(&mut world, "near", "a", &[at(0, &[(0, 500, 0)]), at(1, &[(0, 500, 0)])]);
    run(&mut world, "gone", "b", &[at(1, &[(1, 500, 0)])]);
    let policy = PlacementPolicy::default();
    let typical = TypicalPods::default();
    let tenant = |used, waiting| Tenant { weight: 1, used, waiting };
    let tenants = [("a", tenant(1000, 0)), ("b", tenant(500, 0)), ("default", tenant(0, 1000))];
    let tenants = tenants.into_iter().map(|(name, tenant)| (Arc::from(name), tenant)).collect();
    let shares = FairShares::new(8000, tenants);
    let cost_model = PolicyCostModel::new(&world, &policy, &typical, &shares).unwrap();
    let near = world.workloads.named("near").unwrap();
    let gone = world.workloads.named("gone").unwrap();
    // The second member of near goes from n1 to n2, in the other rack.
    let moves =
        [Move { member: MemberId { workload: near, member: 1 }, to: at(2, &[(0, 500, 0)]) }];
    let evictions = [MemberId { workload: gone, member: 0 }];
    let placed = placed(&[at(1, &[(0, 500, 0)]), at(1, &[(1, 500, 0)])]);
    let disruptions = DisruptionSet { moves: &moves, evictions: &evictions };
    let cost = cost_model.cost(&world, &gang(1000, 2), &placed, disruptions);
    assert_eq!(cost.of(CostTerm::PodsDisturbed), 2);
    assert_eq!(
        cost.of(CostTerm::Hops),
        8 - 4,
        "near's ring grows from 4 to 8; the gang is on one node"
    );
    // n1 has 2,000 milli-CPU and both GPUs in use before and after; n2 wakes a GPU and a package.
    assert_eq!(cost.of(CostTerm::Watts), 60 + 80);
    assert_eq!(cost.of(CostTerm::CentsPerHour), 25);
    // The default tenant holds its 1,000; b lacks the 500 that it lost.
    assert_eq!(cost.of(CostTerm::FairnessDeficit), 500);
    assert_eq!(cost_model.check(&world, &gang(1000, 2), &placed, disruptions, &cost), Ok(()));
}

#[test]
fn limits_apply_cluster_wide_and_only_to_increases() {
    let mut world = world();
    run(&mut world, "runs", "a", &[at(0, &[(0, 1000, 0)])]);
    let typical = TypicalPods::default();
    // The cluster draws 4 * 60 + 140 W and costs 50 cents per hour.
    let check = |constraints: serde_json::Value, unit: CostTerm, more: i64| {
        let policy = serde_json::json!({
            "name": "limits", "order": [{ "unit": "hops" }], "constraints": constraints,
        });
        let policy: PlacementPolicy = serde_json::from_value(policy).unwrap();
        let shares = FairShares::default();
        let cost_model = PolicyCostModel::new(&world, &policy, &typical, &shares).unwrap();
        let mut cost = CostVector::default();
        cost.set(unit, more);
        cost_model.check_limits(&cost).map_err(|reason| reason.to_string())
    };
    let watts = |most, more| check(serde_json::json!({ "maxWatts": most }), CostTerm::Watts, more);
    assert_eq!(watts(400, 20), Ok(()));
    assert_eq!(
        watts(400, 21),
        Err("the policy allows at most 400 watts; the best plan would reach 401".to_owned())
    );
    assert_eq!(watts(100, 0), Ok(()), "the limit is broken already, but not by this");
    let cents = serde_json::json!({ "maxCentsPerHour": 60 });
    assert!(check(cents.clone(), CostTerm::CentsPerHour, 10).is_ok());
    assert!(check(cents, CostTerm::CentsPerHour, 11).is_err());
    let pods = serde_json::json!({ "maxPodsDisturbed": 2 });
    assert!(check(pods.clone(), CostTerm::PodsDisturbed, 2).is_ok());
    assert!(check(pods, CostTerm::PodsDisturbed, 3).is_err());
    assert!(
        check(serde_json::json!({ "maxPodsDisturbed": 0 }), CostTerm::PodsDisturbed, 1).is_err()
    );
}

#[test]
fn spare_nodes_are_left_free_in_each_domain() {
    let mut world = world();
    run(&mut world, "runs", "a", &[at(0, &[(0, 500, 0)])]);
    let typical = TypicalPods::default();
    let policy = serde_json::json!({
        "name": "spares", "order": [{ "unit": "hops" }],
        "constraints": { "spares": [{ "level": "rack", "nodes": 1 }] },
    });
    let policy: PlacementPolicy = serde_json::from_value(policy).unwrap();
    let shares = FairShares::default();
    let cost_model = PolicyCostModel::new(&world, &policy, &typical, &shares).unwrap();
    let check = |nodes: &[u32]| {
        let places: Vec<_> = nodes.iter().map(|node| at(*node, &[(1, 500, 0)])).collect();
        let count = u32::try_from(nodes.len()).unwrap();
        let placed = placed(&places);
        let none = DisruptionSet::default();
        cost_model.check(&world, &gang(1000, count), &placed, none, &CostVector::default())
    };
    assert_eq!(check(&[0]), Ok(()), "n0 is used already");
    assert_eq!(check(&[2]), Ok(()), "n3 stays free");
    let refused = Reason::Spares { domain: "rack r0".to_owned(), least: 1, found: 0 };
    assert_eq!(check(&[1]), Err(refused));
    assert!(check(&[2, 3]).is_err());
}

#[test]
fn closed_nodes_are_not_spare() {
    let mut world = world();
    world.cluster.set_open(NodeId(3), false).unwrap();
    let policy = serde_json::json!({
        "name": "spares", "order": [{ "unit": "hops" }], "constraints": { "spares": [{ "nodes": 3 }] },
    });
    let policy: PlacementPolicy = serde_json::from_value(policy).unwrap();
    let (typical, shares) = (TypicalPods::default(), FairShares::default());
    let cost_model = PolicyCostModel::new(&world, &policy, &typical, &shares).unwrap();
    let (placed, cost) = (placed(&[at(0, &[(0, 500, 0)])]), CostVector::default());
    let refused = Reason::Spares { domain: "the cluster".to_owned(), least: 3, found: 2 };
    let answer = cost_model.check(&world, &gang(1000, 1), &placed, DisruptionSet::default(), &cost);
    assert_eq!(answer, Err(refused));
}
