//! Small worlds against an exhaustive search.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::fixtures::*;
use crate::World;
use crate::cluster::Cluster;
use crate::gang::{Gang, NodeLimit, Segment};
use crate::gpu::{GpuModel, MigProfile, Slices, WHOLE};
use crate::node::{NodeClass, NodeId};
use crate::placement::{GpuPart, GpuParts, Placement};
use crate::plan::Reason;
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};
use crate::solve::{MinHops, NodeSet, Pinned, Request, Solver};
use crate::topology::{LevelId, Topology};
use crate::workload::TopologyConstraint;

/// A node: its path, GPUs, taken halves of each, free cores, whether it is open.
type Node = (usize, Vec<u16>, i64, bool);

const PATHS: [&str; 6] = ["b1/r1", "b1/r2", "b2/r1", "b2/r2", "b1", ""];

fn small_world(nodes: &[Node]) -> World {
    let profile = |name: &str, milli, size, starts: &[u8]| MigProfile {
        name: name.to_owned(),
        milli,
        memory_mib: 0,
        size,
        starts: starts.to_vec(),
        has_media: false,
    };
    let model = GpuModel {
        name: "G".to_owned(),
        memory_mib: 0,
        idle_watts: 0,
        full_watts: 0,
        mig: vec![profile("1g", 250, 1, &[0, 1, 2, 3]), profile("2g", 500, 2, &[0, 1, 2])],
    };
    let names: Vec<String> = (0..nodes.len()).map(|number| format!("n{number}")).collect();
    let specs = nodes.iter().zip(&names).map(|((path, gpus, cores, _), name)| {
        let capacity = Resources { cpu_milli: *cores * 1000, memory_mib: 100, pods: 10 };
        let gpus = u16::try_from(gpus.len()).unwrap();
        spec(name, PATHS[*path], NodeClass { capacity, gpus, ..NodeClass::default() })
    });
    let mut world = build(vec![model], specs.collect());
    for ((_, gpus, _, is_open), name) in nodes.iter().zip(&names) {
        let node = world.cluster.node_named(name).unwrap();
        for (gpu, halves) in (0..).zip(gpus).filter(|(_, halves)| **halves > 0) {
            let part = GpuPart { gpu, milli: halves * 500, slices: Slices::NONE, memory_mib: 0 };
            let placement = Placement { node, gpus: [part].as_slice().into() };
            world.cluster.place(&Resources::default(), &placement).unwrap();
        }
        world.cluster.set_open(node, *is_open).unwrap();
    }
    world
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let gpus = prop::collection::vec(0_u16..=2, 0..=2);
    let node = (0..PATHS.len(), gpus, 1_i64..5, prop::bool::weighted(0.9));
    prop::collection::vec(node, 1..=6)
}

fn shape() -> impl Strategy<Value = Shape> {
    let gpus = prop_oneof![
        Just(GpuDemand::None),
        (1_u16..=2).prop_map(|count| GpuDemand::Whole { count }),
        (1_u16..=2, prop::sample::select(vec![250_u16, 500, 700]))
            .prop_map(|(count, milli)| GpuDemand::of(count, milli)),
        (1_u16..=2, prop::sample::select(vec!["1g", "2g"]))
            .prop_map(|(count, name)| GpuDemand::Mig { count, profile: name.into() }),
    ];
    (gpus, 0_i64..4).prop_map(|(gpus, cores)| Shape::new(Resources::of_pod(cores * 1000, 0), gpus))
}

fn wish() -> impl Strategy<Value = TopologyConstraint> {
    (0_u8..=2, 0_u8..=2).prop_map(|(required, tighter)| {
        let level = |level: u8| (level > 0).then_some(LevelId(level));
        let preferred = tighter.max(required);
        TopologyConstraint { required: level(required), preferred: level(preferred) }
    })
}

