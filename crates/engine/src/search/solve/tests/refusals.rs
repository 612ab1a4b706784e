//! The content of refusals.

use proptest::prelude::*;

use super::fixtures::*;
use crate::World;
use crate::gang::Gang;
use crate::plan::{FailedBound, Reason, Refusal, Remedy, Scarce};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};
use crate::topology::{LevelId, Topology};
use crate::workload::TopologyConstraint;

fn refusal(world: &mut World, gang: &Gang) -> (FailedBound, Option<Remedy>) {
    let Refusal { reason, remedy, steps } = solve(world, gang).unwrap_err();
    assert_eq!(steps, 0, "a bound needs no search");
    match reason {
        Reason::Bound(bound) => (bound, remedy),
        reason => panic!("{reason:?}"),
    }
}

#[test]
fn demand_above_capacity_is_reported_as_capacity() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 3)]);
    let (bound, remedy) = refusal(&mut world, &gang(gpus(8), 5));
    assert_eq!((bound.wanted, bound.possible, bound.scarce), (5, 1, Scarce::Capacity));
    assert_eq!(bound.within, None);
    assert_eq!(remedy, Some(Remedy::FewerMembers { group: "members".into(), fit: 1 }));
}

#[test]
fn held_and_fragmented_resources_are_distinguished() {
    let mut pieces = world(&[("a", "b1/r1", 5), ("b", "b1/r1", 5)]);
    let (bound, remedy) = refusal(&mut pieces, &gang(gpus(8), 1));
    assert_eq!((bound.possible, bound.scarce), (0, Scarce::Gpus));
    assert_eq!(remedy, Some(Remedy::MoreNodes { nodes: 1, like: "a".into() }));
    // GPUs are free, but the cores beside them are not.
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 8)]);
    for name in ["a", "b"] {
        let node = world.cluster.node_named(name).unwrap();
        let placement = crate::Placement { node, gpus: [].as_slice().into() };
        world.cluster.place(&Resources::of_pod(60_000, 0), &placement).unwrap();
    }
    let shape = Shape::new(Resources::of_pod(8000, 0), GpuDemand::Whole { count: 4 });
    let (bound, _) = refusal(&mut world, &gang(shape, 2));
    assert_eq!((bound.possible, bound.scarce), (0, Scarce::PlainResources));
    let shape = Shape::new(Resources::of_pod(8000, 0), GpuDemand::Whole { count: 9 });
    assert_eq!(refusal(&mut world, &gang(shape, 2)).0.scarce, Scarce::Capacity);
}

#[test]
fn the_tightest_level_that_would_do_is_named() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r2", 8), ("c", "b2/r1", 8)]);
    let mut gang = gang(gpus(8), 2);
    gang.profile.topology = required(RACK);
    let remedy = refusal(&mut world, &gang).1;
    assert_eq!(remedy, Some(Remedy::LooserLevel { level: "block".into() }));
    let mut gang = gang.clone();
    gang.profile.topology.required = None;
    gang.groups[0].topology = required(RACK);
    let (bound, remedy) = refusal(&mut world, &gang);
    assert_eq!((bound.level, bound.possible), (RACK, 1));
    assert_eq!(remedy, Some(Remedy::LooserLevel { level: "block".into() }));
}

#[test]
fn a_remedy_for_several_groups_is_tried_before_it_is_named() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r2", 8)]);
    let mut gang = gang(gpus(8), 1);
    gang.groups = vec![group("one", gpus(5), 1), group("two", gpus(4), 1)];
    gang.profile.topology = required(RACK);
    let (bound, remedy) = refusal(&mut world, &gang);
    assert_eq!((&*bound.group, bound.scarce), ("one and two", Scarce::Capacity));
    assert_eq!(remedy, Some(Remedy::LooserLevel { level: "block".into() }));
    gang.groups[1] = group("two", gpus(8), 2);
    let (bound, remedy) = refusal(&mut world, &gang);
    assert_eq!(&*bound.group, "two");
    assert_eq!(remedy, None, "neither a looser level nor one member of the second group helps");
}

#[test]
fn invalid_request_is_refused() {
    let mut world = world(&[("a", "b1/r1", 8)]);
    let mut gang = gang(gpus(1), 4);
    segments(&mut gang, 3, RACK);
    let reason = solve(&mut world, &gang).unwrap_err().reason;
    assert!(matches!(reason, Reason::Request(_)), "{reason:?}");
}

#[test]
fn request_without_plan_or_failed_bound_is_exhausted() {
    // In total 6 of 8 idle GPUs, but groups of three do not share a node of four.
    let mut world = world(&[("a", "b1/r1", 4), ("b", "b1/r1", 4)]);
    let mut gang = gang(gpus(8), 1);
    gang.groups = vec![group("threes", gpus(3), 2), group("pair", gpus(2), 1)];
    let refusal = solve(&mut world, &gang).unwrap_err();
    assert_eq!(refusal.reason, Reason::Exhausted { level: "cluster".into(), searched: 1 });
    assert!(refusal.steps > 0);
}

