//! Required and preferred levels.

use super::fixtures::*;
use crate::plan::{Reason, Remedy};
use crate::workload::TopologyConstraint;

fn two_racks() -> [(&'static str, &'static str, u16); 4] {
    [("a", "b1/r1", 8), ("b", "b1/r2", 8), ("c", "b2/r1", 8), ("d", "b2/r1", 8)]
}

#[test]
fn a_required_level_is_kept_or_the_gang_waits() {
    let mut world = world(&two_racks());
    let mut gang = gang(gpus(8), 2);
    gang.profile.topology = required(RACK);
    assert_eq!(places(&mut world, &gang), ["c", "d"]);
    gang.groups[0].count = 3;
    gang.groups[0].min = 3;
    let refusal = solve(&mut world, &gang).unwrap_err();
    let Reason::Bound(bound) = refusal.reason else { panic!("{:?}", refusal.reason) };
    assert_eq!((bound.wanted, bound.possible, bound.level), (3, 2, RACK));
    assert_eq!(bound.within.as_deref(), Some("b2/r1"));
    assert_eq!(refusal.remedy, Some(Remedy::LooserLevel { level: "cluster".into() }));
}

#[test]
fn preferred_level_is_tried_before_looser_ones() {
    let mut world = world(&two_racks());
    let mut gang = gang(gpus(4), 4);
    gang.profile.topology = TopologyConstraint { required: Some(BLOCK), preferred: Some(RACK) };
    assert_eq!(places(&mut world, &gang), ["c", "c", "d", "d"]);
    world.cluster.set_open(world.cluster.node_named("c").unwrap(), false).unwrap();
    assert_eq!(places(&mut world, &gang), ["a", "a", "b", "b"]);
    world.cluster.set_open(world.cluster.node_named("a").unwrap(), false).unwrap();
    assert!(solve(&mut world, &gang).is_err());
}

#[test]
fn a_preferred_level_wins_over_fewer_hops() {
    let crumbs = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut nodes = vec![("x", "b1/r2", 4), ("y", "b1/r3", 4)];
    nodes.extend(crumbs.map(|name| (name, "b1/r1", 1)));
    let mut world = world(&nodes);
    let mut gang = gang(gpus(1), 8);
    gang.profile.topology.preferred = Some(RACK);
    assert_eq!(places(&mut world, &gang), crumbs);
}

#[test]
fn segments_lie_in_one_domain_each_and_the_gang_in_several() {
    let mut world = world(&[
        ("a", "b1/r1", 8),
        ("b", "b1/r1", 8),
        ("c", "b1/r1", 8),
        ("d", "b1/r2", 8),
        ("e", "b1/r2", 8),
        ("f", "b2/r1", 8),
    ]);
    let mut gang = gang(gpus(8), 4);
    segments(&mut gang, 2, RACK);
    assert_eq!(places(&mut world, &gang), ["a", "b", "d", "e"]);
    let mut more = gang.clone();
    (more.groups[0].count, more.groups[0].min) = (6, 6);
    let refusal = solve(&mut world, &more).unwrap_err();
    let Reason::Bound(bound) = &refusal.reason else { panic!("{:?}", refusal.reason) };
    assert_eq!((bound.wanted, bound.possible), (6, 4));
    assert_eq!(refusal.remedy, Some(Remedy::FewerMembers { group: "members".into(), fit: 4 }));
}

#[test]
fn a_segment_may_be_spread_over_parts_of_its_domain() {
    let mut world =
        world(&[("a", "b1/r1", 1), ("b", "b1/r2", 2), ("c", "b1", 1), ("d", "b2/r1", 3)]);
    let mut gang = gang(gpus(1), 4);
    segments(&mut gang, 4, BLOCK);
    assert_eq!(places(&mut world, &gang), ["a", "b", "b", "c"]);
}

#[test]
fn as_many_members_as_fit_are_placed_but_never_fewer_than_must_be() {
    let mut world = world(&[("a", "b1/r1", 2), ("b", "b1/r1", 3), ("c", "b2/r1", 4)]);
    let mut gang = gang(gpus(1), 20);
    gang.groups[0].min = 4;
    assert_eq!(solve(&mut world, &gang).unwrap().placements.len(), 9);
    gang.profile.topology = required(RACK);
    let plan = solve(&mut world, &gang).unwrap();
    assert_eq!(names(&world, &plan), ["a", "a", "b", "b", "b"]);
    gang.groups[0].min = 6;
    assert!(solve(&mut world, &gang).is_err());
}

#[test]
fn more_members_are_worth_more_than_the_preferred_level() {
    let mut world = world(&[("a", "b1/r1", 3), ("b", "b1/r2", 3), ("c", "b2/r1", 1)]);
    let mut gang = gang(gpus(1), 8);
    gang.groups[0].min = 2;
    gang.profile.topology.preferred = Some(RACK);
    assert_eq!(solve(&mut world, &gang).unwrap().placements.len(), 7);
}