fn gangs(most_groups: usize) -> impl Strategy<Value = Gang> {
    let limits = prop_oneof![2 => Just(vec![]), 1 => Just(vec![0]), 1 => Just(vec![0, 1])];
    let rules = (prop::collection::vec(0_u32..6, 0..=2), limits);
    let group = (shape(), 1_u32..=2, 0_u32..=2, wish(), 0_u32..=2, 1_u8..=2, rules);
    let groups = prop::collection::vec(group, 1..=most_groups);
    let most = [1_u32..=2, 1_u32..=2];
    (groups, wish(), most, any::<bool>()).prop_map(|(groups, topology, most, is_together)| {
        let mut gang = gang(gpus(1), 1);
        gang.profile.topology = topology;
        gang.groups.clear();
        for (number, group) in groups.into_iter().enumerate() {
            let (shape, count, spare, topology, size, level, (forbidden, limits)) = group;
            let mut group = group_of(number, shape, topology);
            group.segment = (size > 0).then_some(Segment { size, level: LevelId(level) });
            group.count = count * size.max(1);
            group.min = count.saturating_sub(spare) * size.max(1);
            group.forbidden = forbidden.into_iter().map(NodeId).collect();
            let limits = limits.into_iter();
            group.limits =
                limits.map(|over| NodeLimit { over, most: most[over as usize] }).collect();
            gang.groups.push(group);
        }
        // Colocated groups have a common level.
        let level = gang.groups[0].topology.required;
        if is_together && level.is_some() {
            for group in &mut gang.groups {
                group.topology = TopologyConstraint { required: level, preferred: level };
                group.colocation_id = Some(7);
            }
        }
        gang
    })
}

/// Subgroups of one to three groups with one member each, at their own levels.
fn subgroups() -> impl Strategy<Value = Gang> {
    let levels = [1_u8..=2, 1_u8..=2];
    let shapes = prop::collection::vec(shape(), 3..=4);
    (shapes, 2_usize..=3, levels).prop_map(|(shapes, each, levels)| {
        let mut gang = gang(gpus(1), 1);
        gang.groups.clear();
        for (number, shape) in shapes.into_iter().enumerate() {
            let subgroup = number / each;
            let required = Some(LevelId(levels[subgroup]));
            let wish = TopologyConstraint { required, preferred: required };
            let mut group = group_of(number, shape, wish);
            group.colocation_id = Some(u32::try_from(subgroup).unwrap());
            gang.groups.push(group);
        }
        gang
    })
}

fn group_of(number: usize, shape: Shape, topology: TopologyConstraint) -> crate::Group {
    crate::Group { topology, ..group(&format!("g{number}"), shape, 1) }
}

/// Every set of parts of a node's GPUs, by brute force.
fn ways(cluster: &Cluster, node: NodeId, demand: &GpuDemand) -> Vec<GpuParts> {
    let gpus = cluster.gpus(node);
    let part = |gpu, milli, slices| GpuPart { gpu, milli, slices, memory_mib: 0 };
    let mut parts = Vec::new();
    for (gpu, free) in (0..).zip(gpus) {
        match demand {
            GpuDemand::None => {}
            GpuDemand::Whole { .. } => parts.push(part(gpu, WHOLE, Slices::NONE)),
            GpuDemand::Share { milli, .. } => parts.push(part(gpu, *milli, Slices::NONE)),
            GpuDemand::Mig { profile, .. } => {
                let profile = cluster.models()[0].profile(profile).unwrap();
                let places = profile.places().filter(|place| !place.overlaps(free.slices));
                parts.extend(places.map(|place| part(gpu, profile.milli, place)));
            }
        }
    }
    let mut sets = vec![(0, GpuParts::new())];
    for _ in 0..demand.count() {
        let mut longer = Vec::new();
        for (next, set) in sets {
            for (at, part) in parts.iter().enumerate().skip(next) {
                let is_share = !matches!(demand, GpuDemand::Mig { .. });
                if is_share && set.iter().any(|other: &GpuPart| other.gpu == part.gpu) {
                    continue;
                }
                let mut set = set.clone();
                set.push(*part);
                longer.push((at + 1, set));
            }
        }
        sets = longer;
    }
    sets.into_iter().map(|(_, set)| set).collect()
}

