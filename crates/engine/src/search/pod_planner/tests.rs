use std::cmp::Ordering;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cluster::Cluster;
use crate::gang::Gang;
use crate::gpu::{GpuModel, MigProfile, ModelId, ModelSet, Slices, WHOLE};
use crate::node::{FeatureMask, Links, NodeClass, NodeSpec};
use crate::objective::cost::{Figures, MeasuredFigures, Meter};
use crate::objective::fairness::FairShares;
use crate::objective::policy::PlacementPolicy;
use crate::placement::{GpuPart, GpuParts};
use crate::plan::DisruptionSet;
use crate::resources::Resources;
use crate::shape::GpuDemand;
use crate::topology::Level;
use crate::workload::Workloads;

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

/// Racks of two nodes: even ones with four GPUs each, odd ones with one cheap GPU each.
fn world(nodes: u32) -> World {
    let model = |name: &str, idle_watts, full_watts| GpuModel {
        name: name.to_owned(),
        memory_mib: 16_000,
        idle_watts,
        full_watts,
        mig: vec![
            MigProfile {
                name: "1g".to_owned(),
                milli: 250,
                memory_mib: 4000,
                size: 2,
                starts: vec![0, 2, 4, 6],
                has_media: false,
            },
            MigProfile {
                name: "2g".to_owned(),
                milli: 500,
                memory_mib: 8000,
                size: 4,
                starts: vec![0, 4],
                has_media: false,
            },
        ],
    };
    let node = |number: u32| {
        let is_large = (number / 2).is_multiple_of(2);
        let class = NodeClass {
            capacity: Resources { cpu_milli: 16_000, memory_mib: 64_000, pods: 8 },
            gpus: if is_large { 4 } else { 1 },
            model: ModelId(u8::from(!is_large)),
            links: Links(if number == 1 { vec![vec![0, 0, 1, 1]] } else { Vec::new() }),
            cents_per_hour: if is_large { 400 } else { 80 },
            idle_watts: 40,
            full_watts: 200,
            package_cores: 4,
            hazard_ppm: 100 * number,
            ..NodeClass::default()
        };
        let labels = [("rack".to_owned(), format!("r{}", number / 2))].into();
        NodeSpec { name: format!("n{number}").into(), class, labels }
    };
    let nodes: Vec<_> = (0..nodes).map(node).collect();
    let levels = [Level { name: "rack".into(), label: "rack".to_owned(), is_unique: false }];
    let topology = Topology::from_labels(&levels, nodes.iter().map(|node| &node.labels)).unwrap();
    let models = vec![model("big", 50, 400), model("small", 10, 70)];
    let cluster = Cluster::new(models, nodes).unwrap();
    World { cluster, topology, workloads: Workloads::default() }
}

fn at(node: u32, parts: &[(u16, u16)]) -> Placement {
    let part = |&(gpu, milli)| GpuPart { gpu, milli, slices: Slices::NONE, memory_mib: 0 };
    Placement { node: NodeId(node), gpus: parts.iter().map(part).collect() }
}

fn policy(order: &serde_json::Value, constraints: &serde_json::Value) -> PlacementPolicy {
    let value = json!({ "name": "test", "order": order, "constraints": constraints });
    serde_json::from_value(value).unwrap()
}

fn shape(cpu_milli: i64, gpus: GpuDemand) -> Arc<Shape> {
    Arc::new(Shape::new(Resources::of_pod(cpu_milli, 0), gpus))
}

fn profile() -> Profile {
    Profile { seconds_at_risk: 100_000, ..Profile::new("pod") }
}

/// A price that prefers tight GPUs: squares of the free tenths.
fn price(_: &Cluster, before: &NodeState, after: &NodeState) -> i64 {
    let tenths = |gpu: &crate::gpu::GpuFree| i64::from(gpu.milli / 100);
    let squares = |state: &NodeState| state.gpus.iter().map(|gpu| tenths(gpu).pow(2)).sum::<i64>();
    let gap = i64::from(after.gpus.iter().map(|gpu| gpu.slices.0.count_zeros()).sum::<u32>());
    squares(before) - squares(after) + after.free.cpu_milli / 4000 - gap
}

