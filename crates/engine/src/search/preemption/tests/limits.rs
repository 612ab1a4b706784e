//! Limits on evictions.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "all numbers of these cases are below a hundred"
)]

use super::super::fixtures::*;
use super::super::*;
use super::exhaustive::Numbers;
use super::{ask, with_priority};
use crate::gang::Gang;
use crate::plan::Scarce;
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};
use crate::workload::{LimitId, Profile};

/// A single pod under a limit.
fn limited(world: &mut World, name: &str, gpus: u16, node: u32, limit: LimitId) {
    let workload = pod(world, name, 0, gpus, node);
    world.workloads.set_limit(MemberId { workload, member: 0 }, Some(limit));
}

fn names(world: &World, plan: &Plan) -> Vec<String> {
    let workload = |id: &MemberId| world.workloads.workload(id.workload).unwrap();
    let mut names: Vec<String> =
        plan.evictions.iter().map(|id| workload(id).profile.name.to_string()).collect();
    names.sort();
    names
}

#[test]
fn victims_of_one_limit_on_several_nodes_are_counted_together() {
    // Each node offers a victim of the limit, and one that costs more.
    let mut world = world(&[3], 2);
    let limit = world.workloads.eviction_limits.add("web", 1);
    for node in 0..3 {
        limited(&mut world, &format!("web-{node}"), 1, node, limit);
        pod(&mut world, &format!("other-{node}"), 5, 1, node);
    }
    let gang = with_priority(10, Gang::new("new", whole(1), 3));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(10)).unwrap();
    let victims = names(&world, &plan);
    assert_eq!(victims.iter().filter(|name| name.starts_with("web")).count(), 1, "{victims:?}");
    assert_eq!(victims.len(), 3);
    world.workloads.eviction_limits.set_allowance(limit, 3);
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(10)).unwrap();
    assert_eq!(names(&world, &plan), ["web-0", "web-1", "web-2"]);
}

#[test]
fn an_exhausted_or_unknown_limit_protects() {
    let mut world = world(&[1], 2);
    let limit = world.workloads.eviction_limits.add("web", 0);
    limited(&mut world, "web", 2, 0, limit);
    let gang = with_priority(10, Gang::new("new", whole(2), 1));
    let everything = PreemptionBudget { moves: 9, ..PreemptionBudget::evictions_below(10) };
    let refusal = ask(&mut world, &gang, &everything).unwrap_err();
    assert!(matches!(refusal.reason, Reason::Bound(_)), "{refusal:?}");
    world.workloads.eviction_limits.set_allowance(limit, 1);
    assert!(ask(&mut world, &gang, &everything).is_ok());
    world.workloads.eviction_limits.remove(limit);
    assert!(ask(&mut world, &gang, &everything).is_err());
}

#[test]
fn moves_count_against_limits() {
    let mut world = world(&[3], 2);
    let limit = world.workloads.eviction_limits.add("web", 1);
    for node in [0, 1] {
        limited(&mut world, &format!("web-{node}"), 1, node, limit);
    }
    pod(&mut world, "fixed", 99, 1, 2);
    let of_two = |count| Gang::new("new", whole(2), count);
    assert_eq!(ask(&mut world, &of_two(1), &PreemptionBudget::moves(9)).unwrap().moves.len(), 1);
    let refusal = ask(&mut world, &of_two(2), &PreemptionBudget::moves(9));
    assert!(refusal.is_err(), "{refusal:?}");
}

#[test]
fn a_gang_that_leaves_whole_needs_all_of_its_limits() {
    for (allowance, is_victim) in [(1, false), (2, true)] {
        let mut world = world(&[2], 2);
        let limit = world.workloads.eviction_limits.add("train", allowance);
        let id = run(&mut world, Profile::new("train"), 2, &whole(2), &[0, 1]);
        for member in 0..2 {
            world.workloads.set_limit(MemberId { workload: id, member }, Some(limit));
        }
        let gang = with_priority(10, Gang::new("new", whole(2), 1));
        let answer = ask(&mut world, &gang, &PreemptionBudget::evictions_below(10));
        assert_eq!(answer.is_ok(), is_victim, "{answer:?}");
    }
}

