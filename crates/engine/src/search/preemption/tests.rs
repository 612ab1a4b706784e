mod colocation;
mod exhaustive;
mod limits;
mod priorities;
mod property;

use super::fixtures::*;
use super::*;
use crate::gang::Gang;
use crate::plan::{Scarce, apply};
use crate::solve::{MinHops, NodeSet};
use crate::workload::{MemberId, Profile};

fn ask(world: &mut World, gang: &Gang, preemption_budget: &PreemptionBudget) -> PlanResult {
    let before = snapshot(world);
    let forbidden = NodeSet::new();
    let request = Request { gang, pinned: &[], forbidden: &forbidden };
    let answer = plan(world, &request, preemption_budget, &MinHops);
    assert_eq!(snapshot(world), before, "a plan changes nothing");
    answer
}

fn with_priority(priority: i32, mut gang: Gang) -> Gang {
    gang.profile.priority = priority;
    gang
}

#[test]
fn one_pod_moves_so_that_a_larger_one_fits() {
    let mut world = world(&[3], 4);
    pod(&mut world, "a", 0, 2, 0);
    pod(&mut world, "b", 0, 1, 1);
    pod(&mut world, "c", 0, 1, 1);
    pod(&mut world, "d", 0, 1, 2);
    let gang = Gang::new("new", whole(4), 1);
    let plan = ask(&mut world, &gang, &PreemptionBudget::moves(4)).unwrap();
    let mover = world.workloads.named("d").unwrap();
    assert_eq!(plan.moves.len(), 1);
    assert_eq!(plan.moves[0].member, MemberId { workload: mover, member: 0 });
    assert_eq!(plan.cost.of(CostTerm::PodsDisturbed), 1);
    apply(&mut world, &gang, &plan).unwrap();
    let new = world.workloads.named("new").unwrap();
    assert_eq!(nodes_of(&world, new), [Some(2)]);
}

#[test]
fn pods_that_cannot_be_moved_or_are_too_many_stay() {
    let mut world = world(&[2], 4);
    let fixed = Profile { is_movable: false, ..Profile::new("fixed") };
    run(&mut world, fixed, 1, &whole(1), &[0]);
    pod(&mut world, "a", 0, 1, 1);
    pod(&mut world, "b", 0, 1, 1);
    let gang = Gang::new("new", whole(4), 1);
    let plan = ask(&mut world, &gang, &PreemptionBudget::moves(2)).unwrap();
    assert_eq!(plan.placements[0].placement.node, NodeId(1));
    let refusal = ask(&mut world, &gang, &PreemptionBudget::moves(1)).unwrap_err();
    assert!(matches!(refusal.reason, Reason::Steps { .. }), "{refusal:?}");
}

#[test]
fn what_cannot_be_placed_again_is_not_moved() {
    let mut world = world(&[2], 4);
    pod(&mut world, "large", 0, 3, 0);
    pod(&mut world, "fills", 0, 2, 1);
    let gang = Gang::new("new", whole(3), 1);
    let refusal = ask(&mut world, &gang, &PreemptionBudget::moves(9)).unwrap_err();
    assert!(matches!(refusal.reason, Reason::Bound(_) | Reason::Steps { .. }), "{refusal:?}");
    // If evictions are allowed, the pod that cannot move is evicted, and the other one is not.
    let preemption_budget = PreemptionBudget { moves: 9, ..PreemptionBudget::evictions_below(1) };
    let plan = ask(&mut world, &gang, &preemption_budget).unwrap();
    assert_eq!((plan.moves.len(), plan.evictions.len()), (0, 1));
}

#[test]
fn a_member_of_a_gang_moves_only_within_its_rack() {
    let mut world = world(&[2, 1], 4);
    let mut profile = Profile { is_preemptible: false, ..Profile::new("gang") };
    profile.topology.required = Some(RACK);
    let gang = run(&mut world, profile, 2, &whole(2), &[0, 1]);
    let new = Gang::new("new", whole(4), 1);
    // The other rack is idle, so no victim is needed. With that rack taken, one member is evicted.
    pod(&mut world, "other", 9, 1, 2);
    let plan =
        ask(&mut world, &new, &PreemptionBudget { moves: 1, ..PreemptionBudget::none() }).unwrap();
    assert_eq!(plan.moves.len(), 1);
    let moved = &plan.moves[0];
    if moved.member.workload == gang {
        assert!(moved.to.node.0 < 2, "{plan:?}");
    }
    // A pod does not leave its rack if the rack is full.
    pod(&mut world, "fills", 9, 2, 0);
    pod(&mut world, "fills too", 9, 2, 1);
    let wish = in_a_rack("wish", 4, 1);
    let plan = ask(&mut world, &wish, &PreemptionBudget::moves(9));
    let moved = plan.iter().flat_map(|plan| &plan.moves);
    assert!(moved.into_iter().all(|step| step.member.workload != gang));
}

