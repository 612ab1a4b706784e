//! Late and re-created members join the gang.

use super::fixtures::*;
use crate::gang::Gang;
use crate::plan::{Reason, Remedy, Scarce};
use crate::solve::Pinned;
use crate::{Placement, World};

/// Places a member and pins it.
fn pin(world: &mut World, gang: &Gang, rank: u32, node: &str) -> Pinned {
    let node = world.cluster.node_named(node).unwrap();
    let shape = &gang.groups[0].shape;
    let placement: Placement = crate::pick::default_placement(&world.cluster, node, shape).unwrap();
    world.cluster.place(&shape.resources, &placement).unwrap();
    Pinned { rank, placement }
}

#[test]
fn a_late_member_goes_to_the_domain_of_those_that_run() {
    let mut world =
        world(&[("a", "b1/r1", 8), ("b", "b2/r1", 8), ("c", "b2/r1", 8), ("d", "b2/r2", 8)]);
    let mut gang = gang(gpus(8), 2);
    let pinned = vec![pin(&mut world, &gang, 0, "b")];
    let settled = Settled { pinned, ..Settled::default() };
    let plan = solve_with(&mut world, &gang, &settled).unwrap();
    assert_eq!(names(&world, &plan), ["c"]);
    assert_eq!(plan.placements[0].rank, 1);
    assert_eq!(plan.cost.of(crate::CostTerm::Hops), 4, "there and back");
    // Without the neighbour it goes to the next rack of the block, unless a rack is required.
    world.cluster.set_open(world.cluster.node_named("c").unwrap(), false).unwrap();
    assert_eq!(places_with(&mut world, &gang, &settled), ["d"]);
    gang.profile.topology = required(RACK);
    let refusal = solve_with(&mut world, &gang, &settled).unwrap_err();
    let Reason::Bound(bound) = refusal.reason else { panic!("{:?}", refusal.reason) };
    assert_eq!((bound.possible, bound.within.as_deref()), (0, Some("b2/r1")));
}

#[test]
fn a_member_between_two_racks_of_the_gang_goes_to_one_of_them() {
    let mut world = world(&[
        ("a", "b1/r1", 8),
        ("b", "b1/r1", 8),
        ("c", "b1/r2", 8),
        ("d", "b1/r2", 8),
        ("e", "b1/r0", 1),
        ("f", "b1/r3", 8),
    ]);
    let gang = gang(gpus(4), 6);
    let places = [(0, "a"), (1, "a"), (2, "b"), (4, "c"), (5, "c")];
    let pinned = places.map(|(rank, node)| pin(&mut world, &gang, rank, node)).into();
    let settled = Settled { pinned, ..Settled::default() };
    let plan = solve_with(&mut world, &gang, &settled).unwrap();
    assert_eq!(names(&world, &plan), ["b"]);
    assert_eq!(plan.placements[0].rank, 3);
}

#[test]
fn a_member_comes_back_beside_its_neighbours_though_most_of_the_gang_is_elsewhere() {
    let mut world = world(&[
        ("a", "b1/r0", 8),
        ("b", "b1/r0", 8),
        ("c", "b1/r1", 8),
        ("d", "b1/r1", 8),
        ("e", "b1/r1", 8),
        ("f", "b1/r1", 8),
        ("g", "b1/r1", 8),
        ("h", "b1/r1", 8),
        ("i", "b1/r1", 8),
    ]);
    let gang = gang(gpus(4), 7);
    let places = [(0, "a"), (2, "a"), (3, "c"), (4, "c"), (5, "d"), (6, "d")];
    let pinned = places.map(|(rank, node)| pin(&mut world, &gang, rank, node)).into();
    let settled = Settled { pinned, ..Settled::default() };
    assert_eq!(places_with(&mut world, &gang, &settled), ["b"]);
}

#[test]
fn a_member_of_a_segment_comes_back_to_its_segment() {
    let mut world = world(&[
        ("a", "b1/r1", 8),
        ("b", "b1/r1", 8),
        ("c", "b1/r2", 8),
        ("d", "b1/r2", 8),
        ("e", "b1/r3", 8),
        ("f", "b1/r3", 8),
    ]);
    let mut gang = gang(gpus(8), 6);
    segments(&mut gang, 2, RACK);
    let pinned = vec![pin(&mut world, &gang, 3, "a"), pin(&mut world, &gang, 0, "c")];
    let settled = Settled { pinned, ..Settled::default() };
    let plan = solve_with(&mut world, &gang, &settled).unwrap();
    assert_eq!(names(&world, &plan), ["d", "b", "e", "f"]);
    world.cluster.set_open(world.cluster.node_named("b").unwrap(), false).unwrap();
    let refusal = solve_with(&mut world, &gang, &settled).unwrap_err();
    let Reason::Bound(bound) = refusal.reason else { panic!("{:?}", refusal.reason) };
    assert_eq!((bound.wanted, bound.possible, bound.within.as_deref()), (1, 0, Some("b1/r1")));
}

#[test]
fn members_already_apart_block_the_rest() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b2/r1", 8), ("c", "b2/r1", 8)]);
    let mut gang = gang(gpus(8), 3);
    let pinned = vec![pin(&mut world, &gang, 0, "a"), pin(&mut world, &gang, 1, "b")];
    let settled = Settled { pinned, ..Settled::default() };
    assert_eq!(places_with(&mut world, &gang, &settled), ["c"]);
    gang.profile.topology = required(BLOCK);
    // No placement of the third member can satisfy the gang's level.
    let request = solve_refused(&mut world, &gang, &settled);
    assert_eq!(request, 0);
}

