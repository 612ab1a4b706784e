//! The fallback after the policy denied the plans in the best few areas.

use crate::World;
use crate::objective::CostModel;
use crate::plan::{PlanResult, Reason};
use crate::solve::attempt::{self, Budget};
use crate::solve::problem::{Goal, Problem};
use crate::solve::{
    Evaluated, MAX_CANDIDATES, NodeSet, Request, Solver, compare_found, evaluate, orders, plan_of,
    refusal,
};

/// Steps of an attempt here beyond its members: slots are recounted, and the cost model evaluates
/// every term.
const ATTEMPT_STEPS: u64 = 8;

/// Plans that the policy does not allow.
#[derive(Debug, Default)]
pub(super) struct Denied {
    /// Why the first of them is denied; none: there are none.
    pub(super) reason: Option<Reason>,
    /// Nodes that they take.
    nodes: NodeSet,
}

impl Denied {
    /// Notes the plans that are denied, and gives the others.
    pub(super) fn take_allowed(&mut self, found: Vec<Evaluated>) -> Vec<Evaluated> {
        let (allowed, denied): (Vec<Evaluated>, Vec<Evaluated>) =
            found.into_iter().partition(|found| found.denied.is_none());
        for Evaluated { placed, denied, .. } in denied {
            self.nodes.extend(placed.iter().map(|placed| placed.placement.node));
            self.reason = self.reason.take().or(denied);
        }
        allowed
    }
}

impl Solver {
    /// Searches without the nodes of the denied plans, then in every area. A constraint is reported
    /// as the reason only if all areas were tried within the budget.
    pub(super) fn search_denied(
        &mut self,
        problem: &Problem<'_>,
        world: &mut World,
        cost_model: &dyn CostModel,
        goals: &[Goal],
        denied: Denied,
        budget: &mut Budget,
    ) -> PlanResult {
        let Denied { reason, nodes } = denied;
        let roots = problem.roots();
        let forbidden = &nodes | problem.request.forbidden;
        let other = Request { forbidden: &forbidden, ..problem.request };
        let without = Problem::new(&mut self.bounds, &world.cluster, problem.topology, &other);
        let mut is_truncated = false;
        for goal in goals {
            let mut allowed = Vec::new();
            if !budget.is_spent() {
                allowed = Self::try_areas(&without, world, cost_model, &roots, goal, budget);
                allowed.retain(|found| found.denied.is_none());
            }
            if allowed.is_empty() {
                'areas: for area in problem.all_areas(&world.cluster, &roots, goal) {
                    for order in orders(problem, &area, false) {
                        is_truncated |= budget.is_spent();
                        if is_truncated || allowed.len() >= MAX_CANDIDATES {
                            break 'areas;
                        }
                        budget.steps += ATTEMPT_STEPS;
                        let cluster = &mut world.cluster;
                        let placed = attempt::attempt(problem, cluster, &area, goal, order, budget);
                        let Some(placed) = placed else { continue };
                        let found = evaluate(world, &problem.request, cost_model, placed);
                        let is_new = allowed.iter().all(|other| other.placed != found.placed);
                        if found.denied.is_none() && is_new {
                            allowed.push(found);
                        }
                    }
                }
                allowed.sort_by(|a, b| compare_found(cost_model, a, b));
            }
            if let Some(plan) = plan_of(allowed, world, cost_model, budget.steps) {
                return Ok(plan);
            }
        }
        let reason =
            reason.filter(|_| !is_truncated).unwrap_or(Reason::Steps { limit: budget.limit });
        Err(refusal(reason, budget.steps))
    }
}