/// Nodes of the members so far, and the free GPUs and plain resources.
type Situation = (Vec<NodeId>, Vec<crate::GpuFree>, Vec<Resources>);

/// Whether the first `min` members of each group can be placed: every node, every GPU.
struct Oracle<'a> {
    topology: &'a Topology,
    gang: &'a Gang,
    forbidden: &'a NodeSet,
    /// Group and rank within it of each member.
    members: Vec<(usize, u32)>,
    at: Vec<NodeId>,
    /// Situations from which nothing more can be placed.
    seen: BTreeSet<Situation>,
}

impl Oracle<'_> {
    fn is_possible(&mut self, cluster: &Cluster) -> bool {
        let Some((group, _)) = self.members.get(self.at.len()).copied() else { return true };
        let gpus = cluster.nodes().flat_map(|node| cluster.gpus(node).to_vec()).collect();
        let free = cluster.nodes().map(|node| cluster.free(node)).collect();
        if !self.seen.insert((self.at.clone(), gpus, free)) {
            return false;
        }
        let shape = Arc::clone(&self.gang.groups[group].shape);
        for node in cluster.nodes() {
            if self.forbidden.contains(&node) || !cluster.is_open(node) {
                continue;
            }
            self.at.push(node);
            if self.is_together()
                && self.is_within_limits(group, node)
                && crate::fit::is_allowed(cluster.class(node), &shape)
            {
                for gpus in ways(cluster, node, &shape.gpus) {
                    let mut after = cluster.clone();
                    let placement = Placement { node, gpus };
                    if after.place(&shape.resources, &placement).is_ok() && self.is_possible(&after)
                    {
                        return true;
                    }
                }
            }
            self.at.pop();
        }
        false
    }

    /// Whether the constraints of the group allow its last member on this node.
    fn is_within_limits(&self, group: usize, node: NodeId) -> bool {
        let groups = &self.gang.groups;
        let there = |over: u32| {
            let on_node = self.members.iter().zip(&self.at).filter(|(_, at)| **at == node);
            on_node
                .filter(|((group, _), _)| groups[*group].limits.iter().any(|one| one.over == over))
                .count()
        };
        !groups[group].forbidden.contains(&node)
            && groups[group].limits.iter().all(|limit| there(limit.over) <= limit.most as usize)
    }

    fn is_together(&self) -> bool {
        let mut sets: BTreeMap<(usize, u32, LevelId), Vec<NodeId>> = BTreeMap::new();
        for ((group, rank), node) in self.members.iter().zip(&self.at) {
            let mut add =
                |kind, number, level| sets.entry((kind, number, level)).or_default().push(*node);
            let number = u32::try_from(*group).unwrap() * 1000;
            if let Some(level) = self.gang.profile.topology.required {
                add(0, 0, level);
            }
            if let Some(level) = self.gang.groups[*group].topology.required {
                add(1, number, level);
                if let Some(colocation_id) = self.gang.groups[*group].colocation_id {
                    add(3, colocation_id, level);
                }
            }
            if let Some(segment) = self.gang.groups[*group].segment {
                add(2, number + rank / segment.size, segment.level);
            }
        }
        sets.iter().all(|((_, _, level), nodes)| {
            let domains: BTreeSet<_> =
                nodes.iter().map(|node| self.topology.domain_of(*node, *level)).collect();
            domains.len() == 1 && !domains.contains(&None)
        })
    }
}

/// None: the pinned member itself violates a constraint.
fn is_possible(
    world: &World,
    gang: &Gang,
    forbidden: &NodeSet,
    pinned: Option<NodeId>,
) -> Option<bool> {
    // The pinned member is the first of the first group.
    let first = usize::from(pinned.is_some());
    let members = gang.groups.iter().enumerate().flat_map(|(number, group)| {
        let start = u32::from(number == 0 && pinned.is_some());
        (start..group.min).map(move |rank| (number, rank))
    });
    let members = [(0, 0)].into_iter().take(first).chain(members);
    let mut oracle = Oracle {
        topology: &world.topology,
        gang,
        forbidden,
        members: members.collect(),
        at: pinned.into_iter().collect(),
        seen: BTreeSet::new(),
    };
    oracle.is_together().then(|| oracle.is_possible(&world.cluster))
}

