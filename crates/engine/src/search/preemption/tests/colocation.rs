//! Colocated groups.

use std::collections::BTreeSet;

use super::super::fixtures::*;
use super::super::*;
use super::{ask, with_priority};
use crate::gang::Gang;
use crate::plan::apply;

#[test]
fn groups_that_lie_together_get_a_rack_that_has_room_for_both() {
    // The first rack is cheaper to clear, but holds the first group alone.
    let mut world = world(&[1, 2], 4);
    for (name, node) in [("a", 0), ("b", 1), ("c", 2)] {
        pod(&mut world, name, 0, 4, node);
    }
    let mut gang = with_priority(1, Gang::new("new", whole(4), 1));
    gang.groups.push(crate::Group::new("other", share(500).into(), 1));
    for group in &mut gang.groups {
        group.topology.required = Some(RACK);
        group.colocation_id = Some(0);
    }
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    let nodes: Vec<_> = plan.placements.iter().map(|one| one.placement.node.0).collect();
    assert_eq!(nodes.len(), 2);
    assert!(nodes.iter().all(|node| [1, 2].contains(node)), "{nodes:?}");
}

/// A gang of subgroups of two members: one of a whole node, one of a share.
fn of_mixed_subgroups(count: u32) -> Gang {
    let mut gang = with_priority(1, Gang::new("new", whole(4), 1));
    gang.groups.clear();
    for number in 0..count {
        for (name, shape) in [("large", whole(4)), ("small", share(500))] {
            let mut group = crate::Group::new(format!("{name}-{number}"), shape.into(), 1);
            group.topology.required = Some(RACK);
            group.colocation_id = Some(number);
            gang.groups.push(group);
        }
    }
    gang
}

/// Fills all nodes except these.
fn fill_all_but(world: &mut World, but: &[u32]) {
    let count = u32::try_from(world.cluster.node_count()).unwrap();
    for node in (0..count).filter(|node| !but.contains(node)) {
        pod(world, &format!("p{node:03}"), 0, 4, node);
    }
}

fn racks_of(world: &World, plan: &Plan) -> Vec<BTreeSet<Option<DomainId>>> {
    let rack = |placed: &Placed| world.topology.domain_of(placed.placement.node, RACK);
    plan.placements.chunks(2).map(|pair| pair.iter().map(rack).collect()).collect()
}

#[test]
fn three_mixed_subgroups_get_the_racks_that_have_room_for_them() {
    // Each of twenty racks holds either group of a subgroup; only the last three hold both.
    let racks: Vec<u32> = (0..20).map(|rack| if rack < 17 { 1 } else { 2 }).collect();
    let mut world = world(&racks, 4);
    fill_all_but(&mut world, &[]);
    let gang = of_mixed_subgroups(3);
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!(plan.evictions.len(), 6);
    assert!(racks_of(&world, &plan).iter().all(|racks| racks.len() == 1), "{plan:?}");
    apply(&mut world, &gang, &plan).unwrap();
}

#[test]
fn as_many_mixed_subgroups_as_racks_all_fit() {
    let mut world = world(&[2; 6], 4);
    fill_all_but(&mut world, &[3]);
    let gang = of_mixed_subgroups(6);
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!(plan.evictions.len(), 11);
    assert!(racks_of(&world, &plan).iter().all(|racks| racks.len() == 1), "{plan:?}");
}

#[test]
fn mixed_subgroups_find_the_rack_that_is_free_wherever_it_is() {
    let mut world = world(&[2; 70], 4);
    fill_all_but(&mut world, &[100, 101]);
    let plan =
        ask(&mut world, &of_mixed_subgroups(2), &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!(plan.evictions.len(), 2, "one subgroup has a free rack: {plan:?}");
}

#[test]
fn what_many_ways_have_in_common_is_estimated_once() {
    let mut world = world(&[2; 40], 4);
    for node in 0..80 {
        for number in 0..4_i32 {
            pod(&mut world, &format!("p{node:02}-{number}"), -number, 1, node);
        }
    }
    let mut gang = of_mixed_subgroups(1);
    gang.groups.push(crate::Group::new("many", whole(1).into(), 64));
    let preemption_budget =
        PreemptionBudget { steps: 20_000, ..PreemptionBudget::evictions_below(1) };
    let plan = ask(&mut world, &gang, &preemption_budget).unwrap();
    assert_eq!(plan.evictions.len(), 69);
    // If the estimates are incomplete, the best of them is simulated.
    let preemption_budget = PreemptionBudget { steps: plan.steps / 4, ..preemption_budget };
    assert!(ask(&mut world, &gang, &preemption_budget).is_ok());
}

#[test]
fn the_runner_up_is_another_place_than_the_best() {
    let mut world = world(&[2; 3], 4);
    fill_all_but(&mut world, &[]);
    // The third rack is the most expensive.
    for node in [4, 5] {
        let name = format!("p{node:03}");
        let id = world.workloads.named(&name).unwrap();
        let pod = world.workloads.remove(id).unwrap();
        let member = pod.members[0].as_ref().unwrap();
        world.cluster.release(&member.shape.resources, &member.placement).unwrap();
        for number in 0..2 {
            self::pod(&mut world, &format!("{name}-{number}"), 0, 2, node);
        }
    }
    let gang = of_mixed_subgroups(1);
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    let best = world.topology.path(world.topology.leaf_domain(plan.placements[0].placement.node));
    let other = plan.runner_up.unwrap().place;
    assert!(["r0", "r1"].contains(&best.as_str()), "{best}");
    assert!(
        ["r0", "r1"].iter().any(|rack| other.starts_with(rack)) && !other.starts_with(&best),
        "{best}, {other}"
    );
}

#[test]
fn subgroup_with_a_single_fit_in_its_rack_disrupts_nothing() {
    let mut world = world(&[2], 4);
    run(&mut world, Profile::new("share"), 1, &share(300), &[1]);
    // The larger subgroup must be beside the share, or the others do not fit.
    let mut gang = Gang::new("new", whole(2), 2);
    gang.groups.push(crate::Group::new("larger", whole(3).into(), 1));
    for group in &mut gang.groups {
        group.topology.required = Some(RACK);
        group.colocation_id = Some(0);
    }
    let plan = ask(&mut world, &gang, &PreemptionBudget::none()).unwrap();
    assert_eq!(plan.placements.len(), 3);
}
