//! Worlds for gangs, and invariants of every plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::World;
use crate::cluster::Cluster;
use crate::gang::{Gang, Group, Segment};
use crate::gpu::{GpuModel, ModelId, Slices, WHOLE};
use crate::node::{NodeClass, NodeId, NodeSpec};
use crate::placement::{GpuPart, Placement};
use crate::plan::{Placed, Plan, PlanResult};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};
use crate::solve::{MinHops, NodeSet, Pinned, Request, Solver};
use crate::topology::{Level, LevelId, Topology};
use crate::workload::{TopologyConstraint, Workloads};

pub(super) const BLOCK: LevelId = LevelId(1);
pub(super) const RACK: LevelId = LevelId(2);

/// Nodes `(name, path, free GPUs)`: the path is `block/rack`, `block` or empty. Each has eight GPUs
/// and 64 cores; GPUs that are not free are allocated whole.
pub(super) fn world(nodes: &[(&str, &str, u16)]) -> World {
    let model = GpuModel {
        name: "H100".to_owned(),
        memory_mib: 80_000,
        idle_watts: 0,
        full_watts: 0,
        mig: Vec::new(),
    };
    let capacity = Resources { cpu_milli: 64_000, memory_mib: 512_000, pods: 110 };
    let class = NodeClass { capacity, gpus: 8, model: ModelId(0), ..NodeClass::default() };
    let specs = nodes.iter().map(|(name, path, _)| spec(name, path, class.clone())).collect();
    let mut world = build(vec![model], specs);
    for (name, _, free) in nodes {
        let node = world.cluster.node_named(name).unwrap();
        for gpu in *free..8 {
            let part = GpuPart { gpu, milli: WHOLE, slices: Slices::NONE, memory_mib: 80_000 };
            let placement = Placement { node, gpus: [part].as_slice().into() };
            world.cluster.place(&Resources::of_pod(1000, 0), &placement).unwrap();
        }
    }
    world
}

pub(super) fn spec(name: &str, path: &str, class: NodeClass) -> NodeSpec {
    let values = path.split('/').filter(|value| !value.is_empty());
    let labels = ["block", "rack"].into_iter().zip(values);
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    NodeSpec { name: name.into(), class, labels }
}

pub(super) fn build(models: Vec<GpuModel>, specs: Vec<NodeSpec>) -> World {
    let levels = ["block", "rack"].map(|name| Level {
        name: name.into(),
        label: name.into(),
        is_unique: false,
    });
    let labels: BTreeMap<Arc<str>, BTreeMap<String, String>> =
        specs.iter().map(|spec| (Arc::clone(&spec.name), spec.labels.clone())).collect();
    let cluster = Cluster::new(models, specs).unwrap();
    let by_id = cluster.nodes().map(|node| &labels[cluster.name(node)]);
    let topology = Topology::from_labels(&levels, by_id).unwrap();
    World { cluster, topology, workloads: Workloads::default() }
}

pub(super) fn gpus(count: u16) -> Shape {
    Shape::new(Resources::of_pod(1000, 0), GpuDemand::Whole { count })
}

/// A gang of one group.
pub(super) fn gang(shape: Shape, count: u32) -> Gang {
    Gang::new("gang", shape, count)
}

pub(super) fn group(name: &str, shape: Shape, count: u32) -> Group {
    Group::new(name, Arc::new(shape), count)
}

pub(super) fn required(level: LevelId) -> TopologyConstraint {
    TopologyConstraint { required: Some(level), preferred: None }
}

pub(super) fn segments(gang: &mut Gang, size: u32, level: LevelId) {
    gang.groups[0].segment = Some(Segment { size, level });
}

/// The fixed part of a request.
#[derive(Default)]
pub(super) struct Settled {
    pub(super) pinned: Vec<Pinned>,
    pub(super) forbidden: NodeSet,
}

pub(super) fn solve(world: &mut World, gang: &Gang) -> PlanResult {
    solve_with(world, gang, &Settled::default())
}

/// Solves, and checks the plan and that the world is unchanged.
pub(super) fn solve_with(world: &mut World, gang: &Gang, settled: &Settled) -> PlanResult {
    let Settled { pinned, forbidden } = settled;
    let request = Request { gang, pinned, forbidden };
    let before = free(world);
    let answer = Solver::default().solve(world, &request, &MinHops);
    assert_eq!(free(world), before, "the world is as before");
    if let Ok(plan) = &answer {
        check(world, &request, plan);
    }
    answer
}