#[test]
fn the_same_solver_answers_for_each_cluster_by_its_own_figures() {
    use crate::solve::{MinHops, NodeSet, Request, Solver};
    let mut first = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 8)]);
    let mut solver = Solver::default();
    let (gang, forbidden) = (gang(gpus(8), 1), NodeSet::new());
    let request = Request { gang: &gang, pinned: &[], forbidden: &forbidden };
    let mut ask = |world: &mut World| {
        let plan = solver.solve(world, &request, &MinHops).unwrap();
        names(world, &plan)[0].clone()
    };
    let fill = |world: &mut World, name: &str| {
        let node = world.cluster.node_named(name).unwrap();
        let shape = &gang.groups[0].shape;
        let placement = crate::pick::default_placement(&world.cluster, node, shape).unwrap();
        world.cluster.place(&shape.resources, &placement).unwrap();
    };
    assert_eq!(ask(&mut first), "a");
    // The same number of changes in both, so that the log positions are equal.
    let mut second = first.clone();
    fill(&mut first, "a");
    fill(&mut second, "b");
    assert_eq!(ask(&mut first), "b");
    assert_eq!(ask(&mut second), "a");
    assert_eq!(ask(&mut first), "b");
    let mut third = world(&[("a", "b1/r1", 0), ("b", "b1/r1", 8)]);
    assert_eq!(ask(&mut third), "b");
}

proptest! {
    /// The scarce resource is right if the gang fits the named domain with empty nodes, or with a
    /// smaller request.
    #[test]
    fn scarce_resource_is_the_one_that_would_free_slots_there(
        nodes in prop::collection::vec((0_usize..4, 0_u16..=8, 0_i64..=8), 1..7),
        (each, cores, members) in (0_u16..=5, 0_i64..40, 1_u32..5),
        (level, own, of_two) in (0_u8..3, 0_u8..3, prop::bool::ANY),
    ) {
        let paths = ["b1/r1", "b1/r2", "b2/r1", "b2/r2"];
        let names: Vec<String> = (0..nodes.len()).map(|at| format!("n{at}")).collect();
        let specs = |free: &dyn Fn(u16) -> u16| -> Vec<_> {
            let named = names.iter().zip(&nodes);
            named.map(|(name, (path, idle, _))| (&**name, paths[*path], free(*idle))).collect()
        };
        let mut world = world(&specs(&|idle| idle));
        let mut empty = super::fixtures::world(&specs(&|_| 8));
        for (name, (_, _, busy)) in names.iter().zip(&nodes) {
            let node = world.cluster.node_named(name).unwrap();
            let placement = crate::Placement { node, gpus: [].as_slice().into() };
            world.cluster.place(&Resources::of_pod(6000 * busy, 0), &placement).unwrap();
        }
        let gpus = if each == 0 { GpuDemand::None } else { GpuDemand::Whole { count: each } };
        let mut gang = gang(Shape::new(Resources::of_pod(1000 * cores, 0), gpus), 2 * members);
        let wish = |level: u8| {
            TopologyConstraint { required: (level > 0).then_some(LevelId(level)), preferred: None }
        };
        gang.profile.topology = wish(level);
        gang.groups[0].topology = wish(own);
        if of_two {
            segments(&mut gang, 2, LevelId(own.max(1)));
        }
        let Err(Refusal { reason: Reason::Bound(bound), .. }) = solve(&mut world, &gang) else {
            return Ok(());
        };
        let within = bound.within.as_ref().map(|path| {
            let mut domains = world.topology.domains().map(|(id, _)| id);
            domains.find(|id| world.topology.path(*id) == *path).unwrap()
        });
        let has_room = |world: &mut World, gang: &Gang, within: Option<crate::DomainId>| {
            let inside = world.topology.nodes(within.unwrap_or(Topology::ROOT));
            let outside = world.cluster.nodes().filter(|node| !inside.contains(node));
            let settled = Settled { forbidden: outside.collect(), ..Settled::default() };
            solve_with(world, gang, &settled).is_ok()
        };
        let mut asking = |change: &dyn Fn(&mut Shape)| {
            let mut shape = (*gang.groups[0].shape).clone();
            change(&mut shape);
            let mut gang = gang.clone();
            gang.groups[0].shape = shape.into();
            has_room(&mut world, &gang, within)
        };
        let expected = if !has_room(&mut empty, &gang, None) {
            Scarce::Capacity
        } else if asking(&|shape| shape.resources = Resources::default()) {
            Scarce::PlainResources
        } else if asking(&|shape| shape.gpus = GpuDemand::None) {
            Scarce::Gpus
        } else {
            Scarce::Free
        };
        prop_assert_eq!(bound.scarce, expected);
    }
}
