use super::*;
use crate::node::NodeId;
use crate::plan::Plan;
use crate::preemption::fixtures::*;
use crate::solve::MinHops;
use crate::workload::Profile;

fn start(world: &mut World, gang: &Gang) -> WorkloadId {
    let plan = preempt_for(world, &mut context(&mut Solver::default()), gang).unwrap();
    apply(world, gang, &plan).unwrap()
}

fn context(solver: &mut Solver) -> RepairContext<'_> {
    RepairContext { solver, cost_model: &MinHops }
}

fn replace(
    world: &mut World,
    gang: &Gang,
    failed: &[u32],
    lost: &[u32],
    limits: &RepairLimits,
) -> PlanResult {
    let before = snapshot(world);
    let failed = failed.iter().copied().collect();
    let lost = lost.iter().copied().map(NodeId).collect();
    let mut solver = Solver::default();
    let answer = replace_failed(world, &mut context(&mut solver), gang, &failed, &lost, limits);
    assert_eq!(snapshot(world), before);
    answer
}

fn ranks(plan: &Plan) -> Vec<u32> {
    plan.placements.iter().map(|placed| placed.rank).collect()
}

#[test]
fn a_failed_member_is_replaced_in_the_gangs_rack() {
    let mut world = world(&[3, 3], 4);
    let gang = in_a_rack("gang", 4, 2);
    let id = start(&mut world, &gang);
    let [Some(kept), Some(lost)] = nodes_of(&world, id)[..] else { panic!() };
    world.cluster.set_open(NodeId(lost), false).unwrap();
    let plan = replace(&mut world, &gang, &[], &[lost], &RepairLimits::none()).unwrap();
    assert_eq!(ranks(&plan), [1]);
    apply(&mut world, &gang, &plan).unwrap();
    let [Some(still), Some(new)] = nodes_of(&world, id)[..] else { panic!() };
    assert_eq!(still, kept);
    assert_ne!(new, lost);
    let rack = |node| world.topology.domain_of(NodeId(node), RACK);
    assert_eq!(rack(new), rack(kept));
    assert_eq!(world.cluster.totals().used_milli, 8000, "what the failed one had is given back");
}

#[test]
fn two_failures_are_repaired_together_without_eviction() {
    let mut world = world(&[5], 4);
    let gang = in_a_rack("gang", 4, 3);
    let id = start(&mut world, &gang);
    let nodes: Vec<u32> = nodes_of(&world, id).into_iter().flatten().collect();
    let lost = [nodes[0], nodes[2]];
    let plan = replace(&mut world, &gang, &[], &lost, &RepairLimits::none()).unwrap();
    assert_eq!(ranks(&plan), [0, 2]);
    assert!(plan.evictions.is_empty() && plan.moves.is_empty());
    apply(&mut world, &gang, &plan).unwrap();
    let now: Vec<u32> = nodes_of(&world, id).into_iter().flatten().collect();
    assert_eq!((now.len(), now[1]), (3, nodes[1]));
    assert!(lost.iter().all(|lost| !now.contains(lost)));
}

#[test]
fn a_failed_process_may_come_back_to_its_own_node() {
    let mut world = world(&[2], 4);
    let gang = in_a_rack("gang", 4, 2);
    let id = start(&mut world, &gang);
    let before = nodes_of(&world, id);
    let plan = replace(&mut world, &gang, &[1], &[], &RepairLimits::none()).unwrap();
    apply(&mut world, &gang, &plan).unwrap();
    assert_eq!(nodes_of(&world, id), before);
}

#[test]
fn gang_moves_if_allowed_when_replacements_do_not_fit_beside_it() {
    let mut world = world(&[2, 3], 4);
    let gang = in_a_rack("gang", 4, 2);
    pod(&mut world, "other", 9, 1, 4);
    let shape = gang.groups[0].shape.as_ref().clone();
    let id = run(&mut world, gang.profile.clone(), 2, &shape, &[0, 1]);
    let refusal = replace(&mut world, &gang, &[], &[0], &RepairLimits::none()).unwrap_err();
    let Reason::Bound(bound) = &refusal.reason else { panic!("{refusal:?}") };
    assert_eq!(bound.within.as_deref(), Some("r0"), "{bound}");
    let limits = RepairLimits { may_move_all: true, ..RepairLimits::none() };
    let plan = replace(&mut world, &gang, &[], &[0], &limits).unwrap();
    assert_eq!((ranks(&plan), plan.cost.of(CostTerm::PodsDisturbed)), (vec![0, 1], 1));
    apply(&mut world, &gang, &plan).unwrap();
    assert_eq!(nodes_of(&world, id), [Some(2), Some(3)]);
    assert_eq!(world.cluster.totals().used_milli, 9000);
    // Without another rack the first reason is reported.
    let refusal = replace(&mut world, &gang, &[], &[2, 4], &limits);
    let moved = refusal.unwrap();
    assert_eq!(moved.placements.len(), 2, "back to the first rack");
    let refusal = replace(&mut world, &gang, &[], &[0, 2, 4], &limits).unwrap_err();
    assert!(refusal.reason.to_string().contains("in r1"), "{}", refusal.reason);
}

