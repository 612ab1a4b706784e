//! What the judge and the budget decide.

use std::cmp::Ordering;

use super::support::*;
use crate::World;
use crate::decision::{Placed, Reason};
use crate::gang::Gang;
use crate::objective::{Unit, Vector};
use crate::solve::{Judge, Nearest, NodeSet, Options, Request, Solver};

/// Leftovers first, and at most so many hops.
struct Thrifty {
    most_hops: i64,
}

impl Judge for Thrifty {
    fn cost(&self, world: &World, gang: &Gang, placed: &[Placed]) -> Vector {
        Nearest.cost(world, gang, placed)
    }

    fn compare(&self, one: &Vector, other: &Vector) -> Ordering {
        one.of(Unit::PackingPrice).cmp(&other.of(Unit::PackingPrice))
    }

    fn worse_in(&self, taken: &Vector, other: &Vector) -> Option<Unit> {
        let unit = Unit::PackingPrice;
        (other.of(unit) > taken.of(unit)).then_some(unit)
    }

    fn check(&self, _: &World, cost: &Vector) -> Result<(), Reason> {
        let (most, found) = (self.most_hops, cost.of(Unit::Hops));
        let unit = Unit::Hops.name();
        if found <= most { Ok(()) } else { Err(Reason::Constraint { unit, most, found }) }
    }
}

fn judged(
    world: &mut World,
    gang: &Gang,
    most_hops: i64,
    options: Options,
) -> Result<Vec<String>, Reason> {
    let forbidden = NodeSet::new();
    let request = Request { gang, pinned: &[], forbidden: &forbidden, within: None };
    let answer = Solver::new(options).solve(world, &request, &Thrifty { most_hops });
    let plan = answer.map_err(|refusal| refusal.reason)?;
    check(world, &request, &plan);
    Ok(names(world, &plan))
}

#[test]
fn the_judge_may_prefer_used_nodes_to_short_rings_and_forbid_long_ones() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 2), ("c", "b1/r1", 2)]);
    let gang = gang(gpus(2), 2);
    let mut places = |most| judged(&mut world, &gang, most, Options::default());
    assert_eq!(places(100), Ok(vec!["b".to_owned(), "c".to_owned()]));
    assert_eq!(places(2), Ok(vec!["a".to_owned(), "a".to_owned()]));
}

#[test]
fn a_plan_that_the_policy_forbids_is_refused_with_the_constraint() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b2/r1", 8)]);
    let reason = judged(&mut world, &gang(gpus(8), 2), 5, Options::default()).unwrap_err();
    assert_eq!(reason, Reason::Constraint { unit: "hops", most: 5, found: 12 });
}

#[test]
fn the_first_attempt_is_carried_through_whatever_the_budget() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 8)]);
    let options = Options { steps: 0, ..Options::default() };
    assert_eq!(judged(&mut world, &gang(gpus(1), 16), 100, options).unwrap().len(), 16);
}

#[test]
fn a_search_that_was_cut_short_does_not_say_that_there_is_no_plan() {
    let mut world = world(&[("a", "b1/r1", 4), ("b", "b1/r1", 4)]);
    let mut gang = gang(gpus(8), 1);
    gang.groups = vec![group("threes", gpus(3), 2), group("pair", gpus(2), 1)];
    let options = Options { steps: 3, ..Options::default() };
    let reason = judged(&mut world, &gang, 100, options).unwrap_err();
    assert_eq!(reason, Reason::Steps { limit: 3 });
    let reason = judged(&mut world, &gang, 100, Options::default()).unwrap_err();
    assert!(matches!(reason, Reason::Exhausted { .. }), "{reason:?}");
}