fn decide(world: &World, policy: &PlacementPolicy, shape: &Arc<Shape>) -> PlanResult {
    let typical = crate::fragmentation::TypicalPods::new(world.cluster.models(), [(&**shape, 1)]);
    let figures = MeasuredFigures { typical: &typical, price };
    let (shares, mut meter) = (FairShares::default(), Meter::default());
    meter.read(world);
    let cost_model = PolicyCostModel::new(world, policy, &figures, &shares, &meter).unwrap();
    let mut cost_cache = CostCache::default();
    let answer = plan_pod(world, &cost_model, &mut FirstFit, &mut cost_cache, &profile(), shape);
    // The cache has no influence.
    assert_eq!(
        plan_pod(world, &cost_model, &mut FirstFit, &mut cost_cache, &profile(), shape),
        answer
    );
    answer
}

#[test]
fn costs_that_are_kept_follow_the_nodes_states() {
    let mut world = world(8);
    let (shares, mut meter, mut cost_cache) =
        (FairShares::default(), Meter::default(), CostCache::default());
    let price_first = json!([
        { "unit": "packingPrice", "tolerance": { "absolute": 1 } }, { "unit": "watts" },
    ]);
    let policy = policy(&price_first, &json!({}));
    let shape = shape(1000, GpuDemand::of(1, 300));
    let typical = crate::fragmentation::TypicalPods::new(world.cluster.models(), [(&*shape, 1)]);
    let figures = MeasuredFigures { typical: &typical, price };
    let mut placed = Vec::new();
    for number in 0.. {
        meter.read(&world);
        let cost_model = PolicyCostModel::new(&world, &policy, &figures, &shares, &meter).unwrap();
        let answer =
            plan_pod(&world, &cost_model, &mut FirstFit, &mut cost_cache, &profile(), &shape);
        let mut fresh = CostCache::default();
        assert_eq!(
            plan_pod(&world, &cost_model, &mut FirstFit, &mut fresh, &profile(), &shape),
            answer
        );
        let Ok(plan) = answer else { break };
        let placement = plan.placements[0].placement.clone();
        world.cluster.place(&shape.resources, &placement).unwrap();
        placed.push(placement);
        if number % 3 == 0 && number < 20 {
            world.cluster.release(&shape.resources, &placed.remove(0)).unwrap();
        }
    }
    // Three shares on each of the four small GPUs; eight pods on each of the large nodes.
    assert_eq!(placed.len(), 4 * 8 + 4 * 3);
}