pub(super) fn free(world: &World) -> Vec<(Resources, Vec<crate::GpuFree>)> {
    let nodes = world.cluster.nodes();
    nodes.map(|node| (world.cluster.free(node), world.cluster.gpus(node).to_vec())).collect()
}

/// Names of the nodes by rank.
pub(super) fn names(world: &World, plan: &Plan) -> Vec<String> {
    plan.placements.iter().map(|one| world.cluster.name(one.placement.node).to_owned()).collect()
}

/// Names of the nodes of a placed gang, by rank.
pub(super) fn places(world: &mut World, gang: &Gang) -> Vec<String> {
    places_with(world, gang, &Settled::default())
}

pub(super) fn places_with(world: &mut World, gang: &Gang, settled: &Settled) -> Vec<String> {
    let plan = solve_with(world, gang, settled).unwrap();
    names(world, &plan)
}

/// The number of members of each node, by name.
pub(super) fn counts(world: &World, plan: &Plan) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for name in names(world, plan) {
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}

/// No node exceeds its limits, including pinned members.
fn check_limits(gang: &Gang, at: &BTreeMap<u32, NodeId>) {
    let mut there: BTreeMap<(u32, NodeId), (u32, u32)> = BTreeMap::new();
    let mut first = 0;
    for group in &gang.groups {
        for (limit, (_, node)) in group
            .limits
            .iter()
            .flat_map(|limit| at.range(first..first + group.count).map(move |one| (limit, one)))
        {
            let (count, most) = there.entry((limit.over, *node)).or_insert((0, limit.most));
            *count += 1;
            assert!(count <= most, "more members on a node than the limit");
        }
        first += group.count;
    }
}

/// Invariants of every plan: enough members, each on free and allowed capacity, and levels and
/// segments respected, including pinned members.
pub(super) fn check(world: &World, request: &Request<'_>, plan: &Plan) {
    let (gang, topology) = (request.gang, &world.topology);
    let mut cluster = world.cluster.clone();
    let mut at: BTreeMap<u32, NodeId> =
        request.pinned.iter().map(|pin| (pin.rank, pin.placement.node)).collect();
    for Placed { group, rank, placement } in &plan.placements {
        let shape = &gang.groups[*group as usize].shape;
        let state = cluster.states().state(cluster.state(placement.node)).unwrap();
        assert!(crate::fit::fits(&cluster, state, shape), "a member where it does not fit");
        assert_eq!(placement.gpus.len(), usize::from(shape.gpus.count()));
        let milli: i64 = placement.gpus.iter().map(|part| i64::from(part.milli)).sum();
        assert!(matches!(shape.gpus, GpuDemand::Mig { .. }) || milli == shape.gpus.total_milli());
        cluster.place(&shape.resources, placement).unwrap();
        assert!(!request.forbidden.contains(&placement.node), "a forbidden node");
        let own = &gang.groups[*group as usize].forbidden;
        assert!(!own.contains(&placement.node), "a node that is forbidden to the group");
        assert!(at.insert(*rank, placement.node).is_none(), "a rank twice");
    }
    check_limits(gang, &at);
    let ranks: Vec<u32> = plan.placements.iter().map(|one| one.rank).collect();
    assert!(ranks.is_sorted(), "not in the order of ranks");
    let colocation_id = |nodes: &[NodeId], level: LevelId| {
        let domains: BTreeSet<_> =
            nodes.iter().map(|node| topology.domain_of(*node, level)).collect();
        assert!(domains.len() <= 1 && !domains.contains(&None), "apart: {domains:?}");
    };
    let all: Vec<_> = at.values().copied().collect();
    if let Some(level) = gang.profile.topology.required {
        colocation_id(&all, level);
    }
    let mut first = 0;
    for (number, group) in (0..).zip(&gang.groups) {
        let own = first..first + group.count;
        first = own.end;
        let of_group = plan.placements.iter().filter(|one| one.group == number);
        assert!(of_group.clone().all(|one| own.contains(&one.rank)), "a rank of another group");
        let nodes: Vec<_> = at.range(own.clone()).map(|(_, node)| *node).collect();
        assert!(nodes.len() >= group.min as usize, "too few of {}", group.name);
        if let Some(level) = group.topology.required {
            colocation_id(&nodes, level);
        }
        if let Some(segment) = group.segment {
            for start in own.step_by(segment.size as usize) {
                let nodes: Vec<_> =
                    at.range(start..start + segment.size).map(|(_, node)| *node).collect();
                colocation_id(&nodes, segment.level);
            }
        }
    }
}