#[test]
fn the_largest_victims_are_found_among_more_than_can_be_tried() {
    // Twelve pods of different size: more sets than are enumerated.
    let mut world = world(&[1], 1);
    let limit = world.workloads.eviction_limits.add("web", 2);
    for number in 0..12_u32 {
        let cpu = 1000 + 500 * i64::from(number);
        let shape = Shape::new(Resources::of_pod(cpu, 1000), GpuDemand::None);
        let profile =
            Profile { seconds_at_risk: number, ..Profile::new(format!("web-{number:02}")) };
        let workload = run(&mut world, profile, 1, &shape, &[0]);
        world.workloads.set_limit(MemberId { workload, member: 0 }, Some(limit));
    }
    let free = world.cluster.free(NodeId(0)).cpu_milli;
    let needs = |cpu| {
        let shape = Shape::new(Resources::of_pod(free + cpu, 1000), GpuDemand::None);
        with_priority(10, Gang::new("new", shape, 1))
    };
    let below = PreemptionBudget::evictions_below(10);
    let plan = ask(&mut world, &needs(12_500), &below).unwrap();
    assert_eq!(names(&world, &plan), ["web-10", "web-11"]);
    assert!(ask(&mut world, &needs(12_501), &below).is_err());
    assert_eq!(ask(&mut world, &needs(1000), &below).unwrap().evictions.len(), 1);
}

#[test]
fn limits_of_others_do_not_end_the_sharing_of_node_options() {
    // Pairs of nodes with gangs, and two nodes on which evictions do not help.
    let steps = |is_limited: bool| {
        let mut world = world(&[62], 2);
        for pair in 0..30 {
            let profile = Profile::new(format!("train-{pair:02}"));
            run(&mut world, profile, 2, &whole(2), &[2 * pair, 2 * pair + 1]);
        }
        let limit = world.workloads.eviction_limits.add("web", 1);
        for node in [60, 61] {
            pod(&mut world, &format!("fixed-{node}"), 99, 1, node);
            let workload = pod(&mut world, &format!("web-{node}"), 0, 1, node);
            let member = MemberId { workload, member: 0 };
            world.workloads.set_limit(member, Some(limit).filter(|_| is_limited));
        }
        let gang = with_priority(10, Gang::new("new", whole(2), 2));
        let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(10)).unwrap();
        assert_eq!(plan.evictions.len(), 2);
        plan.steps
    };
    assert_eq!(steps(true), steps(false));
}

#[test]
fn the_steps_of_a_gang_under_many_tight_limits_are_bounded() {
    // The eight pods of a node are of different workloads, each of which may lose one pod.
    let nodes = 100;
    let mut world = world(&[nodes], 8);
    for number in 0..nodes {
        let limit = world.workloads.eviction_limits.add(format!("web-{number}"), 1);
        for replica in 0..8 {
            let name = format!("web-{number}-{replica}");
            limited(&mut world, &name, 1, (number + replica) % nodes, limit);
        }
    }
    let gang = with_priority(10, Gang::new("new", whole(1), 64));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(10)).unwrap();
    assert_eq!(plan.evictions.len(), 64);
    assert!(plan.steps < PreemptionBudget::STEPS / 8, "{} steps", plan.steps);
}

#[test]
fn a_refusal_for_limits_on_evictions_says_so() {
    let mut world = world(&[2], 2);
    let limit = world.workloads.eviction_limits.add("web", 1);
    for number in 0..4 {
        limited(&mut world, &format!("web-{number}"), 1, number / 2, limit);
    }
    // Two GPUs would be needed, and one can be freed.
    let of = |gpus, count| with_priority(10, Gang::new("new", whole(gpus), count));
    let below = PreemptionBudget::evictions_below(10);
    let Reason::Bound(bound) = ask(&mut world, &of(1, 2), &below).unwrap_err().reason else {
        panic!("not proved");
    };
    assert_eq!((bound.wanted, bound.possible, bound.scarce), (2, 1, Scarce::Evictions));
    // Two can be freed of four that are not together: no bound sees it.
    let other = world.workloads.eviction_limits.add("other", 1);
    for (name, limit) in [("web-0", limit), ("web-1", limit), ("web-2", other), ("web-3", other)] {
        let workload = world.workloads.named(name).unwrap();
        world.workloads.set_limit(MemberId { workload, member: 0 }, Some(limit));
    }
    assert!(ask(&mut world, &of(1, 2), &below).is_ok());
    let refusal = ask(&mut world, &of(2, 1), &below).unwrap_err();
    assert_eq!(refusal.reason, Reason::EvictionLimits);
    // If the steps are spent, that is the reason.
    let spent = PreemptionBudget { steps: 0, ..below };
    let refusal = ask(&mut world, &of(2, 1), &spent).unwrap_err();
    assert!(matches!(refusal.reason, Reason::Steps { .. }), "{refusal:?}");
}

/// A pod of a case, with its node, and the index of its limit.
struct Pod {
    node: usize,
    gpus: u16,
    cpu_milli: i64,
    priority: i32,
    is_preemptible: bool,
    limit: Option<usize>,
}