#[test]
fn under_the_default_the_packing_policy_chooses_and_prices() {
    let world = world(4);
    let plan = decide(&world, &PlacementPolicy::default(), &shape(1000, GpuDemand::of(1, 500)));
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
fn policy_takes_the_best_and_names_the_runner_up() {
    let mut world = world(4);
    let order = json!([{ "unit": "watts" }, { "unit": "packingPrice" }]);
    let half = shape(1000, GpuDemand::of(1, 500));
    // A small GPU wakes for 60 W, a big one for 350 W; the package costs 80 W on any node.
    let plan = decide(&world, &policy(&order, &json!({})), &half).unwrap();
    assert_eq!(plan.placements[0].placement, at(2, &[(0, 500)]));
    assert_eq!(plan.cost.of(CostTerm::Watts), 140);
    let other = plan.runner_up.unwrap();
    // n3 is in another state because its hazard differs; it costs the same.
    assert_eq!((other.place.as_str(), other.worse_in), ("node n3 in r1", None));
    // Awake GPUs and packages cost nothing more: the tighter GPU decides.
    world.cluster.place(&Resources::of_pod(2000, 0), &at(0, &[(1, 300), (2, 500)])).unwrap();
    let plan = decide(&world, &policy(&order, &json!({})), &half).unwrap();
    assert_eq!(plan.placements[0].placement, at(0, &[(2, 500)]));
    let other = plan.runner_up.unwrap();
    assert_eq!((other.place.as_str(), other.worse_in), ("node n2 in r1", Some(CostTerm::Watts)));
    assert_eq!(plan.cost.of(CostTerm::Watts), 0);
}

#[test]
fn a_limit_sends_the_pod_elsewhere_or_refuses_it() {
    let world = world(4);
    let order = json!([{ "unit": "expectedLostGpuSeconds" }]);
    let whole = shape(1000, GpuDemand::Whole { count: 1 });
    let decide = |constraints: &serde_json::Value| {
        super::tests::decide(&world, &policy(&order, constraints), &whole)
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
    let remedy = Remedy::Constraint { unit: "cents per hour", to: 100 };
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
    let plan = decide(&world, &policy(&order, &spares), &pod(3)).unwrap();
    assert_eq!(plan.placements[0].placement.node, NodeId(0));
    assert_eq!(plan.runner_up, None);
    let refusal = decide(&world, &policy(&order, &spares), &pod(4)).unwrap_err();
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
    let world = World { cluster, topology, workloads: Workloads::default() };
    let spares = json!({ "spares": [{ "level": "rack", "nodes": 1 }] });
    let policy = policy(&json!([{ "unit": "watts" }]), &spares);
    let plan = decide(&world, &policy, &shape(0, GpuDemand::of(1, 100))).unwrap();
    assert_eq!(plan.placements[0].placement, at(1, &[(0, 100)]));
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
    let answer = decide(&world, &PlacementPolicy::default(), &Arc::new(only_big.clone()));
    let refusal = answer.unwrap_err();
    assert_eq!(
        refusal.reason.to_string(),
        "the pod fits none of 8 nodes: another GPU model, or no such MIG profile (4), \
         closed for new pods (1), insufficient CPU (1), enough GPU capacity free, but fragmented (1), insufficient GPU capacity (1)"
    );
    assert_eq!(refusal.remedy, Some(Remedy::MoreNodes { nodes: 1, like: "n0".into() }));
    // The pod fits no node even when empty, so more such nodes are no remedy.
    let large = shape(17_000, GpuDemand::None);
    let refusal = decide(&world, &PlacementPolicy::default(), &large).unwrap_err();
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

/// All sets of GPUs of a node, valid or not.
fn all_parts(world: &World, node: NodeId, demand: &GpuDemand) -> Vec<GpuParts> {
    let gpus = u16::try_from(world.cluster.gpus(node).len()).unwrap();
    let model = &world.cluster.models()[usize::from(world.cluster.class(node).model.0)];
    let sets = |count: usize, milli: u16, memory_mib: u32| -> Vec<GpuParts> {
        (0_u32..1 << gpus)
            .filter(|set| set.count_ones() as usize == count)
            .map(|set| {
                let chosen = (0..gpus).filter(|gpu| set >> gpu & 1 == 1);
                let part = |gpu| GpuPart { gpu, milli, slices: Slices::NONE, memory_mib };
                chosen.map(part).collect()
            })
            .collect()
    };
    match demand {
        GpuDemand::None => vec![GpuParts::new()],
        GpuDemand::Whole { count } => sets((*count).into(), WHOLE, model.memory_mib),
        GpuDemand::Share { count, milli, memory_mib } => sets((*count).into(), *milli, *memory_mib),
        GpuDemand::Mig { profile, .. } => {
            let profile = model.profile(profile).unwrap();
            let part = |gpu, slices| {
                let (milli, memory_mib) = (profile.milli, profile.memory_mib);
                [GpuPart { gpu, milli, slices, memory_mib }].as_slice().into()
            };
            (0..gpus).flat_map(|gpu| profile.places().map(move |place| part(gpu, place))).collect()
        }
    }
}

/// The best placement over all nodes and candidates, by the public interface of the cost model.
fn brute(
    world: &World,
    cost_model: &PolicyCostModel<'_>,
    shape: &Arc<Shape>,
) -> Option<(NodeId, CostVector)> {
    let mut gang = Gang::new("pod", (**shape).clone(), 1);
    gang.profile = profile();
    let mut best: Option<(NodeId, CostVector)> = None;
    for node in world.cluster.nodes() {
        if !world.cluster.is_open(node) {
            continue;
        }
        for gpus in all_parts(world, node, &shape.gpus) {
            let placement = Placement { node, gpus };
            if world.cluster.clone().place(&shape.resources, &placement).is_err() {
                continue;
            }
            // `Cluster::place` also books running pods, so it accepts more than a new pod may get.
            let gpus = world.cluster.gpus(node);
            let is_available = |part: &GpuPart| {
                let gpu = &gpus[usize::from(part.gpu)];
                match shape.gpus {
                    GpuDemand::Whole { .. } => gpu.is_idle(),
                    GpuDemand::Share { milli: 0, memory_mib: 0, .. } => gpu.milli > 0,
                    _ => true,
                }
            };
            if !placement.gpus.iter().all(is_available) {
                continue;
            }
            let placed = [Placed { group: 0, rank: 0, placement }];
            let cost = cost_model.cost(world, &gang, &placed, DisruptionSet::default());
            let none = DisruptionSet::default();
            if cost_model.check(world, &gang, &placed, none, &cost).is_err() {
                continue;
            }
            if best.as_ref().is_none_or(|(_, known)| cost_model.compare(&cost, known).is_lt()) {
                best = Some((node, cost));
            }
        }
    }
    best
}

/// Compares the decision with the best over all nodes and candidates.
fn check_against_all(
    world: &World,
    policy: &PlacementPolicy,
    shape: &Arc<Shape>,
) -> Result<(), TestCaseError> {
    let answer = decide(world, policy, shape);
    let typical = crate::fragmentation::TypicalPods::new(world.cluster.models(), [(&**shape, 1)]);
    let figures: &dyn Figures = &MeasuredFigures { typical: &typical, price };
    let (shares, mut meter) = (FairShares::default(), Meter::default());
    meter.read(world);
    let cost_model = PolicyCostModel::new(world, policy, figures, &shares, &meter).unwrap();
    let expected = brute(world, &cost_model, shape);
    match (&answer, expected) {
        (Ok(plan), Some((node, cost))) => {
            let placement = &plan.placements[0].placement;
            prop_assert_eq!(cost_model.compare(&plan.cost, &cost), Ordering::Equal);
            prop_assert_eq!(placement.node, node);
            world.cluster.clone().place(&shape.resources, placement).unwrap();
            if let Some(other) = &plan.runner_up {
                prop_assert_ne!(cost_model.compare(&plan.cost, &other.cost), Ordering::Greater);
            }
        }
        (Err(refusal), None) => {
            let fits = world
                .cluster
                .nodes()
                .any(|node| crate::pick::default_placement(&world.cluster, node, shape).is_some());
            let is_no_node = matches!(refusal.reason, Reason::NoNode(_));
            prop_assert_eq!(is_no_node, !fits);
            if let Reason::NoNode(infeasible) = &refusal.reason {
                prop_assert_eq!(infeasible.nodes(), 8);
            }
        }
        (answer, expected) => prop_assert!(false, "{:?} but {:?}", answer, expected),
    }
    Ok(())
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
    let plan = decide(&world, &policy, &shape).unwrap();
    assert_eq!(plan.placements[0].placement, at(1, &[(0, 0), (1, 0), (2, 0)]));
    check_against_all(&world, &policy, &shape).unwrap();
}

fn any_demand() -> impl Strategy<Value = GpuDemand> {
    prop_oneof![
        Just(GpuDemand::None),
        (1_u16..=3).prop_map(|count| GpuDemand::Whole { count }),
        (1_u16..=3, 0_u16..=10, 0_u32..3).prop_map(|(count, tenths, memory)| GpuDemand::Share {
            count,
            milli: tenths * 100,
            memory_mib: memory * 4000,
        }),
        prop_oneof![Just("1g"), Just("2g")]
            .prop_map(|profile| GpuDemand::Mig { count: 1, profile: profile.into() }),
    ]
}

proptest! {
    #[test]
    fn choice_is_the_best_of_all_nodes_and_candidates(
        taken in prop::collection::vec((0_u32..8, 0_u16..4, 0_u16..=10, 0_i64..5, any::<bool>()), 0..30),
        closed in 0_u32..12,
        demand in any_demand(),
        cpu in 0_i64..9,
        order in prop_oneof![
            Just(json!([{ "unit": "watts" }, { "unit": "packingPrice" }])),
            Just(json!([{ "unit": "gpuMilliStranded", "tolerance": { "percent": 20 } },
                { "unit": "centsPerHour" }])),
            Just(json!([{ "sum": [{ "unit": "packingPrice", "weight": 3 },
                { "unit": "expectedLostGpuSeconds", "weight": "0.5" }] }])),
            Just(json!([{ "unit": "packingPrice", "tolerance": { "absolute": 4 } },
                { "unit": "watts" }])),
        ],
        constraints in prop_oneof![
            Just(json!({})),
            Just(json!({ "spares": [{ "level": "rack", "nodes": 1 }] })),
            (1200_i64..3000).prop_map(|watts| json!({ "maxWatts": watts })),
            (50_i64..900).prop_map(|cents| json!({ "maxCentsPerHour": cents })),
        ],
    ) {
        let mut world = world(8);
        for (node, gpu, tenths, cores, is_cut) in taken {
            let mut place = at(node, &[(gpu, tenths * 100)]);
            if is_cut {
                place.gpus[0].slices = Slices::range(2 * u8::try_from(tenths % 4).unwrap(), 2);
            }
            drop(world.cluster.place(&Resources::of_pod(cores * 1000, 0), &place));
        }
        if closed < 8 {
            world.cluster.set_open(NodeId(closed), false).unwrap();
        }
        let policy = policy(&order, &constraints);
        let shape = shape(cpu * 1000, demand);
        check_against_all(&world, &policy, &shape)?;
    }
}
