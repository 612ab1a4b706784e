use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::cluster::Cluster;
use crate::gpu::{GpuModel, Slices};
use crate::node::{NodeClass, NodeId, NodeSpec};
use crate::placement::GpuPart;
use crate::plan::{FailedBound, Placed, Scarce};
use crate::pod_planner::{InfeasibleCounts, Obstacle};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};
use crate::topology::{Level, LevelId};
use crate::workload::{Coupling, Member, Profile, Workload, WorkloadId, Workloads};

/// Ten nodes with four GPUs in two racks, and one outside any rack; a workload `old` on `n1` and
/// `n2`.
fn world() -> World {
    let model = GpuModel {
        name: "T4".to_owned(),
        memory_mib: 0,
        idle_watts: 0,
        full_watts: 0,
        mig: Vec::new(),
    };
    let node = |number: u32| {
        let capacity = Resources { cpu_milli: 8000, memory_mib: 0, pods: 10 };
        let class = NodeClass { capacity, gpus: 4, ..NodeClass::default() };
        let rack = ("rack".to_owned(), format!("r{}", number / 5));
        let labels = Some(rack).filter(|_| number < 10).into_iter().collect();
        NodeSpec { name: format!("n{number:02}").into(), class, labels }
    };
    let nodes: Vec<_> = (0..11).map(node).collect();
    let levels = [Level { name: "rack".into(), label: "rack".to_owned(), is_unique: false }];
    let topology = Topology::from_labels(&levels, nodes.iter().map(|node| &node.labels)).unwrap();
    let cluster = Cluster::new(vec![model], nodes).unwrap();
    let shape = Arc::new(Shape::new(Resources::of_pod(0, 0), GpuDemand::of(1, 500)));
    let member = |node| {
        Some(Member { shape: Arc::clone(&shape), placement: at(node, &[(0, 500)]), limit: None })
    };
    let mut workloads = Workloads::default();
    let members = vec![member(1), member(2)];
    let (profile, coupling) = (Profile::new("old"), Coupling::default());
    workloads.add(Workload { profile, min_members: 2, coupling, members }).unwrap();
    World { cluster, topology, workloads }
}

fn at(node: u32, parts: &[(u16, u16)]) -> Placement {
    let part = |&(gpu, milli)| GpuPart { gpu, milli, slices: Slices::NONE, memory_mib: 0 };
    Placement { node: NodeId(node), gpus: parts.iter().map(part).collect() }
}

fn cost(costs: &[(CostTerm, i64)]) -> CostVector {
    let mut vector = CostVector::default();
    for (unit, value) in costs {
        vector.set(*unit, *value);
    }
    vector
}

fn policy() -> PlacementPolicy {
    let order = json!([
        { "unit": "hops", "tolerance": { "percent": 10 } },
        { "sum": [
            { "unit": "gpuMilliStranded", "weight": "1.5" }, { "unit": "watts", "weight": 2 },
        ] },
    ]);
    serde_json::from_value(json!({ "name": "train", "order": order })).unwrap()
}

fn gang(count: u32) -> Gang {
    Gang::new("ml/job", Shape::new(Resources::of_pod(0, 0), GpuDemand::of(1, 460)), count)
}

/// The explanation survives a JSON round trip.
fn explain(gang: &Gang, answer: &PlanResult) -> Explanation {
    let explained = super::answer(&world(), &policy(), gang, answer);
    let text = serde_json::to_string(&explained).unwrap();
    assert_eq!(serde_json::from_str::<Explanation>(&text).unwrap(), explained);
    explained
}