#[test]
fn a_replacement_may_evict_in_the_gangs_own_rack() {
    let mut world = world(&[3, 3], 4);
    let gang = {
        let mut gang = in_a_rack("gang", 4, 2);
        gang.profile.priority = 5;
        gang
    };
    let shape = gang.groups[0].shape.as_ref().clone();
    let id = run(&mut world, gang.profile.clone(), 2, &shape, &[0, 1]);
    pod(&mut world, "low", 0, 2, 2);
    pod(&mut world, "elsewhere", 0, 2, 3);
    let limits = RepairLimits {
        preemption_budget: PreemptionBudget::evictions_below(5),
        may_move_all: true,
    };
    let plan = replace(&mut world, &gang, &[], &[1], &limits).unwrap();
    let low = world.workloads.named("low").unwrap();
    assert_eq!(plan.evictions, [MemberId { workload: low, member: 0 }]);
    apply(&mut world, &gang, &plan).unwrap();
    assert_eq!(nodes_of(&world, id), [Some(0), Some(2)]);
}

#[test]
fn late_members_follow_the_gang() {
    let mut world = world(&[2, 3], 4);
    let mut gang = in_a_rack("gang", 4, 3);
    gang.groups[0].min = 1;
    let shape = gang.groups[0].shape.as_ref().clone();
    let id = run(&mut world, gang.profile.clone(), 1, &shape, &[3]);
    let mut solver = Solver::default();
    let plan =
        late_members(&mut world, &mut context(&mut solver), &gang, &PreemptionBudget::none())
            .unwrap();
    assert_eq!(ranks(&plan), [1, 2]);
    apply(&mut world, &gang, &plan).unwrap();
    let mut nodes = nodes_of(&world, id);
    nodes.sort_unstable();
    assert_eq!(nodes, [Some(2), Some(3), Some(4)]);
}

#[test]
fn a_workload_grows_beside_its_members_by_as_many_as_asked() {
    let mut world = world(&[2, 4], 4);
    let mut gang = in_a_rack("gang", 4, 4);
    gang.groups[0].min = 1;
    let shape = gang.groups[0].shape.as_ref().clone();
    let id = run(&mut world, gang.profile.clone(), 1, &shape, &[2]);
    let mut solver = Solver::default();
    let mut by = |world: &mut World, count, preemption_budget: &PreemptionBudget| {
        grow(world, &mut context(&mut solver), &gang, 0, count, preemption_budget)
    };
    let plan = by(&mut world, 2, &PreemptionBudget::none()).unwrap();
    assert_eq!(ranks(&plan), [1, 2]);
    apply(&mut world, &gang, &plan).unwrap();
    assert_eq!(world.workloads.workload(id).unwrap().member_count(), 3);
    assert!(nodes_of(&world, id).into_iter().flatten().all(|node| node >= 2));
    // Two more do not fit its rack, though two nodes are idle elsewhere.
    assert!(by(&mut world, 2, &PreemptionBudget::none()).is_err());
    // Beyond the count it grows at its end, by moving a pod if that is allowed.
    let last = nodes_of(&world, id);
    let idle = (2..6).find(|node| !last.contains(&Some(*node))).unwrap();
    pod(&mut world, "low", 0, 1, idle);
    assert!(by(&mut world, 1, &PreemptionBudget::none()).is_err());
    let plan = by(&mut world, 1, &PreemptionBudget::moves(1)).unwrap();
    assert_eq!((ranks(&plan), plan.moves.len()), (vec![3], 1));
    apply(&mut world, &gang, &plan).unwrap();
}

#[test]
fn gang_is_admitted_by_moves_or_preemption_only_if_needed() {
    let mut world = world(&[3], 4);
    pod(&mut world, "a", 0, 1, 0);
    pod(&mut world, "b", 0, 1, 1);
    let mut solver = Solver::default();
    let fits = Gang::new("fits", whole(4), 1);
    let plan = admit_by_defragmentation(&mut world, &mut context(&mut solver), &fits, 9).unwrap();
    assert!(plan.moves.is_empty());
    apply(&mut world, &fits, &plan).unwrap();
    let mut next = Gang::new("next", whole(4), 1);
    next.profile.priority = 1;
    let moved = admit_by_defragmentation(&mut world, &mut context(&mut solver), &next, 9).unwrap();
    assert_eq!(moved.moves.len(), 1);
    let evicted = preempt_for(&mut world, &mut context(&mut solver), &next).unwrap();
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
    let mut solver = Solver::default();
    let plan = admit_by_defragmentation(&mut world, &mut context(&mut solver), &gang, 9).unwrap();
    let late = pod(&mut world, "late", 0, 3, plan.moves[0].to.node.0);
    let before = snapshot(&world);
    assert!(matches!(apply(&mut world, &gang, &plan), Err(StalePlan::Cluster(_))));
    assert_eq!(snapshot(&world), before);
    let gone = Plan { evictions: vec![MemberId { workload: late, member: 7 }], ..Plan::default() };
    assert!(matches!(apply(&mut world, &gang, &gone), Err(StalePlan::NoMember(_))));
    assert_eq!(snapshot(&world), before);
}