#[test]
fn a_gang_is_evicted_whole_or_not_at_all() {
    let mut world = world(&[3], 4);
    run(&mut world, Profile::new("gang"), 3, &whole(2), &[0, 1, 2]);
    pod(&mut world, "a", 0, 2, 0);
    pod(&mut world, "b", 5, 2, 1);
    pod(&mut world, "c", 5, 2, 2);
    let gang = with_priority(1, Gang::new("new", whole(4), 1));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!(plan.evictions.len(), 4, "{plan:?}");
    apply(&mut world, &gang, &plan).unwrap();
    assert!(world.workloads.named("gang").is_none());
    assert!(world.workloads.named("b").is_some());
}

#[test]
fn a_gang_over_many_nodes_is_one_victim() {
    let mut world = world(&[4], 4);
    run(&mut world, Profile::new("gang"), 4, &whole(2), &[0, 1, 2, 3]);
    for node in 0..4 {
        pod(&mut world, &format!("a{node}"), 0, 1, node);
        pod(&mut world, &format!("b{node}"), 0, 1, node);
    }
    // Two pods on each of four nodes, or the gang of four.
    let gang = with_priority(1, Gang::new("new", whole(2), 4));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    let victim = world.workloads.named("gang").unwrap();
    assert!(plan.evictions.iter().all(|id| id.workload == victim), "{plan:?}");
    assert_eq!(plan.evictions.len(), 4);
}

#[test]
fn members_above_the_minimum_go_first() {
    let mut world = world(&[2], 4);
    let elastic = run(&mut world, Profile::new("elastic"), 2, &whole(2), &[0, 0, 1, 1]);
    let gang = with_priority(1, Gang::new("new", whole(4), 1));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!(plan.evictions.len(), 2);
    apply(&mut world, &gang, &plan).unwrap();
    assert_eq!(world.workloads.workload(elastic).unwrap().member_count(), 2);
    // No more pods can be evicted alone: the workload is evicted whole.
    let next = with_priority(1, Gang::new("next", whole(2), 1));
    let plan = ask(&mut world, &next, &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!(plan.evictions.len(), 2);
    apply(&mut world, &next, &plan).unwrap();
    assert!(world.workloads.workload(elastic).is_none());
}

#[test]
fn equal_or_higher_priority_and_other_tenants_are_not_evicted() {
    let mut world = world(&[3], 4);
    pod(&mut world, "equal", 5, 4, 0);
    pod(&mut world, "higher", 6, 4, 1);
    let kept = Profile { is_preemptible: false, ..Profile::new("kept") };
    run(&mut world, kept, 1, &whole(4), &[2]);
    let gang = with_priority(5, Gang::new("new", whole(1), 1));
    let refusal = ask(&mut world, &gang, &PreemptionBudget::evictions_below(5)).unwrap_err();
    let Reason::Bound(bound) = refusal.reason else { panic!("{refusal:?}") };
    assert_eq!((bound.wanted, bound.possible, bound.scarce), (1, 0, Scarce::Free));
    let mut only = PreemptionBudget::evictions_below(7);
    let evictions = only.evictions.as_mut().unwrap();
    evictions.tenants = Some(["somebody".into()].into());
    assert!(ask(&mut world, &gang, &only).is_err());
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(7)).unwrap();
    let name = &world.workloads.workload(plan.evictions[0].workload).unwrap().profile.name;
    assert_eq!(&**name, "equal", "of as many pods the lower priority goes");
}

#[test]
fn of_equal_pods_the_newest_goes_and_less_work_is_lost() {
    let mut world = world(&[3], 1);
    for (node, seconds) in [(0, 60), (1, 10), (2, 10)] {
        let profile = Profile { seconds_at_risk: seconds, ..Profile::new(format!("p{node}")) };
        run(&mut world, profile, 1, &whole(1), &[node]);
    }
    let gang = with_priority(1, Gang::new("new", whole(1), 1));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!(
        plan.evictions,
        [MemberId { workload: world.workloads.named("p2").unwrap(), member: 0 }]
    );
}

#[test]
fn impossible_request_disrupts_nothing_and_names_its_bound() {
    let mut world = world(&[2, 2], 4);
    for node in 0..4 {
        pod(&mut world, &format!("p{node}"), 0, 4, node);
    }
    let gang = with_priority(1, in_a_rack("new", 4, 3));
    let refusal = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap_err();
    let Reason::Bound(bound) = refusal.reason else { panic!("{refusal:?}") };
    assert_eq!((bound.wanted, bound.possible, bound.scarce), (3, 2, Scarce::Capacity));
    assert_eq!(bound.within.as_deref(), Some("r0"));
    let moves = ask(&mut world, &in_a_rack("new", 4, 1), &PreemptionBudget::moves(99)).unwrap_err();
    assert!(matches!(moves.reason, Reason::Bound(_)), "moves free nothing: {moves:?}");
}

