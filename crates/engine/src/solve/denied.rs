//! What is still tried when the policy denies the plans in the best few areas.

use crate::World;
use crate::decision::{Answer, Reason};
use crate::solve::areas;
use crate::solve::attempt::{self, Budget};
use crate::solve::case::{Case, Goal};
use crate::solve::{
    Found, Judge, NodeSet, Request, Solver, better, found, orders, plan_of, refusal,
};

/// Steps that an attempt costs here beside its members: rooms are looked at, and a judge looks at
/// every unit of the plan.
const ATTEMPT: u64 = 8;

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
    pub(super) fn sort_out(&mut self, found: Vec<Found>) -> Vec<Found> {
        let (allowed, denied): (Vec<Found>, Vec<Found>) =
            found.into_iter().partition(|found| found.denied.is_none());
        for Found { placed, denied, .. } in denied {
            self.nodes.extend(placed.iter().map(|one| one.placement.node));
            self.reason = self.reason.take().or(denied);
        }
        allowed
    }
}

impl Solver {
    /// Tries to do without the nodes of the plans that were denied, and then every area there is.
    /// That a constraint is in the way is said only when all were tried within the budget.
    #[expect(clippy::too_many_arguments, reason = "what a search is about, each once")]
    pub(super) fn search_on(
        &mut self,
        case: &Case<'_>,
        world: &mut World,
        request: &Request<'_>,
        judge: &dyn Judge,
        goals: &[Goal],
        denied: Denied,
        budget: &mut Budget,
    ) -> Answer {
        let Denied { reason, nodes } = denied;
        let most = self.options.candidates.max(1);
        let level = request.gang.profile.topology.required.unwrap_or_default();
        let roots = areas::roots(case.topology, request, level);
        let forbidden = &nodes | request.forbidden;
        let other = Request { forbidden: &forbidden, ..*request };
        let without = Case::new(&mut self.bounds, &world.cluster, case.topology, &other);
        let mut is_cut = false;
        for goal in goals {
            let mut allowed = Vec::new();
            if !budget.is_spent() {
                allowed = self.try_areas(&without, world, &other, judge, &roots, goal, budget);
                allowed.retain(|found| found.denied.is_none());
            }
            if allowed.is_empty() {
                'areas: for area in case.all_areas(&world.cluster, &roots, goal) {
                    for order in orders(case, &area, false) {
                        is_cut |= budget.is_spent();
                        if is_cut || allowed.len() >= most {
                            break 'areas;
                        }
                        budget.steps += ATTEMPT;
                        let cluster = &mut world.cluster;
                        let placed =
                            attempt::attempt(case, cluster, &area, goal, order, most, budget);
                        let Some(placed) = placed else { continue };
                        let found = found(world, request, judge, placed);
                        let is_new = allowed.iter().all(|other| other.placed != found.placed);
                        if found.denied.is_none() && is_new {
                            allowed.push(found);
                        }
                    }
                }
                allowed.sort_by(|one, other| better(judge, one, other));
            }
            if let Some(plan) = plan_of(allowed, world, judge, budget.steps) {
                return Ok(plan);
            }
        }
        let reason = reason.filter(|_| !is_cut).unwrap_or(Reason::Steps { limit: budget.limit });
        Err(refusal(reason, budget.steps))
    }
}