fn is_settled_alike(
    nodes: &[Node],
    gang: &Gang,
    forbidden: &[u32],
    pin: Option<u32>,
) -> Result<(), TestCaseError> {
    let mut world = small_world(nodes);
    let shape = Arc::clone(&gang.groups[0].shape);
    let pin = pin.map(NodeId).filter(|pin| (pin.0 as usize) < nodes.len());
    let pin = pin.and_then(|pin| crate::pick::default_placement(&world.cluster, pin, &shape));
    if let Some(pin) = &pin {
        world.cluster.place(&shape.resources, pin).unwrap();
    }
    let forbidden = forbidden.iter().copied().map(NodeId).collect();
    let pinned = pin.as_ref().map(|pin| pin.node);
    let Some(possible) = is_possible(&world, gang, &forbidden, pinned) else { return Ok(()) };
    let pinned = pin.map(|placement| Pinned { rank: 0, placement }).into_iter().collect();
    let settled = Settled { pinned, forbidden };
    match solve_with(&mut world, gang, &settled) {
        Ok(_) => prop_assert!(possible, "a plan where there is none"),
        Err(refusal) => match refusal.reason {
            Reason::Bound(_) | Reason::Exhausted { .. } => prop_assert!(!possible, "{refusal:?}"),
            Reason::Steps { .. } => prop_assert!(gang.groups.len() > 1, "one group is settled"),
            reason => prop_assert!(false, "{reason:?}"),
        },
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn one_group_is_placed_exactly_if_that_is_possible(
        nodes in nodes(),
        gang in gangs(1),
        forbidden in prop::collection::vec(0_u32..6, 0..=1),
    ) {
        is_settled_alike(&nodes, &gang, &forbidden, None)?;
    }

    #[test]
    fn several_groups_are_placed_exactly_if_that_is_possible(
        nodes in nodes(),
        gang in gangs(2),
        forbidden in prop::collection::vec(0_u32..6, 0..=1),
    ) {
        is_settled_alike(&nodes, &gang, &forbidden, None)?;
    }

    #[test]
    fn several_mixed_subgroups_are_placed_exactly_if_that_is_possible(
        nodes in nodes(),
        gang in subgroups(),
    ) {
        is_settled_alike(&nodes, &gang, &[], None)?;
    }

    #[test]
    fn late_members_are_placed_exactly_if_that_is_possible(
        nodes in nodes(),
        gang in gangs(2),
        pin in 0_u32..6,
    ) {
        let mut gang = gang;
        // With segments the missing ranks matter, and the refusal reports them as text.
        gang.groups[0].segment = None;
        is_settled_alike(&nodes, &gang, &[], Some(pin))?;
    }

    /// A solver that has seen other requests and changes gives the results of a new one.
    #[test]
    fn what_a_solver_has_seen_before_changes_no_answer(
        nodes in nodes(),
        requests in prop::collection::vec((gangs(2), any::<bool>()), 1..4),
    ) {
        let mut world = small_world(&nodes);
        let mut old = Solver::default();
        let forbidden = NodeSet::new();
        for (gang, is_kept) in requests {
            let request = Request { gang: &gang, pinned: &[], forbidden: &forbidden };
            let answer = old.solve(&mut world, &request, &MinHops);
            prop_assert_eq!(&answer, &Solver::default().solve(&mut world, &request, &MinHops));
            for one in answer.iter().filter(|_| is_kept).flat_map(|plan| &plan.placements) {
                let shape = &gang.groups[one.group as usize].shape;
                world.cluster.place(&shape.resources, &one.placement).unwrap();
            }
        }
    }
}
