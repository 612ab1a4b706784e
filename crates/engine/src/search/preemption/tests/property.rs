//! Invariants of every plan, on small random clusters.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use super::fixtures::*;
use crate::gang::{Gang, Group, Segment};
use crate::plan::apply;
use crate::solve::{MinHops, NodeSet, Solver};
use crate::workload::{Member, MemberId, Profile, Workload};

/// A workload: priority, shape, minimum, movable, preemptible, required rack, nodes.
type Job = (i32, u8, u32, bool, bool, bool, Vec<u32>);

fn shape(number: u8) -> crate::Shape {
    match number {
        0 => share(300),
        1 => share(500),
        2 => whole(1),
        3 => whole(2),
        _ => whole(3),
    }
}

fn build(jobs: &[Job]) -> World {
    let mut world = world(&[2, 2, 1], 4);
    for (number, (priority, size, min, is_movable, is_preemptible, required, nodes)) in
        jobs.iter().enumerate()
    {
        let shape = shape(*size);
        let mut profile = Profile {
            priority: *priority,
            is_movable: *is_movable,
            is_preemptible: *is_preemptible,
            seconds_at_risk: u32::try_from(number).unwrap() * 7 % 5,
            ..Profile::new(format!("job{number}"))
        };
        let mut txn = world.clone();
        let fits = nodes.iter().all(|node| {
            let place = crate::pick::default_placement(&txn.cluster, NodeId(*node), &shape);
            place.is_some_and(|place| txn.cluster.place(&shape.resources, &place).is_ok())
        });
        let racks = nodes.iter().map(|node| world.topology.domain_of(NodeId(*node), RACK));
        let racks: std::collections::BTreeSet<_> = racks.collect();
        if *required && racks.len() == 1 {
            profile.topology.required = Some(RACK);
        }
        if fits {
            run(
                &mut world,
                profile,
                (*min).min(u32::try_from(nodes.len()).unwrap()),
                &shape,
                nodes,
            );
        }
    }
    world
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (
        0..3,
        0_u8..5,
        1_u32..4,
        any::<bool>(),
        prop::bool::weighted(0.8),
        any::<bool>(),
        prop::collection::vec(0_u32..5, 1..4),
    );
    prop::collection::vec(job, 0..14)
}

fn gang() -> impl Strategy<Value = Gang> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (0_u8..5, 1_u32..5, flags).prop_map(|(size, count, (in_rack, pairs, is_split, is_twice))| {
        let mut gang = Gang::new("new", shape(size), count);
        gang.profile.priority = 2;
        if in_rack && !pairs && is_split {
            // One subgroup whose members have different requests.
            gang.groups.push(Group::new("other", shape((size + 1) % 5).into(), 1));
            if is_twice {
                gang.groups.push(Group::new("second", shape(size).into(), 1));
                gang.groups.push(Group::new("second other", shape((size + 1) % 5).into(), 1));
            }
            for (number, group) in gang.groups.iter_mut().enumerate() {
                group.topology.required = Some(RACK);
                group.colocation_id = Some(u32::from(number > 1));
            }
        } else {
            gang.profile.topology.required = (in_rack && !pairs).then_some(RACK);
        }
        if pairs && count % 2 == 0 {
            gang.groups[0].segment = Some(Segment { size: 2, level: RACK });
        }
        gang
    })
}

fn members(world: &World) -> BTreeMap<MemberId, Member> {
    let all = world.workloads.iter().flat_map(|(id, workload)| {
        let members = (0..).zip(&workload.members);
        members.filter_map(move |(member, one)| {
            Some((MemberId { workload: id, member }, one.clone()?))
        })
    });
    all.collect()
}