#[test]
fn defragmentation_frees_nodes_and_stops_without_gain() {
    let mut world = world(&[2, 2], 4);
    for node in 0..4 {
        pod(&mut world, &format!("p{node}"), 0, 1, node);
    }
    let before = snapshot(&world);
    let plan = defragment(&mut world, 99, PreemptionBudget::STEPS);
    assert_eq!(snapshot(&world), before);
    assert_eq!(plan.moves.len(), 3, "{plan:?}");
    apply_moves(&mut world, &plan).unwrap();
    let used = |node: u32| {
        let gpus = world.cluster.gpus(NodeId(node));
        gpus.iter().filter(|gpu| !gpu.is_unused()).count()
    };
    assert_eq!((0..4).map(used).filter(|used| *used == 4).count(), 1);
    assert!(defragment(&mut world, 99, PreemptionBudget::STEPS).moves.is_empty());
}

#[test]
fn defragmentation_keeps_its_budget_and_skips_immovable_pods() {
    let mut world = world(&[3], 2);
    for node in 0..2 {
        run(&mut world, Profile::new(format!("s{node}")), 1, &share(500), &[node]);
    }
    let fixed = Profile { is_movable: false, ..Profile::new("fixed") };
    run(&mut world, fixed, 1, &share(300), &[2]);
    let plan = defragment(&mut world, 1, PreemptionBudget::STEPS);
    assert_eq!(plan.moves.len(), 1);
    let all = defragment(&mut world, 9, PreemptionBudget::STEPS);
    let fixed = world.workloads.named("fixed").unwrap();
    assert!(all.moves.iter().all(|step| step.member.workload != fixed));
    assert!(defragment(&mut world, 0, PreemptionBudget::STEPS).moves.is_empty());
}

#[test]
fn a_running_workload_tells_its_groups() {
    let mut world = world(&[2], 4);
    let id = run(&mut world, Profile::new("two"), 2, &whole(1), &[0, 0]);
    let large = crate::workload::Member {
        shape: std::sync::Arc::new(whole(2)),
        placement: crate::pick::default_placement(&world.cluster, NodeId(1), &whole(2)).unwrap(),
    };
    world.cluster.place(&large.shape.resources, &large.placement).unwrap();
    world.workloads.set_member(MemberId { workload: id, member: 3 }, Some(large));
    let gang = gang_of(world.workloads.workload(id).unwrap());
    let counts: Vec<_> = gang.groups.iter().map(|group| (group.count, group.min)).collect();
    assert_eq!(counts, [(3, 2), (1, 0)]);
}

#[test]
fn failed_member_without_a_new_place_releases_its_resources() {
    let mut world = world(&[4], 1);
    let mut gang = Gang::new("gang", whole(1), 4);
    gang.groups[0].min = 3;
    let shape = gang.groups[0].shape.as_ref().clone();
    let id = run(&mut world, gang.profile.clone(), 3, &shape, &[0, 1, 2, 3]);
    // A node is lost, and a process on another fails: one slot for two members, which is enough.
    let plan = replace(&mut world, &gang, &[1], &[0], &RepairLimits::none()).unwrap();
    assert_eq!(ranks(&plan), [0]);
    assert_eq!(plan.evictions, [MemberId { workload: id, member: 1 }]);
    assert_eq!(plan.cost.of(CostTerm::PodsDisturbed), 0, "who is dead is not disturbed");
    apply(&mut world, &gang, &plan).unwrap();
    assert_eq!(nodes_of(&world, id), [Some(1), None, Some(2), Some(3)]);
    assert_eq!(world.cluster.totals().used_milli, 3000, "the dead hold nothing");
    // No member has to be placed: the next one that fails leaves all the same.
    gang.groups[0].min = 2;
    let plan = replace(&mut world, &gang, &[], &[1, 0], &RepairLimits::none()).unwrap();
    assert!(plan.placements.is_empty());
    apply(&mut world, &gang, &plan).unwrap();
    assert_eq!(nodes_of(&world, id), [None, None, Some(2), Some(3)]);
}

