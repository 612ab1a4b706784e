//! Groups of different shapes.

use super::fixtures::*;
use crate::gang::Gang;
use crate::plan::{Reason, Scarce};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};
use crate::workload::TopologyConstraint;

fn cores(count: i64) -> Shape {
    Shape::new(Resources::of_pod(count * 1000, 0), GpuDemand::None)
}

fn of_two(a: crate::Group, b: crate::Group) -> Gang {
    let mut gang = gang(gpus(1), 1);
    gang.groups = vec![a, b];
    gang
}

#[test]
fn all_groups_are_placed_or_none() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 8)]);
    let small = group("leader", gpus(2), 2);
    let plan = solve(&mut world, &of_two(small.clone(), group("workers", gpus(6), 2))).unwrap();
    assert_eq!(plan.placements.len(), 4);
    let refusal = solve(&mut world, &of_two(small, group("workers", gpus(7), 2))).unwrap_err();
    let Reason::Bound(bound) = refusal.reason else { panic!("{:?}", refusal.reason) };
    assert_eq!(&*bound.group, "leader and workers");
    assert_eq!((bound.wanted, bound.possible, bound.scarce), (4, 3, Scarce::Capacity));
}

#[test]
fn the_more_demanding_group_is_placed_first_whatever_the_order() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 2)]);
    let plan = solve(&mut world, &of_two(group("s", gpus(1), 2), group("l", gpus(8), 1))).unwrap();
    assert_eq!(names(&world, &plan), ["b", "b", "a"]);
}

#[test]
fn members_above_one_groups_min_never_take_anothers_place() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 4)]);
    let mut greedy = group("greedy", gpus(4), 3);
    greedy.min = 1;
    let plan = solve(&mut world, &of_two(greedy, group("modest", gpus(1), 5))).unwrap();
    let groups: Vec<_> = plan.placements.iter().map(|one| one.group).collect();
    assert_eq!(groups, [0, 1, 1, 1, 1, 1]);
}

#[test]
fn each_group_keeps_its_own_level_within_the_gangs() {
    let mut world = world(&[
        ("a", "b1/r1", 8),
        ("b", "b1/r1", 4),
        ("c", "b1/r2", 8),
        ("d", "b1/r2", 8),
        ("e", "b2/r1", 8),
        ("f", "b2/r1", 8),
        ("g", "b2/r1", 4),
    ]);
    let mut prefill = group("prefill", gpus(8), 2);
    let mut decode = group("decode", gpus(4), 3);
    prefill.topology = required(RACK);
    decode.topology = TopologyConstraint { required: Some(RACK), preferred: None };
    let mut gang = of_two(prefill, decode);
    gang.profile.topology = required(BLOCK);
    let plan = solve(&mut world, &gang).unwrap();
    assert_eq!(
        counts(&world, &plan),
        [("a", 2), ("b", 1), ("c", 1), ("d", 1)].map(|(n, c)| (n.to_owned(), c)).into()
    );
}

#[test]
fn a_group_makes_way_for_another_with_less_choice() {
    // The larger group fits both racks and prefers the fuller one, which is the only one for the
    // other.
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r2", 8), ("c", "b1/r2", 8)]);
    let mut large =
        group("large", Shape::new(Resources::of_pod(1000, 0), GpuDemand::Whole { count: 6 }), 1);
    large.topology = required(RACK);
    let mut small = group("small", gpus(2), 4);
    small.topology = required(RACK);
    // Without the large one, r1 holds four small ones.
    world.cluster.set_open(world.cluster.node_named("c").unwrap(), false).unwrap();
    let plan = solve(&mut world, &of_two(large, small)).unwrap();
    assert_eq!(plan.placements.len(), 5);
}

#[test]
fn groups_without_gpus_are_placed_beside_those_with() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 0)]);
    let plan =
        solve(&mut world, &of_two(group("driver", cores(50), 1), group("w", gpus(8), 1))).unwrap();
    assert_eq!(plan.placements.len(), 2);
    let refusal = solve(&mut world, &of_two(group("driver", cores(65), 1), group("w", gpus(8), 1)))
        .unwrap_err();
    let Reason::Bound(bound) = refusal.reason else { panic!("{:?}", refusal.reason) };
    assert_eq!((&*bound.group, bound.scarce), ("driver", Scarce::Capacity));
}

#[test]
fn what_greed_misses_the_complete_search_finds() {
    // Shares of 700 and 300: two 300s on one GPU leave no slots for both 700s.
    let mut world = world(&[("a", "b1/r1", 2)]);
    let share = |milli| Shape::new(Resources::of_pod(1000, 0), GpuDemand::of(1, milli));
    let mut gang = of_two(group("x", share(600), 1), group("y", share(500), 2));
    assert_eq!(solve(&mut world, &gang).unwrap().placements.len(), 3);
    gang.groups.push(group("z", share(400), 1));
    assert_eq!(solve(&mut world, &gang).unwrap().placements.len(), 4);
    gang.groups[2] = group("z", share(300), 1);
    gang.groups.push(group("w", share(200), 1));
    let refusal = solve(&mut world, &gang).unwrap_err();
    assert!(matches!(refusal.reason, Reason::Bound(_)), "{:?}", refusal.reason);
}

#[test]
fn large_gang_finds_racks_that_hold_its_groups_together() {
    // Fuller racks hold either group, but not both.
    let racks: Vec<String> = (0..9).map(|rack| format!("b1/r{rack}")).collect();
    let mut specs: Vec<(String, &str)> = Vec::new();
    for (number, rack) in racks.iter().enumerate() {
        let count = if number < 7 { 40 } else { 41 };
        specs.extend((0..count).map(|node| (format!("n{number}-{node:02}"), rack.as_str())));
    }
    let specs: Vec<(&str, &str, u16)> =
        specs.iter().map(|(name, rack)| (name.as_str(), *rack, 8)).collect();
    let mut world = world(&specs);
    let mut large = group("large", gpus(7), 40);
    let mut small = group("small", gpus(2), 1);
    let mut others = group("others", gpus(1), 240);
    for group in [&mut large, &mut small] {
        group.topology = required(RACK);
        group.colocation_id = Some(0);
    }
    others.shape = cores(1).into();
    let mut gang = gang(gpus(1), 1);
    gang.groups = vec![large, small, others];
    let plan = solve(&mut world, &gang).unwrap();
    let of_pair = plan.placements.iter().filter(|one| one.group < 2);
    let racks: std::collections::BTreeSet<_> =
        of_pair.map(|one| world.topology.domain_of(one.placement.node, RACK)).collect();
    assert_eq!(racks.len(), 1);
}
