use super::*;
use crate::gang::Segment;
use crate::node::{NodeId, NodeSet};
use crate::plan::PlanResult;
use crate::planner;
use crate::preemption::PreemptionBudget;
use crate::preemption::fixtures::*;
use crate::solve::{MinHops, Pinned, Request, Solver};
use crate::workload::Profile;

/// Plans for the members that are not pinned; the world stays as it was.
fn plan(
    world: &mut World,
    gang: &Gang,
    pinned: &[Pinned],
    lost: &[u32],
    budget: &PreemptionBudget,
) -> PlanResult {
    let before = snapshot(world);
    let forbidden: NodeSet = lost.iter().copied().map(NodeId).collect();
    let request = Request { gang, pinned, forbidden: &forbidden };
    let answer = planner::admit(world, &mut Solver::default(), &request, budget, &MinHops, None);
    assert_eq!(snapshot(world), before);
    answer
}

fn start(world: &mut World, gang: &Gang) -> WorkloadId {
    let plan = plan(world, gang, &[], &[], &PreemptionBudget::none()).unwrap();
    apply(world, gang, &plan).unwrap()
}

/// The members of a workload, but those with these ranks.
fn pinned(world: &World, id: WorkloadId, but: &[u32]) -> Vec<Pinned> {
    let members = (0..).zip(&world.workloads.workload(id).unwrap().members);
    let staying = members.filter(|(rank, _)| !but.contains(rank));
    let pin = |(rank, member): (u32, &Option<Member>)| {
        Some(Pinned { rank, placement: member.as_ref()?.placement.clone() })
    };
    staying.filter_map(pin).collect()
}

#[test]
fn a_replaced_member_gives_back_what_it_held() {
    let mut world = world(&[3, 3], 4);
    let gang = in_a_rack("gang", 4, 2);
    let id = start(&mut world, &gang);
    let [Some(kept), Some(lost)] = nodes_of(&world, id)[..] else { panic!() };
    let others = pinned(&world, id, &[1]);
    let plan = plan(&mut world, &gang, &others, &[lost], &PreemptionBudget::none()).unwrap();
    let ranks: Vec<u32> = plan.placements.iter().map(|placed| placed.rank).collect();
    assert_eq!(ranks, [1]);
    apply(&mut world, &gang, &plan).unwrap();
    let [Some(still), Some(new)] = nodes_of(&world, id)[..] else { panic!() };
    assert_eq!(still, kept);
    assert_ne!(new, lost);
    let rack = |node| world.topology.domain_of(NodeId(node), RACK);
    assert_eq!(rack(new), rack(kept));
    assert_eq!(world.cluster.totals().used_milli, 8000);
}

#[test]
fn a_replacement_may_evict_in_the_gangs_own_rack() {
    let mut world = world(&[3, 3], 4);
    let mut gang = in_a_rack("gang", 4, 2);
    gang.profile.priority = 5;
    let shape = gang.groups[0].shape.as_ref().clone();
    let id = run(&mut world, gang.profile.clone(), 2, &shape, &[0, 1]);
    pod(&mut world, "low", 0, 2, 2);
    pod(&mut world, "elsewhere", 0, 2, 3);
    let others = pinned(&world, id, &[1]);
    let budget = PreemptionBudget::evictions_below(5);
    let plan = plan(&mut world, &gang, &others, &[1], &budget).unwrap();
    let low = world.workloads.named("low").unwrap();
    assert_eq!(plan.evictions, [MemberId { workload: low, member: 0 }]);
    apply(&mut world, &gang, &plan).unwrap();
    assert_eq!(nodes_of(&world, id), [Some(0), Some(2)]);
    assert!(world.workloads.workload(low).is_none(), "it has no members");
}