#[test]
fn restarted_gang_with_fewer_members_leaves_none_behind() {
    let mut world = world(&[3, 2], 1);
    let mut gang = in_a_rack("gang", 1, 3);
    gang.groups[0].min = 2;
    let shape = gang.groups[0].shape.as_ref().clone();
    let id = run(&mut world, gang.profile.clone(), 2, &shape, &[0, 1, 2]);
    let limits = RepairLimits { may_move_all: true, ..RepairLimits::none() };
    let plan = replace(&mut world, &gang, &[], &[0, 1], &limits).unwrap();
    assert_eq!((ranks(&plan).len(), plan.evictions.len()), (2, 1));
    apply(&mut world, &gang, &plan).unwrap();
    assert_eq!(nodes_of(&world, id), [Some(3), Some(4), None]);
    assert_eq!(world.cluster.totals().used_milli, 2000);
}

#[test]
fn growth_that_makes_no_sense_is_refused() {
    let mut world = world(&[3], 4);
    let mut gang = Gang::new("gang", whole(1), 2);
    start(&mut world, &gang);
    let ask = |world: &mut World, gang: &Gang, group, by| {
        let mut solver = Solver::default();
        let answer =
            grow(world, &mut context(&mut solver), gang, group, by, &PreemptionBudget::none());
        match answer {
            Err(Refusal { reason: Reason::Request(error), .. }) => Some(error),
            _ => None,
        }
    };
    assert!(ask(&mut world, &gang, 0, 1).is_none());
    let error = ask(&mut world, &gang, 0, u32::MAX).unwrap();
    assert!(matches!(error, GangError::TooMany { .. }), "{error}");
    let error = ask(&mut world, &gang, 0, MAX_MEMBERS).unwrap();
    assert!(matches!(error, GangError::TooMany { .. }), "{error}");
    let error = ask(&mut world, &gang, 7, 1).unwrap();
    assert_eq!(error.to_string(), "gang \"gang\" has 1 groups, none of them number 7");
    gang.groups[0].segment = Some(crate::gang::Segment { size: 0, level: RACK });
    let error = ask(&mut world, &gang, 0, 1).unwrap();
    assert!(matches!(error, GangError::UnevenSegments { .. }), "{error}");
    gang.groups[0].segment = None;
    gang.groups[0].count = u32::MAX;
    assert!(ask(&mut world, &gang, 0, 1).is_some());
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
    let plan = preempt_for(&mut world, &mut context(&mut Solver::default()), &new).unwrap();
    assert_eq!(plan.evictions.len(), 4, "{plan:?}");
}

#[test]
fn segments_are_not_torn_apart_by_moves() {
    let mut world = world(&[1, 1], 4);
    let mut gang = Gang::new("gang", whole(1), 2);
    gang.groups[0].segment = Some(crate::gang::Segment { size: 2, level: RACK });
    let id = start(&mut world, &gang);
    assert!(world.workloads.workload(id).unwrap().coupling.is_fixed);
    let home = nodes_of(&world, id)[0].unwrap();
    let fixed = Profile { is_movable: false, priority: 9, ..Profile::new("fixed") };
    run(&mut world, fixed, 1, &whole(3), &[1 - home]);
    // Three GPUs are free, and would be on one node if a member left its rack.
    let wide = Gang::new("wide", whole(3), 1);
    let ask = |world: &mut World| {
        let mut solver = Solver::default();
        admit_by_defragmentation(world, &mut context(&mut solver), &wide, 9).map(|plan| plan.moves)
    };
    assert!(ask(&mut world).is_err());
    assert!(defragment(&mut world, 9, PreemptionBudget::STEPS).moves.is_empty());
    // Two independent pods may be separated.
    let evictions = (0..2).map(|member| MemberId { workload: id, member }).collect();
    apply_moves(&mut world, &Plan { evictions, ..Plan::default() }).unwrap();
    run(&mut world, Profile::new("loose"), 1, &whole(1), &[home, home]);
    assert_eq!(ask(&mut world).unwrap().len(), 1);
    // A level that the gang requires as a whole is no tighter than its profile.
    let mut one = in_a_rack("one", 1, 2);
    one.groups[0].topology.required = Some(RACK);
    assert_eq!(crate::workload::Coupling::of(&one), crate::workload::Coupling::default());
}

#[test]
fn defragmentation_ends_when_its_steps_are_spent() {
    let mut world = world(&[2, 2], 4);
    for node in 0..4 {
        pod(&mut world, &format!("p{node}"), 0, 1, node);
    }
    let all = defragment(&mut world, 99, PreemptionBudget::STEPS);
    assert_eq!(all.moves.len(), 3);
    assert!(all.steps > 0);
    let some = defragment(&mut world, 99, all.steps / 3);
    assert!(some.moves.len() < 3, "{some:?}");
    assert!(some.steps < all.steps);
    assert!(defragment(&mut world, 99, 0).moves.is_empty());
}