#[test]
fn pod_explanation_has_node_cost_and_runner_up() {
    let runner_up = RunnerUp {
        place: "node n07 in r1".to_owned(),
        cost: cost(&[(CostTerm::GpuMilliStranded, 70), (CostTerm::Watts, 400)]),
        worse_in: Some(CostTerm::Watts),
    };
    let mut placement = at(3, &[(2, 460)]);
    placement.gpus[0].memory_mib = 8000;
    let plan = Plan {
        placements: vec![Placed { group: 0, rank: 0, placement }],
        cost: cost(&[
            (CostTerm::GpuMilliStranded, -540),
            (CostTerm::Watts, 290),
            (CostTerm::CentsPerHour, 1),
        ]),
        runner_up: Some(runner_up),
        steps: 12,
        ..Plan::default()
    };
    let explained = explain(&gang(1), &Ok(plan));
    assert_eq!(
        explained.lines(),
        [
            "ml/job goes to node n03 in r0, GPU 2 (460 of 1000, 8000 MiB)",
            "policy train: hops (equal within 10 %), then 1.5 gpuMilliStranded + 2 watts",
            "costs 0 hops, -0.540 GPUs stranded, 290 W, 1 cent per hour",
            "next best: node n07 in r1, which loses in watts: 400 W instead of 290 W",
        ]
    );
    assert_eq!(
        serde_json::to_value(&explained).unwrap(),
        json!({
            "outcome": "placed",
            "request": "ml/job",
            "policy": "train",
            "order": "hops (equal within 10 %), then 1.5 gpuMilliStranded + 2 watts",
            "placements": [{
                "group": "members", "rank": 0,
                "place": {
                    "node": "n03", "domain": "r0",
                    "gpus": [{ "gpu": 2, "milli": 460, "memoryMib": 8000 }],
                },
            }],
            "cost": [
                { "unit": "hops", "value": 0 }, { "unit": "gpuMilliStranded", "value": -540 },
                { "unit": "watts", "value": 290 }, { "unit": "centsPerHour", "value": 1 },
            ],
            "runnerUp": {
                "place": "node n07 in r1", "worseIn": "watts", "by": 110,
                "cost": [
                    { "unit": "hops", "value": 0 }, { "unit": "gpuMilliStranded", "value": 70 },
                    { "unit": "watts", "value": 400 },
                ],
            },
            "steps": 12,
        })
    );
}

#[test]
fn gang_explanation_lists_evictions_then_ranks_by_node() {
    let mut placements: Vec<_> = (0..2)
        .map(|rank| Placed {
            group: 0,
            rank,
            placement: at(10, &[(u16::try_from(rank).unwrap(), 1000)]),
        })
        .collect();
    placements.extend((2..12).map(|rank| {
        let mut placement = at(rank - 2, &[(3, 285)]);
        placement.gpus[0].slices = Slices::range(4, 2);
        Placed { group: 0, rank, placement }
    }));
    let id = |member| MemberId { workload: WorkloadId(0), member };
    let plan = Plan {
        evictions: vec![id(1)],
        moves: vec![Move { member: id(0), to: at(4, &[(0, 500)]) }],
        placements,
        cost: cost(&[
            (CostTerm::PodsDisturbed, 2),
            (CostTerm::Hops, 40),
            (CostTerm::FairnessDeficit, 9001),
        ]),
        ..Plan::default()
    };
    let lines = explain(&gang(12), &Ok(plan)).lines();
    assert_eq!(
        lines[..5],
        [
            "ml/job: 12 pods go to 11 nodes",
            "evicts old rank 1 from node n02",
            "moves old rank 0 from node n01 to node n04 in r0, GPU 0 (500 of 1000)",
            "members ranks 0 to 1: node n10, 2 GPUs",
            "members rank 2: node n00 in r0, GPU 3 (MIG, 2 slices from slice 4)",
        ]
    );
    assert_eq!(
        lines[11..],
        [
            "and 3 pods more",
            "policy train: hops (equal within 10 %), then 1.5 gpuMilliStranded + 2 watts",
            "costs 40 hops, 0.000 GPUs stranded, 0 W, 2 pods disturbed, 9.001 GPUs short of fair \
             shares",
            "there was no other plan",
        ]
    );
}