#[test]
fn gang_confined_to_a_rack_preempts_in_a_full_rack() {
    let mut world = world(&[2, 2], 4);
    for node in 0..4 {
        for number in 0..4 {
            let priority = if node < 2 { 3 } else { 0 };
            pod(&mut world, &format!("p{node}-{number}"), priority, 1, node);
        }
    }
    let gang = with_priority(5, in_a_rack("new", 2, 4));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(5)).unwrap();
    assert_eq!(plan.evictions.len(), 8);
    assert!(plan.placements.iter().all(|placed| placed.placement.node.0 >= 2));
    assert_eq!(plan.runner_up.as_ref().unwrap().place, "r0");
    apply(&mut world, &gang, &plan).unwrap();
}

#[test]
fn segments_and_groups_keep_their_rules_when_room_is_made() {
    let mut world = world(&[2, 2, 2], 4);
    for node in 0..6 {
        pod(&mut world, &format!("p{node}"), 0, 2, node);
    }
    let mut gang = with_priority(1, Gang::new("new", whole(4), 4));
    gang.groups[0].segment = Some(crate::gang::Segment { size: 2, level: RACK });
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!(plan.evictions.len(), 4);
    for pair in plan.placements.chunks(2) {
        let rack = |placed: &Placed| world.topology.domain_of(placed.placement.node, RACK);
        assert_eq!(rack(&pair[0]), rack(&pair[1]), "{plan:?}");
    }
    let ranks: Vec<u32> = plan.placements.iter().map(|placed| placed.rank).collect();
    assert_eq!(ranks, [0, 1, 2, 3]);
}

#[test]
fn shares_on_one_gpu_leave_together() {
    let mut world = world(&[2], 2);
    for (number, node) in [0, 0, 0, 1, 1].into_iter().enumerate() {
        let profile = Profile::new(format!("s{number}"));
        run(&mut world, profile, 1, &share(500), &[node]);
    }
    pod(&mut world, "whole", 9, 1, 1);
    // Node 0: two halves on one GPU, one on the other; node 1: two halves on one, the other taken.
    let gang = with_priority(1, Gang::new("new", whole(1), 1));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!(plan.evictions.len(), 1, "{plan:?}");
    let plan = ask(
        &mut world,
        &with_priority(1, Gang::new("two", whole(2), 1)),
        &PreemptionBudget::evictions_below(1),
    );
    assert_eq!(plan.unwrap().evictions.len(), 3);
}

#[test]
fn on_a_node_of_many_unlike_pods_the_cheapest_gpus_are_cleared() {
    let mut world = world(&[1], 8);
    for gpu in 0..8_u16 {
        // Two shares on each GPU, no two alike; those on one GPU would lose less work.
        for (name, milli) in [("a", 501 + gpu), ("b", 480 + gpu)] {
            let seconds_at_risk = if gpu == 5 { 1 } else { 100 };
            let profile = Profile { seconds_at_risk, ..Profile::new(format!("{name}{gpu}")) };
            run(&mut world, profile, 1, &share(milli), &[0]);
        }
    }
    let gang = with_priority(1, Gang::new("new", whole(1), 1));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    let mut names: Vec<&str> = Vec::new();
    for id in &plan.evictions {
        names.push(&world.workloads.workload(id.workload).unwrap().profile.name);
    }
    names.sort_unstable();
    assert_eq!(names, ["a5", "b5"]);
    let gang = with_priority(1, Gang::new("all", whole(8), 1));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!(plan.evictions.len(), 16);
}

#[test]
fn equal_pods_are_looked_at_once() {
    let mut world = world(&[100], 8);
    for node in 0..100 {
        for number in 0..8 {
            pod(&mut world, &format!("p{node:02}-{number}"), 0, 1, node);
        }
    }
    let gang = with_priority(1, Gang::new("new", whole(1), 1));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!(plan.evictions.len(), 1);
    assert!(plan.steps < 200, "{} steps", plan.steps);
}

#[test]
fn a_budget_that_is_spent_is_no_proof() {
    let mut world = world(&[2, 2], 4);
    for node in 0..4 {
        pod(&mut world, &format!("p{node}"), 0, 4, node);
    }
    let gang = with_priority(1, Gang::new("new", whole(4), 1));
    let preemption_budget = PreemptionBudget { steps: 0, ..PreemptionBudget::evictions_below(1) };
    let refusal = ask(&mut world, &gang, &preemption_budget).unwrap_err();
    assert!(matches!(refusal.reason, Reason::Steps { .. }), "{refusal:?}");
}