#[test]
fn gang_is_admitted_by_moves_or_preemption_only_if_needed() {
    let mut world = world(&[3], 4);
    pod(&mut world, "a", 0, 1, 0);
    pod(&mut world, "b", 0, 1, 1);
    let moves = PreemptionBudget::moves(9);
    let fits = Gang::new("fits", whole(4), 1);
    let free = plan(&mut world, &fits, &[], &[], &moves).unwrap();
    assert!(free.moves.is_empty());
    apply(&mut world, &fits, &free).unwrap();
    let mut next = Gang::new("next", whole(4), 1);
    next.profile.priority = 1;
    let moved = plan(&mut world, &next, &[], &[], &moves).unwrap();
    assert_eq!(moved.moves.len(), 1);
    let evicted = plan(&mut world, &next, &[], &[], &PreemptionBudget::evictions_below(1));
    let evicted = evicted.unwrap();
    assert_eq!((evicted.moves.len(), evicted.evictions.len()), (0, 1));
    apply(&mut world, &next, &moved).unwrap();
    assert_eq!(world.cluster.totals().used_milli, 10_000);
}

#[test]
fn a_plan_that_does_not_fit_any_more_changes_nothing() {
    let mut world = world(&[2], 4);
    pod(&mut world, "a", 0, 1, 0);
    pod(&mut world, "b", 0, 1, 1);
    let gang = Gang::new("new", whole(4), 1);
    let plan = plan(&mut world, &gang, &[], &[], &PreemptionBudget::moves(9)).unwrap();
    let late = pod(&mut world, "late", 0, 3, plan.moves[0].to.node.0);
    let before = snapshot(&world);
    assert!(matches!(apply(&mut world, &gang, &plan), Err(StalePlan::Cluster(_))));
    assert_eq!(snapshot(&world), before);
    let gone = Plan { evictions: vec![MemberId { workload: late, member: 7 }], ..Plan::default() };
    assert!(matches!(apply(&mut world, &gang, &gone), Err(StalePlan::NoMember(_))));
    assert_eq!(snapshot(&world), before);
}

#[test]
fn multi_group_gang_is_evicted_whole_and_its_groups_keep_their_domains() {
    let mut world = world(&[2, 2], 2);
    let mut gang = Gang::new("gang", whole(1), 3);
    gang.groups[0].min = 1;
    gang.groups.insert(0, Gang::new("", whole(1), 1).groups[0].clone());
    gang.groups[0].name = "leader".into();
    let id = start(&mut world, &gang);
    let coupling = world.workloads.workload(id).unwrap().coupling;
    assert_eq!((coupling.is_whole, coupling.is_fixed), (true, false));
    pod(&mut world, "other", 9, 2, 2);
    pod(&mut world, "another", 9, 2, 3);
    // Two members are above the minimum, but one of them might be the leader.
    let mut new = Gang::new("new", whole(1), 1);
    new.profile.priority = 1;
    let plan = plan(&mut world, &new, &[], &[], &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!(plan.evictions.len(), 4, "{plan:?}");
}

#[test]
fn segments_are_not_torn_apart_by_moves() {
    let mut world = world(&[1, 1], 4);
    let mut gang = Gang::new("gang", whole(1), 2);
    gang.groups[0].segment = Some(Segment { size: 2, level: RACK });
    let id = start(&mut world, &gang);
    assert!(world.workloads.workload(id).unwrap().coupling.is_fixed);
    let home = nodes_of(&world, id)[0].unwrap();
    let fixed = Profile { is_movable: false, priority: 9, ..Profile::new("fixed") };
    run(&mut world, fixed, 1, &whole(3), &[1 - home]);
    // Three GPUs are free, and would be on one node if a member left its rack.
    let wide = Gang::new("wide", whole(3), 1);
    let ask = |world: &mut World| plan(world, &wide, &[], &[], &PreemptionBudget::moves(9));
    assert!(ask(&mut world).is_err());
    // Two independent pods may be separated.
    let evictions = (0..2).map(|member| MemberId { workload: id, member }).collect();
    apply(&mut world, &gang, &Plan { evictions, ..Plan::default() }).unwrap();
    run(&mut world, Profile::new("loose"), 1, &whole(1), &[home, home]);
    assert_eq!(ask(&mut world).unwrap().moves.len(), 1);
    // A level that the gang requires as a whole is no tighter than its profile.
    let mut one = in_a_rack("one", 1, 2);
    one.groups[0].topology.required = Some(RACK);
    assert_eq!(Coupling::of(&one), Coupling::default());
}