fn solve_refused(world: &mut World, gang: &Gang, settled: &Settled) -> u64 {
    match solve_with(world, gang, settled).unwrap_err().reason {
        Reason::Bound(bound) => bound.possible,
        reason => panic!("{reason:?}"),
    }
}

#[test]
fn a_gang_that_is_all_there_needs_nothing() {
    let mut world = world(&[("a", "b1/r1", 8)]);
    let gang = gang(gpus(8), 1);
    let pinned = vec![pin(&mut world, &gang, 0, "a")];
    let plan = solve_with(&mut world, &gang, &Settled { pinned, ..Settled::default() }).unwrap();
    assert!(plan.placements.is_empty());
}

#[test]
fn an_elastic_gang_grows_by_what_fits() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 8), ("c", "b2/r1", 8)]);
    let mut gang = gang(gpus(8), 4);
    gang.groups[0].min = 1;
    gang.profile.topology = required(RACK);
    let pinned = vec![pin(&mut world, &gang, 0, "a")];
    let plan = solve_with(&mut world, &gang, &Settled { pinned, ..Settled::default() }).unwrap();
    assert_eq!(names(&world, &plan), ["b"]);
}

#[test]
fn no_plan_goes_below_the_minimum_by_leaving_out_a_segment() {
    let nodes = [("a", "b1/r1", 8), ("b", "b1/r1", 0), ("c", "b1/r2", 0), ("d", "b1/r2", 0)];
    let mut world = world(&nodes);
    let mut gang = gang(gpus(4), 8);
    gang.groups[0].min = 4;
    segments(&mut gang, 4, RACK);
    let pinned = vec![pin(&mut world, &gang, 0, "a")];
    // One more fits beside the pinned one, but a segment is placed whole.
    let settled = Settled { pinned, ..Settled::default() };
    let refusal = solve_with(&mut world, &gang, &settled).unwrap_err();
    let reason = Reason::Exhausted { level: "cluster".into(), searched: 1 };
    assert_eq!(refusal.reason, reason);
}

#[test]
fn another_segment_is_used_if_the_pinned_segment_is_full() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 0), ("c", "b1/r2", 8)]);
    let mut gang = gang(gpus(2), 8);
    gang.groups[0].min = 4;
    segments(&mut gang, 4, RACK);
    let settled = Settled { pinned: vec![pin(&mut world, &gang, 0, "a")], ..Settled::default() };
    world.cluster.set_open(world.cluster.node_named("a").unwrap(), false).unwrap();
    let plan = solve_with(&mut world, &gang, &settled).unwrap();
    assert_eq!(names(&world, &plan), ["c"; 4]);
    let ranks: Vec<u32> = plan.placements.iter().map(|one| one.rank).collect();
    assert_eq!(ranks, [4, 5, 6, 7]);
}

#[test]
fn a_pinned_member_of_a_rank_that_is_gone_counts_for_the_ring() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 8)]);
    let gang = gang(gpus(8), 1);
    let pinned = vec![pin(&mut world, &gang, 7, "a")];
    let plan = solve_with(&mut world, &gang, &Settled { pinned, ..Settled::default() }).unwrap();
    assert_eq!(names(&world, &plan), ["b"]);
    assert_eq!(plan.cost.of(crate::CostTerm::Hops), 4, "there and back");
}

#[test]
fn nothing_is_offered_that_cannot_bring_pinned_members_together() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b2/r1", 8), ("c", "b2/r1", 8)]);
    let mut gang = gang(gpus(8), 3);
    let pinned = vec![pin(&mut world, &gang, 0, "a"), pin(&mut world, &gang, 1, "b")];
    let settled = Settled { pinned, ..Settled::default() };
    gang.profile.topology = required(RACK);
    let level = Remedy::LooserLevel { level: "cluster".into() };
    assert_eq!(solve_with(&mut world, &gang, &settled).unwrap_err().remedy, Some(level));
    // Not even that helps without capacity, and neither would more nodes.
    world.cluster.set_open(world.cluster.node_named("c").unwrap(), false).unwrap();
    assert_eq!(solve_with(&mut world, &gang, &settled).unwrap_err().remedy, None);
}

#[test]
fn what_a_segment_lacks_on_closed_nodes_is_capacity() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 8), ("c", "b1/r1", 0)]);
    let mut gang = gang(gpus(8), 2);
    segments(&mut gang, 2, RACK);
    let settled = Settled { pinned: vec![pin(&mut world, &gang, 0, "a")], ..Settled::default() };
    let scarce = |world: &mut World| match solve_with(world, &gang, &settled).unwrap_err().reason {
        Reason::Bound(bound) => bound.scarce,
        reason => panic!("{reason:?}"),
    };
    for name in ["b", "c"] {
        world.cluster.set_open(world.cluster.node_named(name).unwrap(), false).unwrap();
    }
    // The pinned member's own node would hold one if it were empty.
    world.cluster.set_open(world.cluster.node_named("a").unwrap(), false).unwrap();
    assert_eq!(scarce(&mut world), Scarce::Capacity);
    world.cluster.set_open(world.cluster.node_named("c").unwrap(), true).unwrap();
    assert_eq!(scarce(&mut world), Scarce::Gpus);
}
