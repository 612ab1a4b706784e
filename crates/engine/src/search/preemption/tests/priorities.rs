//! Priorities of victims.

use super::super::fixtures::*;
use super::super::*;
use super::{ask, with_priority};
use crate::gang::Gang;
use crate::workload::Profile;

#[test]
fn higher_priority_pod_is_not_evicted_for_losing_no_work() {
    let mut world = world(&[2], 1);
    for (node, priority, seconds_at_risk) in [(0, 0, 3600), (1, 90, 0)] {
        let profile = Profile { priority, seconds_at_risk, ..Profile::new(format!("p{priority}")) };
        run(&mut world, profile, 1, &whole(1), &[node]);
    }
    let gang = with_priority(100, Gang::new("new", whole(1), 1));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(100)).unwrap();
    let low = world.workloads.named("p0").unwrap();
    assert_eq!(plan.evictions, [MemberId { workload: low, member: 0 }]);
    // The highest priority decides, not the sum: two medium ones are evicted before one high and
    // one low.
    let mut world = self::world(&[2], 2);
    for (node, priority) in [(0, 0), (0, 90), (1, 46), (1, 47)] {
        pod(&mut world, &format!("p{priority}"), priority, 1, node);
    }
    let gang = with_priority(100, Gang::new("new", whole(2), 1));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(100)).unwrap();
    let (one, other) = (world.workloads.named("p46"), world.workloads.named("p47"));
    let gone = plan.evictions.iter().map(|id| Some(id.workload));
    assert!(gone.clone().eq([one, other]) || gone.eq([other, one]), "{plan:?}");
}

#[test]
fn several_unimportant_pods_are_evicted_before_an_important_one() {
    let mut world = world(&[3], 4);
    pod(&mut world, "production", 900, 4, 0);
    for (number, priority) in [0, 0, 5, 5].into_iter().enumerate() {
        pod(&mut world, &format!("batch-{number}"), priority, 1, 1);
    }
    for (number, priority) in [10, 10].into_iter().enumerate() {
        pod(&mut world, &format!("batch-of-ten-{number}"), priority, 2, 2);
    }
    let before = snapshot(&world);
    let gang = with_priority(1000, Gang::new("new", whole(4), 1));
    let node_of = |plan: &Plan| plan.placements[0].placement.node.0;
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1000)).unwrap();
    // Four pods of at most 5 go, not two of 10 or one of 900.
    assert_eq!((plan.evictions.len(), node_of(&plan)), (4, 1));
    let gang = with_priority(1000, Gang::new("new", whole(4), 2));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1000)).unwrap();
    assert_eq!(plan.evictions.len(), 6, "both nodes of batch pods");
    let gang = with_priority(1000, Gang::new("new", whole(4), 3));
    let plan = ask(&mut world, &gang, &PreemptionBudget::evictions_below(1000)).unwrap();
    assert_eq!(plan.evictions.len(), 7, "there is no other way");
    assert_eq!(snapshot(&world), before);
}

#[test]
fn an_eviction_is_not_replaced_by_more_moves_of_others() {
    // Four pods could move out of the way instead of one that is evicted.
    let mut world = world(&[5], 4);
    let low = Profile { priority: 5, is_movable: false, ..Profile::new("low") };
    run(&mut world, low, 1, &whole(4), &[0]);
    for (node, gpus) in [(2, 2), (3, 2), (4, 3)] {
        let fixed = Profile {
            is_preemptible: false,
            is_movable: false,
            ..Profile::new(format!("fixed-{node}"))
        };
        run(&mut world, fixed, 1, &whole(gpus), &[node]);
    }
    for number in 0..4 {
        let profile = Profile {
            priority: 900,
            is_movable: true,
            is_preemptible: false,
            ..Profile::new(format!("service-{number}"))
        };
        run(&mut world, profile, 1, &whole(1), &[1]);
    }
    let gang = with_priority(1000, Gang::new("new", whole(4), 1));
    let both = PreemptionBudget { moves: 8, ..PreemptionBudget::evictions_below(1000) };
    let victims = |world: &mut World| {
        let plan = ask(world, &gang, &both).unwrap();
        (plan.evictions.len(), plan.moves.len())
    };
    assert_eq!(victims(&mut world), (1, 0));
    // A pod that cannot help does not change that.
    let other = Profile { priority: -10, ..Profile::new("unrelated") };
    run(&mut world, other, 1, &whole(1), &[4]);
    assert_eq!(victims(&mut world), (1, 0));
}