fn check(before: &World, preemption_budget: &PreemptionBudget, gang: &Gang, plan: &Plan) {
    let mut after = before.clone();
    // Step by step through the cluster's own checks; the target of a move is free when it starts.
    let new = apply(&mut after, gang, plan).unwrap();
    assert!(u32::try_from(plan.moves.len()).unwrap() <= preemption_budget.moves);
    let disturbed = plan.moves.len() + plan.evictions.len();
    assert_eq!(plan.cost.of(CostTerm::PodsDisturbed), i64::try_from(disturbed).unwrap());
    let (old, now) = (members(before), members(&after));
    for (id, member) in &old {
        let workload = before.workloads.workload(id.workload).unwrap();
        if plan.evictions.contains(id) {
            assert!(preemption_budget.may_evict(&workload.profile));
            assert!(!now.contains_key(id));
            let left = after.workloads.workload(id.workload).map_or(0, Workload::member_count);
            let min = workload.min_members.min(workload.member_count());
            assert!(left == 0 || left >= min, "{left} of a gang of {min} are left");
        } else if let Some(step) = plan.moves.iter().find(|step| step.member == *id) {
            assert!(workload.profile.is_movable);
            assert_eq!(now[id].placement, step.to);
            assert_ne!(member.placement.node, step.to.node);
        } else {
            assert_eq!(now.get(id), Some(member), "who is not in the plan stays");
        }
    }
    for (_, workload) in after.workloads.iter() {
        if let Some(level) = workload.profile.topology.required {
            let node = |member: &Member| after.topology.domain_of(member.placement.node, level);
            let racks: Vec<_> = workload.members.iter().flatten().map(node).collect();
            assert!(racks.iter().all(|rack| rack.is_some() && *rack == racks[0]));
        }
    }
    let placed = after.workloads.workload(new).unwrap();
    assert_eq!(placed.member_count(), gang.count());
    for number in gang.groups.iter().filter_map(|group| group.colocation_id) {
        let is_of =
            |placed: &&Placed| gang.groups[placed.group as usize].colocation_id == Some(number);
        let rack = |one: &Placed| after.topology.domain_of(one.placement.node, RACK);
        let racks: std::collections::BTreeSet<_> =
            plan.placements.iter().filter(is_of).map(rack).collect();
        assert_eq!(racks.len(), 1, "one subgroup, one rack");
    }
    if let Some(segment) = gang.groups[0].segment {
        let rack = |member: &Option<Member>| {
            after.topology.domain_of(member.as_ref().unwrap().placement.node, segment.level)
        };
        let pairs = placed.members.chunks(2);
        assert!(pairs.into_iter().all(|pair| rack(&pair[0]) == rack(&pair[1])));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_plan_applies_and_disrupts_only_allowed_workloads(
        jobs in jobs(),
        gang in gang(),
        moves in 0_u32..6,
        below in prop::option::of(0..4_i32),
    ) {
        let mut world = build(&jobs);
        let preemption_budget = PreemptionBudget {
            moves,
            evictions: below.map(|below_priority| EvictionScope { below_priority, tenants: None }),
            steps: PreemptionBudget::STEPS,
        };
        let forbidden = NodeSet::new();
        let request = Request { gang: &gang, pinned: &[], forbidden: &forbidden };
        let before = snapshot(&world);
        let answer = plan(&mut world, &request, &preemption_budget, &MinHops);
        prop_assert_eq!(snapshot(&world), before);
        if let Ok(plan) = &answer {
            check(&world, &preemption_budget, &gang, plan);
        }
        // A request that fits without disruption disrupts nothing. Several subgroups placed one
        // after another may miss a fit, so they are excluded if the solver finds a plan.
        let free = Solver::default().solve(&mut world, &request, &MinHops);
        if free.is_ok() && gang.groups.len() <= 2 {
            let plan = answer.as_ref().unwrap();
            prop_assert!(plan.moves.is_empty() && plan.evictions.is_empty());
        }
        // Former pods leave no trace but the order of states, which decides nothing.
        let mut other = build(&jobs);
        let passing = run(&mut other, Profile::new("passing"), 1, &share(100), &[]);
        other.workloads.remove(passing);
        for node in 0..5 {
            other.cluster.set_open(NodeId(node), false).unwrap();
        }
        for node in (0..5).rev() {
            other.cluster.set_open(NodeId(node), true).unwrap();
        }
        prop_assert_eq!(plan(&mut other, &request, &preemption_budget, &MinHops), answer);
    }
}