/// What victims cost: the highest priority, the number, the sum of priorities, the GPUs.
type Cost = (i32, usize, i32, u16);

/// The cheapest victims within limits by trying all sets on each node.
fn cheapest(
    world: &World,
    pods: &[Pod],
    left: &[usize],
    gpus: u16,
    cpu_milli: i64,
) -> Option<Cost> {
    let mut best = None;
    for node in world.cluster.nodes() {
        let free = world.cluster.gpus(node).iter().filter(|gpu| gpu.is_idle()).count() as u16;
        let free_cpu = world.cluster.free(node).cpu_milli;
        let here: Vec<&Pod> = pods
            .iter()
            .filter(|pod| pod.node == node.0 as usize && pod.is_preemptible && pod.priority < 9)
            .collect();
        for set in 0..1_u32 << here.len() {
            let gone = || (0..here.len()).filter(|pod| set >> pod & 1 == 1).map(|pod| here[pod]);
            let is_within = left.iter().enumerate().all(|(limit, left)| {
                gone().filter(|pod| pod.limit == Some(limit)).count() <= *left
            });
            let fits = free + gone().map(|pod| pod.gpus).sum::<u16>() >= gpus
                && free_cpu + gone().map(|pod| pod.cpu_milli).sum::<i64>() >= cpu_milli;
            if is_within && fits {
                let priorities = || gone().map(|pod| pod.priority);
                let highest = priorities().max().unwrap_or(i32::MIN);
                let gpus = gone().map(|pod| pod.gpus).sum();
                let cost = (highest, gone().count(), priorities().sum(), gpus);
                best = Some(best.map_or(cost, |best: Cost| best.min(cost)));
            }
        }
    }
    best
}

#[test]
fn the_cheapest_victims_within_limits_are_found_for_a_single_pod() {
    let mut numbers = Numbers(20_261_125);
    let (mut found, mut refused) = (0, 0);
    for number in 0..500 {
        let mut world = world(&[2], 4);
        let left: Vec<usize> = (0..2).map(|_| numbers.below(3) as usize).collect();
        let limits = left.iter().enumerate().map(|(number, left)| {
            world.workloads.eviction_limits.add(format!("limit{number}"), *left as u32)
        });
        let limits: Vec<LimitId> = limits.collect();
        let mut pods = Vec::new();
        for name in 0..12 {
            let one = Pod {
                node: numbers.below(2) as usize,
                gpus: numbers.below(3) as u16,
                cpu_milli: 1000 + 6000 * numbers.below(4) as i64,
                priority: numbers.below(4) as i32,
                is_preemptible: numbers.below(6) > 0,
                limit: Some(numbers.below(3) as usize).filter(|limit| *limit < 2),
            };
            let demand =
                if one.gpus == 0 { GpuDemand::None } else { GpuDemand::of(one.gpus, 1000) };
            let shape = Shape::new(Resources::of_pod(one.cpu_milli, 1000), demand);
            let node = NodeId(one.node as u32);
            if crate::pick::default_placement(&world.cluster, node, &shape).is_none() {
                continue;
            }
            let profile = Profile {
                priority: one.priority,
                is_preemptible: one.is_preemptible,
                ..Profile::new(format!("p{name}"))
            };
            let workload = run(&mut world, profile, 1, &shape, &[node.0]);
            let limit = one.limit.map(|limit| limits[limit]);
            world.workloads.set_limit(MemberId { workload, member: 0 }, limit);
            pods.push(one);
        }
        let (gpus, cpu_milli) =
            (1 + numbers.below(4) as u16, 1000 + 9000 * numbers.below(6) as i64);
        let shape = Shape::new(Resources::of_pod(cpu_milli, 1000), GpuDemand::of(gpus, 1000));
        let gang = with_priority(9, Gang::new("new", shape, 1));
        let best = cheapest(&world, &pods, &left, gpus, cpu_milli);
        let answer = ask(&mut world, &gang, &PreemptionBudget::evictions_below(9));
        let cost = answer.as_ref().ok().map(|plan| {
            let gone =
                || plan.evictions.iter().map(|id| world.workloads.workload(id.workload).unwrap());
            let priorities = || gone().map(|gone| gone.profile.priority);
            let gpus = gone().map(|gone| (gone.gpu_milli() / 1000) as u16).sum();
            (priorities().max().unwrap_or(i32::MIN), gone().count(), priorities().sum(), gpus)
        });
        assert_eq!(cost, best, "case {number}: {answer:?}");
        found += usize::from(best.is_some_and(|best| best.1 > 0));
        refused += usize::from(best.is_none());
    }
    assert!(found > 100 && refused > 50, "{found} found, {refused} refused");
}