#[test]
fn multi_share_members_spread_if_the_default_choice_leaves_too_little() {
    let mut world = world(&[1], 3);
    // 300 free on each GPU, and 600 on the first without the low one.
    for (name, priority, milli) in [("low", 0, 300), ("a", 9, 400), ("b", 9, 700), ("c", 9, 700)] {
        run(&mut world, Profile { priority, ..Profile::new(name) }, 1, &share(milli), &[0]);
    }
    let pair = crate::Shape::new(
        crate::Resources::of_pod(1000, 1000),
        crate::shape::GpuDemand::of(2, 300),
    );
    let mut alone = world.clone();
    let low = alone.workloads.remove(alone.workloads.named("low").unwrap()).unwrap();
    let low = low.members[0].as_ref().unwrap();
    alone.cluster.release(&low.shape.resources, &low.placement).unwrap();
    let first = crate::pick::default_placement(&alone.cluster, NodeId(0), &pair).unwrap();
    alone.cluster.place(&pair.resources, &first).unwrap();
    assert_eq!(crate::pick::default_placement(&alone.cluster, NodeId(0), &pair), None);
    let gang = with_priority(1, Gang::new("new", pair, 2));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    assert_eq!((plan.placements.len(), plan.evictions.len()), (2, 1));
    apply(&mut world, &gang, &plan).unwrap();
}

/// A cost model that keeps one node unchanged.
struct Spares(NodeId);

impl CostModel for Spares {
    fn cost(
        &self,
        world: &World,
        gang: &Gang,
        placed: &[Placed],
        disruptions: DisruptionSet<'_>,
    ) -> CostVector {
        MinHops.cost(world, gang, placed, disruptions)
    }

    fn compare(&self, a: &CostVector, b: &CostVector) -> Ordering {
        MinHops.compare(a, b)
    }

    fn worse_in(&self, taken: &CostVector, other: &CostVector) -> Option<CostTerm> {
        MinHops.worse_in(taken, other)
    }

    fn kept_free(&self, _: &World) -> NodeSet {
        [self.0].into()
    }

    fn check(
        &self,
        _: &World,
        _: &Gang,
        placed: &[Placed],
        _: DisruptionSet<'_>,
        _: &CostVector,
    ) -> Result<(), Reason> {
        let is_spared = placed.iter().all(|placed| placed.placement.node != self.0);
        let spares = Reason::Spares { domain: "the cluster".to_owned(), least: 1, found: 0 };
        if is_spared { Ok(()) } else { Err(spares) }
    }
}

#[test]
fn room_is_made_beside_the_nodes_that_must_stay_free() {
    let mut world = world(&[2], 1);
    pod(&mut world, "other", 5, 1, 1);
    // The node to keep has the cheaper victim.
    pod(&mut world, "cheap", 0, 1, 0);
    let gang = with_priority(9, Gang::new("new", whole(1), 1));
    let forbidden = NodeSet::new();
    let request = Request { gang: &gang, pinned: &[], forbidden: &forbidden };
    let preemption_budget = PreemptionBudget::evictions_below(9);
    let plan = plan(&mut world, &request, &preemption_budget, &Spares(NodeId(0))).unwrap();
    assert_eq!(plan.placements[0].placement.node, NodeId(1));
    let spared = [NodeId(1)].into();
    let request = Request { forbidden: &spared, ..request };
    let refusal =
        super::plan(&mut world, &request, &preemption_budget, &Spares(NodeId(0))).unwrap_err();
    assert!(matches!(refusal.reason, Reason::Spares { .. }), "{refusal:?}");
}

#[test]
fn the_search_for_victims_ends_soon_after_its_steps_are_spent() {
    let mut world = world(&[60], 8);
    for node in 0..60_u32 {
        for gpu in 0..8_u32 {
            // No two nodes are alike.
            let milli = u16::try_from(501 + 8 * node + gpu).unwrap();
            let profile = Profile::new(format!("p{node}-{gpu}"));
            run(&mut world, profile, 1, &share(milli), &[node]);
        }
    }
    let gang = with_priority(1, Gang::new("new", whole(8), 1));
    let all = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1)).unwrap();
    let preemption_budget =
        PreemptionBudget { steps: 1000, ..PreemptionBudget::evictions_below(1) };
    let refusal = ask(&mut world, &gang, &preemption_budget).unwrap_err();
    assert!(matches!(refusal.reason, Reason::Steps { .. }), "{refusal:?}");
    assert!(refusal.steps < 1000 + 600, "{} steps", refusal.steps);
    assert!(all.steps > 4 * refusal.steps, "{} steps are enough", all.steps);
}
