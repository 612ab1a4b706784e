//! The influence of the cost model and the budget.

use std::cmp::Ordering;

use super::fixtures::*;
use crate::World;
use crate::gang::Gang;
use crate::objective::{CostModel, CostTerm, CostVector};
use crate::plan::{DisruptionSet, Placed, Reason, Remedy};
use crate::solve::{MAX_STEPS, MinHops, NodeSet, Request, Solver};

/// The least residual first, and a limit of hops.
struct Thrifty {
    most_hops: i64,
}

impl CostModel for Thrifty {
    fn cost(
        &self,
        world: &World,
        gang: &Gang,
        placed: &[Placed],
        with: DisruptionSet<'_>,
    ) -> CostVector {
        MinHops.cost(world, gang, placed, with)
    }

    fn compare(&self, a: &CostVector, b: &CostVector) -> Ordering {
        a.of(CostTerm::PackingPrice).cmp(&b.of(CostTerm::PackingPrice))
    }

    fn worse_in(&self, taken: &CostVector, other: &CostVector) -> Option<CostTerm> {
        let unit = CostTerm::PackingPrice;
        (other.of(unit) > taken.of(unit)).then_some(unit)
    }

    fn check(
        &self,
        _: &World,
        _: &Gang,
        _: &[Placed],
        _: DisruptionSet<'_>,
        cost: &CostVector,
    ) -> Result<(), Reason> {
        let (most, found) = (self.most_hops, cost.of(CostTerm::Hops));
        let unit = CostTerm::Hops.name();
        if found <= most { Ok(()) } else { Err(Reason::Constraint { unit, most, found }) }
    }
}

fn judged(
    world: &mut World,
    gang: &Gang,
    most_hops: i64,
    max_steps: u64,
) -> Result<Vec<String>, Reason> {
    let forbidden = NodeSet::new();
    let request = Request { gang, pinned: &[], forbidden: &forbidden };
    let answer =
        Solver { max_steps, ..Solver::default() }.solve(world, &request, &Thrifty { most_hops });
    let plan = answer.map_err(|refusal| refusal.reason)?;
    check(world, &request, &plan);
    Ok(names(world, &plan))
}

#[test]
fn cost_model_may_prefer_used_nodes_and_forbid_long_rings() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 2), ("c", "b1/r1", 2)]);
    let gang = gang(gpus(2), 2);
    let mut places = |most| judged(&mut world, &gang, most, MAX_STEPS);
    assert_eq!(places(100), Ok(vec!["b".to_owned(), "c".to_owned()]));
    assert_eq!(places(2), Ok(vec!["a".to_owned(), "a".to_owned()]));
}

#[test]
fn plan_denied_by_policy_is_refused_with_the_constraint() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b2/r1", 8)]);
    let reason = judged(&mut world, &gang(gpus(8), 2), 5, MAX_STEPS).unwrap_err();
    assert_eq!(reason, Reason::Constraint { unit: "hops", most: 5, found: 12 });
}

#[test]
fn the_first_attempt_is_carried_through_whatever_the_budget() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 8)]);
    assert_eq!(judged(&mut world, &gang(gpus(1), 16), 100, 0).unwrap().len(), 16);
}

#[test]
fn truncated_search_does_not_claim_that_no_plan_exists() {
    let mut world = world(&[("a", "b1/r1", 4), ("b", "b1/r1", 4)]);
    let mut gang = gang(gpus(8), 1);
    gang.groups = vec![group("threes", gpus(3), 2), group("pair", gpus(2), 1)];
    let reason = judged(&mut world, &gang, 100, 3).unwrap_err();
    assert_eq!(reason, Reason::Steps { limit: 3 });
    let reason = judged(&mut world, &gang, 100, MAX_STEPS).unwrap_err();
    assert!(matches!(reason, Reason::Exhausted { .. }), "{reason:?}");
}

/// Allows a single node.
struct Only(&'static str);

impl CostModel for Only {
    fn cost(
        &self,
        world: &World,
        gang: &Gang,
        placed: &[Placed],
        with: DisruptionSet<'_>,
    ) -> CostVector {
        MinHops.cost(world, gang, placed, with)
    }

    fn compare(&self, a: &CostVector, b: &CostVector) -> Ordering {
        MinHops.compare(a, b)
    }

    fn worse_in(&self, taken: &CostVector, other: &CostVector) -> Option<CostTerm> {
        MinHops.worse_in(taken, other)
    }

    fn check(
        &self,
        world: &World,
        _: &Gang,
        placed: &[Placed],
        _: DisruptionSet<'_>,
        _: &CostVector,
    ) -> Result<(), Reason> {
        let is_allowed = placed.iter().all(|one| world.cluster.name(one.placement.node) == self.0);
        let denied = Reason::Constraint { unit: "watts", most: 0, found: 1 };
        if is_allowed { Ok(()) } else { Err(denied) }
    }
}

#[test]
fn policy_denial_needs_every_area_to_be_tried() {
    let names: Vec<String> = (10..30).map(|number| format!("n{number}")).collect();
    let paths: Vec<String> = (10..30).map(|number| format!("b1/r{number}")).collect();
    let nodes = names.iter().zip(&paths).map(|(name, path)| (&**name, &**path, 8));
    let mut world = world(&nodes.collect::<Vec<_>>());
    let (gang, forbidden) = (gang(gpus(8), 1), NodeSet::new());
    let request = Request { gang: &gang, pinned: &[], forbidden: &forbidden };
    let mut ask = |only, steps| {
        let mut solver = Solver { max_steps: steps, ..Solver::default() };
        let answer = solver.solve(&mut world, &request, &Only(only));
        let name = |plan: crate::plan::Plan| {
            world.cluster.name(plan.placements[0].placement.node).to_owned()
        };
        answer.map(name).map_err(|refusal| refusal.reason)
    };
    for name in ["n10", "n15", "n29"] {
        assert_eq!(ask(name, 10_000), Ok(name.to_owned()));
    }
    let denied = Reason::Constraint { unit: "watts", most: 0, found: 1 };
    assert_eq!(ask("none", 10_000), Err(denied));
    assert_eq!(ask("n29", 20), Err(Reason::Steps { limit: 20 }), "it may be allowed elsewhere");
}

#[test]
fn a_remedy_that_the_policy_denies_is_not_named() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b2/r1", 8)]);
    let mut gang = gang(gpus(8), 2);
    gang.profile.topology = required(RACK);
    let forbidden = NodeSet::new();
    let request = Request { gang: &gang, pinned: &[], forbidden: &forbidden };
    let mut remedy = |most_hops| {
        let cost_model = Thrifty { most_hops };
        Solver::default().solve(&mut world, &request, &cost_model).unwrap_err().remedy
    };
    assert_eq!(remedy(12), Some(Remedy::LooserLevel { level: "cluster".into() }));
    // The ring would be too long.
    assert_eq!(remedy(11), Some(Remedy::FewerMembers { group: "members".into(), fit: 1 }));
}