#[test]
fn refusal_explanation_has_proof_and_remedy() {
    let counts = [(Obstacle::Closed, 1), (Obstacle::Pieces, 10)].into();
    let infeasible = InfeasibleCounts { counts, template: Some(NodeId(0)) };
    let refusal = Refusal {
        reason: Reason::NoNode(infeasible),
        remedy: Some(Remedy::MoreNodes { nodes: 1, like: "n00".into() }),
        steps: 0,
    };
    let explained = explain(&gang(1), &Err(refusal));
    assert_eq!(
        explained.lines(),
        [
            "ml/job is not placed: the pod fits none of 11 nodes: closed for new pods \
             (1), enough GPU capacity free, but fragmented (10)",
            "it would help to add 1 node, like n00",
        ]
    );
    let value = serde_json::to_value(&explained).unwrap();
    assert_eq!(value["reason"], "NoNode");
    assert_eq!(value["nodes"][1], json!({ "obstacle": "pieces", "nodes": 10 }));
    assert_eq!(value["remedy"], json!({ "kind": "moreNodes", "nodes": 1, "like": "n00" }));
    let bound = FailedBound {
        group: "members".into(),
        wanted: 30,
        possible: 18,
        level: LevelId(1),
        within: Some("r1".to_owned()),
        scarce: Scarce::Gpus,
    };
    let remedy = Some(Remedy::FewerMembers { group: "members".into(), fit: 18 });
    let refusal = Refusal { reason: bound.into(), remedy, steps: 3 };
    assert_eq!(
        explain(&gang(30), &Err(refusal)).lines(),
        [
            "ml/job is not placed: group \"members\": 30 wanted at least, at most 18 are possible \
             in r1 (all in one rack): free GPUs are too few or in pieces",
            "it would help to ask for at most 18 members of the group members",
        ]
    );
}

#[test]
fn every_remedy_is_a_sentence() {
    let remedies = [
        (
            Remedy::LooserLevel { level: "rack".into() },
            "ask for all members in one rack, and no tighter level",
        ),
        (
            Remedy::Moves {
                pods: 2,
                cost: amounts(
                    &policy(),
                    &cost(&[(CostTerm::PodsDisturbed, 2), (CostTerm::Hops, 1)]),
                ),
            },
            "move 2 running pods, at 1 hop, 0.000 GPUs stranded, 0 W, 2 pods disturbed",
        ),
        (
            Remedy::Evictions { pods: 1, workloads: vec!["old".into()] },
            "evict 1 running pod of old",
        ),
        (
            Remedy::Constraint { unit: "watts".into(), to: 9000 },
            "change the policy's limit of watts to 9000",
        ),
    ];
    for (remedy, words) in remedies {
        let reason = Reason::Steps { limit: 100 };
        let refusal = Refusal { reason, remedy: Some(remedy), steps: 100 };
        let lines = explain(&gang(1), &Err(refusal)).lines();
        assert_eq!(lines[1], format!("it would help to {words}"));
    }
}

#[test]
fn amounts_have_their_units() {
    assert_eq!(amount(CostTerm::PackingPrice, -1_000_460), "a packing price of -1.000460 GPUs");
    assert_eq!(amount(CostTerm::GpuMilliStranded, 5), "0.005 GPUs stranded");
    assert_eq!(amount(CostTerm::Hops, 1), "1 hop");
    assert_eq!(
        amount(CostTerm::ExpectedLostGpuSeconds, 2),
        "2 GPU-seconds expected to be lost per hour"
    );
}

#[test]
fn long_victim_lists_name_the_first_and_count_the_rest() {
    let victim = |name: String, gang: Option<&str>, node: u32| VictimRef {
        name,
        gang: gang.map(str::to_owned),
        priority: -1,
        node: format!("n{node}"),
        to: None,
    };
    let gang = (0..3).map(|rank| victim(format!("pod a/g{rank}"), Some("PodGroup a/g"), rank));
    let alone = (0..5).map(|number| victim(format!("pod a/p{number}"), None, 9));
    let explained = PreemptionHint { evictions: gang.chain(alone).collect(), ..Default::default() };
    assert_eq!(
        explained.line(),
        "it would help to evict 3 pods of PodGroup a/g (priority -1) from 3 nodes, \
         pod a/p0 (priority -1) from node n9, pod a/p1 (priority -1) from node n9, \
         pod a/p2 (priority -1) from node n9, 2 pods more"
    );
    let moved = VictimRef { to: Some("n2".to_owned()), ..victim("pod a/p".to_owned(), None, 1) };
    let hindrances = vec!["one".to_owned(), "two".to_owned()];
    let explained = PreemptionHint { moves: vec![moved], hindrances, ..Default::default() };
    assert_eq!(
        explained.line(),
        "it would help to move pod a/p (priority -1) from node n1 to node n2; that is not done: \
         one; two"
    );
}
