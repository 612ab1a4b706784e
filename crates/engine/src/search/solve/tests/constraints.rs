//! Forbidden nodes of a group, and limits of members per node.

use super::fixtures::*;
use crate::gang::{Gang, GangError, NodeLimit};
use crate::placement::{GpuParts, Placement};
use crate::plan::{Reason, Scarce};
use crate::solve::Pinned;

/// A gang of these groups with one shared limit of `most` members per node.
fn limited(groups: &[(&str, u32)], most: u32) -> Gang {
    let mut gang = gang(gpus(1), 1);
    gang.groups = groups.iter().map(|(name, count)| group(name, gpus(1), *count)).collect();
    for group in &mut gang.groups {
        group.limits = vec![NodeLimit { over: 3, most }];
    }
    gang
}

#[test]
fn no_node_has_more_members_than_its_limit() {
    let mut world = world(&[("a", "", 8), ("b", "", 8), ("c", "", 8)]);
    assert_eq!(places(&mut world, &limited(&[("all", 3)], 1)), ["a", "b", "c"]);
    let plan = solve(&mut world, &limited(&[("all", 5)], 2)).unwrap();
    assert!(counts(&world, &plan).values().all(|count| *count <= 2));
}

#[test]
fn groups_share_a_limit() {
    let mut world = world(&[("a", "", 8), ("b", "", 8), ("c", "", 8)]);
    let plan = solve(&mut world, &limited(&[("leader", 1), ("workers", 2)], 1)).unwrap();
    assert!(counts(&world, &plan).values().all(|count| *count == 1));
    // Each group fits alone, but not both: this is proved, not searched for.
    let refusal = solve(&mut world, &limited(&[("leader", 2), ("workers", 2)], 1)).unwrap_err();
    let Reason::Bound(bound) = refusal.reason else { panic!("{refusal:?}") };
    assert_eq!((bound.wanted, bound.possible, bound.scarce), (4, 3, Scarce::Constraints));
}

#[test]
fn limiting_constraint_is_reported() {
    let mut world = world(&[("a", "", 8), ("b", "", 8)]);
    let refusal = solve(&mut world, &limited(&[("all", 3)], 1)).unwrap_err();
    let Reason::Bound(bound) = refusal.reason else { panic!("{refusal:?}") };
    assert_eq!((bound.wanted, bound.possible, bound.scarce), (3, 2, Scarce::Constraints));
}

#[test]
fn nodes_are_forbidden_to_one_group_alone() {
    let mut world = world(&[("a", "", 1), ("b", "", 8), ("c", "", 8)]);
    let mut gang = gang(gpus(1), 1);
    gang.groups = vec![group("leader", gpus(1), 1), group("workers", gpus(8), 2)];
    let node = |name| world.cluster.node_named(name).unwrap();
    gang.groups[0].forbidden = [node("b"), node("c")].into();
    gang.groups[1].forbidden = [node("a")].into();
    assert_eq!(places(&mut world, &gang), ["a", "b", "c"]);
}

#[test]
fn pinned_members_count_towards_a_limit() {
    let mut world = world(&[("a", "", 8), ("b", "", 8)]);
    let node = world.cluster.node_named("a").unwrap();
    let placement = Placement { node, gpus: GpuParts::new() };
    let pinned = |rank| vec![Pinned { rank, placement: placement.clone() }];
    let gang = limited(&[("leader", 1), ("workers", 1)], 1);
    let settled = Settled { pinned: pinned(0), ..Settled::default() };
    assert_eq!(places_with(&mut world, &gang, &settled), ["b"]);
    // The group of a rank beyond the gang is unknown.
    let settled = Settled { pinned: pinned(7), ..Settled::default() };
    assert!(solve_with(&mut world, &gang, &settled).is_err());
}

#[test]
fn members_to_spare_keep_to_a_limit() {
    let mut world = world(&[("a", "", 8), ("b", "", 8)]);
    let mut gang = limited(&[("leader", 1), ("workers", 5)], 2);
    gang.groups[1].min = 1;
    let plan = solve(&mut world, &gang).unwrap();
    assert_eq!(counts(&world, &plan).into_values().collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn groups_with_different_values_for_one_limit_are_invalid() {
    let mut gang = limited(&[("leader", 1), ("workers", 1)], 1);
    gang.groups[1].limits[0].most = 2;
    assert!(matches!(gang.check(1), Err(GangError::UnevenLimits { over: 3, most: 2, .. })));
}

/// Nodes that differ only by a constraint are not equivalent. The first group leaves the node to
/// the other, which is allowed only there.
#[test]
fn nodes_that_differ_by_a_rule_are_not_alike() {
    for (kept, own) in [("a", "b"), ("b", "a")] {
        let mut world = world(&[("a", "", 1), ("b", "", 1)]);
        let node = world.cluster.node_named(kept).unwrap();
        let mut gang = gang(gpus(1), 1);
        gang.groups = vec![group("free", gpus(1), 1), group("bound", gpus(1), 1)];
        gang.groups[1].forbidden = [node].into();
        assert_eq!(places(&mut world, &gang), [kept, own]);
        // The same if a pinned member uses up the limit there.
        gang.groups[1] = group("bound", gpus(1), 2);
        gang.groups[1].limits = vec![NodeLimit { over: 0, most: 1 }];
        let pin = Pinned { rank: 1, placement: Placement { node, gpus: GpuParts::new() } };
        let settled = Settled { pinned: vec![pin], ..Settled::default() };
        assert_eq!(places_with(&mut world, &gang, &settled), [kept, own]);
    }
}

/// Two limits may leave different numbers of a node with the same minimum.
#[test]
fn nodes_of_which_limits_leave_different_numbers_are_not_alike() {
    for (kept, other) in [("a", "b"), ("b", "a")] {
        let mut world = world(&[("a", "", 8), ("b", "", 8)]);
        let node = |name| world.cluster.node_named(name).unwrap();
        let pin = |rank, name| Pinned {
            rank,
            placement: Placement { node: node(name), gpus: GpuParts::new() },
        };
        let settled = Settled { pinned: vec![pin(0, kept), pin(4, other)], ..Settled::default() };
        let mut gang = gang(gpus(1), 1);
        let sized = [("first", 2), ("second", 2), ("third", 1)];
        gang.groups = sized.iter().map(|(name, count)| group(name, gpus(1), *count)).collect();
        let limit = |over, most| NodeLimit { over, most };
        gang.groups[0].limits = vec![limit(0, 2), limit(2, 2)];
        gang.groups[1].limits = vec![limit(1, 1), limit(2, 2)];
        gang.groups[2].limits = vec![limit(0, 2)];
        // The second member of the first group has to avoid the node of the first.
        let placed = places_with(&mut world, &gang, &settled);
        assert_eq!(placed[0], other, "{placed:?}");
    }
}
