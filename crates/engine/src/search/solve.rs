//! The search for the placement of a gang, with pinned members and forbidden nodes.
//!
//! ```text
//! request --> problem: demand of each group, free slots by domain (bounds)
//!               | the bounds leave no area --> refusal: the failed bound, a remedy
//!               v
//!             tiers, the preferred level first --> areas: the tightest, the fullest that fit
//!               v
//!             attempts: groups in a transaction, in several node orders --> cost model --> plan, runner-up
//!               | none, or denied: all other areas
//!               v
//!             exhaustive search of small problems --> plan, or a proof that there is none
//! ```
//!
//! A gang is placed whole or not at all. For one group counts are exact: a plan that the bounds
//! allow is found. Several groups of different shapes are first tried in a few orders, then member
//! by member until the step budget is spent. Only then the result is that a plan may exist.

pub(crate) mod areas;
pub(crate) mod attempt;
mod colocation;
pub(crate) mod constraints;
mod exhaustive;
mod free_slots;
mod gpu_choices;
mod infeasibility;
mod policy_denied;
mod problem;
pub(crate) mod ranks;
pub(crate) mod residual;
mod shared_limits;
mod spread;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use crate::World;
use crate::bounds::Bounds;
use crate::gang::Gang;
use crate::node::NodeId;
use crate::objective::{CostModel, CostTerm, CostVector};
use crate::placement::Placement;
use crate::plan::{
    DisruptionSet, FailedBound, Placed, Plan, PlanResult, Reason, Refusal, Remedy, RunnerUp,
};
use crate::topology::DomainId;

use areas::Area;
use attempt::Budget;
use policy_denied::Denied;
use problem::{Goal, Problem};
use spread::NodeOrder;

pub use crate::node::NodeSet;
pub use crate::topology::ring_hops;
#[cfg(test)]
pub(crate) use tests::min_hops::MinHops;

/// A gang to place, and what is fixed already.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The gang, with the members that are pinned.
    pub gang: &'a Gang,
    /// Members with fixed placements, which the cluster contains too. They count towards topology
    /// constraints and the minimum. Of two with one rank the later counts. A rank beyond the gang
    /// restricts where the others may be and counts against every limit.
    pub pinned: &'a [Pinned],
    /// Nodes that get no member.
    pub forbidden: &'a NodeSet,
}

/// A member that has its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Its rank among all members of the gang.
    pub rank: u32,
    /// Its place.
    pub placement: Placement,
}

/// Steps after which no further alternative is tried. A step is one member placed in a transaction,
/// about a microsecond. The first attempt always completes.
const MAX_STEPS: u64 = 200_000;
/// Areas of one type to compare.
const MAX_CANDIDATES: usize = 4;

/// Places gangs. Bounds are cached between requests and follow the changes of the cluster. Any
/// cluster may be passed, but one solver for each cluster is the fastest.
#[derive(Clone, Debug)]
pub struct Solver {
    bounds: Bounds,
    max_steps: u64,
}

impl Default for Solver {
    fn default() -> Self {
        Self { bounds: Bounds::default(), max_steps: MAX_STEPS }
    }
}

/// A plan that was found, and what it costs.
struct Evaluated {
    placed: Vec<Placed>,
    cost: CostVector,
    /// Why the policy does not allow it; none: it does.
    denied: Option<Reason>,
}

impl Solver {
    /// Places the members of a gang that are not pinned, or refuses. The world is unchanged
    /// afterwards.
    pub fn solve(
        &mut self,
        world: &mut World,
        request: &Request<'_>,
        cost_model: &dyn CostModel,
    ) -> PlanResult {
        let checked = request.gang.check(world.topology.levels().len());
        checked.map_err(|error| refusal(Reason::Request(error), 0))?;
        let since = world.cluster.log().end();
        let mut answer = self.search(world, request, cost_model, false);
        if matches!(&answer, Err(refusal) if matches!(refusal.reason, Reason::Spares { .. })) {
            // No bound tells which nodes must stay free: repeat the search without them.
            let forbidden = &cost_model.kept_free(world) | request.forbidden;
            let spared = Request { forbidden: &forbidden, ..*request };
            answer = self.search(world, &spared, cost_model, true);
            // Other nodes may be left free than these.
            answer = answer.or_else(|_| self.search(world, request, cost_model, true));
        }
        self.bounds.skip(since, &world.cluster);
        answer
    }

    /// `is_last`: no search without the spare nodes follows.
    fn search(
        &mut self,
        world: &mut World,
        request: &Request<'_>,
        cost_model: &dyn CostModel,
        is_last: bool,
    ) -> PlanResult {
        let topology = self.bounds.set_topology(&world.topology);
        let problem = Problem::new(&mut self.bounds, &world.cluster, &topology, request);
        if problem.demands.iter().all(|demand| demand.count() == 0) {
            return Ok(Plan::default());
        }
        let min = Goal::min(&problem.demands);
        if let Some(bound) = infeasibility::failed_bound(&problem, &world.cluster, &min) {
            let remedy = self.remedy(&problem, world, cost_model, Some(&bound));
            return Err(Refusal { reason: Reason::Bound(bound), remedy, steps: 0 });
        }
        let mut budget = Budget { steps: 0, limit: self.max_steps };
        let full = Goal::full(&problem.demands);
        let goals = if problem.demands.iter().any(|demand| demand.min < demand.count()) {
            vec![full, min.clone()]
        } else {
            vec![full]
        };
        let mut denied = Denied::default();
        for goal in &goals {
            let mut best: Option<Plan> = None;
            for level in areas::tiers(request.gang) {
                let roots = areas::roots(&topology, request, level);
                let found = Self::try_areas(&problem, world, cost_model, &roots, goal, &mut budget);
                let plan = plan_of(denied.take_allowed(found), world, cost_model, budget.steps);
                // For an elastic gang the number of placed members comes first, then the tier.
                let is_better = |plan: &Plan| {
                    best.as_ref().is_none_or(|best| plan.placements.len() > best.placements.len())
                };
                best = plan.filter(is_better).or(best);
                if best.is_some() && !goal.is_elastic {
                    break;
                }
            }
            if let Some(mut plan) = best {
                plan.steps = budget.steps;
                return Ok(plan);
            }
        }
        match &denied.reason {
            Some(reason @ Reason::Spares { .. }) if !is_last => {
                return Err(refusal(reason.clone(), budget.steps));
            }
            Some(_) => {
                return self.search_denied(
                    &problem,
                    world,
                    cost_model,
                    &goals,
                    denied,
                    &mut budget,
                );
            }
            None => {}
        }
        if problem.demands.iter().all(|demand| demand.min == 0) {
            // All required members are placed, and no other member fits.
            return Ok(Plan { steps: budget.steps, ..Plan::default() });
        }
        let answer = search_all(&problem, world, cost_model, &min, &mut budget);
        answer.map_err(|refusal| {
            let is_settled = matches!(refusal.reason, Reason::Exhausted { .. });
            let remedy = is_settled.then(|| self.remedy(&problem, world, cost_model, None));
            Refusal { remedy: remedy.flatten(), ..refusal }
        })
    }

    /// The cheapest change without disruption that would allow a plan.
    fn remedy(
        &self,
        problem: &Problem<'_>,
        world: &mut World,
        cost_model: &dyn CostModel,
        bound: Option<&FailedBound>,
    ) -> Option<Remedy> {
        let changes = infeasibility::changes(problem, bound);
        let found = changes.into_iter().find(|(_, gang)| {
            // For one group the bounds are exact, and a refusal should be fast.
            if gang.groups.len() == 1 && !cost_model.has_limits() {
                return true;
            }
            let problem = problem.with(gang);
            let goal = Goal::min(&problem.demands);
            let roots = problem.roots();
            let mut budget = Budget { steps: 0, limit: self.max_steps / 4 };
            let found = Self::try_areas(&problem, world, cost_model, &roots, &goal, &mut budget);
            found.iter().any(|found| found.denied.is_none())
        });
        let added = || infeasibility::more_nodes(problem, &world.cluster, bound?);
        found.map(|(remedy, _)| remedy).or_else(added)
    }

    /// Attempts in the areas of some roots, the best first.
    fn try_areas(
        problem: &Problem<'_>,
        world: &mut World,
        cost_model: &dyn CostModel,
        roots: &[DomainId],
        goal: &Goal,
        budget: &mut Budget,
    ) -> Vec<Evaluated> {
        let mut found: Vec<Evaluated> = Vec::new();
        let areas = problem.areas(roots, goal);
        // If one node holds all members, no shorter ring exists.
        let has_node = areas.iter().any(|area| area.node.is_some());
        for area in areas {
            for order in orders(problem, &area, has_node) {
                if budget.is_spent() && !found.is_empty() {
                    break;
                }
                let cluster = &mut world.cluster;
                let placed = attempt::attempt(problem, cluster, &area, goal, order, budget);
                let Some(placed) = placed else { continue };
                if found.iter().all(|other| other.placed != placed) {
                    found.push(evaluate(world, &problem.request, cost_model, placed));
                }
            }
        }
        // Stable: of equals the one whose area came first.
        found.sort_by(|a, b| compare_found(cost_model, a, b));
        found
    }
}

/// The exhaustive search, for problems that the attempts did not settle.
fn search_all(
    problem: &Problem<'_>,
    world: &mut World,
    cost_model: &dyn CostModel,
    goal: &Goal,
    budget: &mut Budget,
) -> PlanResult {
    let roots =
        problem.roots().into_iter().map(Area::domain).filter(|area| problem.admits(area, goal));
    let (mut searched, mut is_settled) = (0, true);
    for area in roots {
        let outcome = exhaustive::search(problem, &mut world.cluster, &area, goal, budget);
        match outcome {
            exhaustive::Outcome::Found(placed) => {
                let found = evaluate(world, &problem.request, cost_model, placed);
                if found.denied.is_some() {
                    // Others in this area may be allowed: it is not searched on.
                    is_settled = false;
                    continue;
                }
                let plan = plan_of(vec![found], world, cost_model, budget.steps);
                return Ok(plan.unwrap_or_default());
            }
            exhaustive::Outcome::None => searched += 1,
            exhaustive::Outcome::Unknown => is_settled = false,
        }
    }
    let level = problem.topology.levels()[usize::from(problem.level().0)].clone();
    let reason = if is_settled {
        Reason::Exhausted { level, searched }
    } else {
        Reason::Steps { limit: budget.limit }
    };
    Err(refusal(reason, budget.steps))
}

/// Orders of nodes that may make a difference in an area.
fn orders(problem: &Problem<'_>, area: &Area, has_node: bool) -> Vec<NodeOrder> {
    match area.node {
        Some(_) => return vec![NodeOrder::Compact],
        None if has_node => return vec![NodeOrder::UsedFirst],
        None => {}
    }
    let positions = area.positions(problem.topology);
    let counts = |group: &usize| {
        let counts = &problem.free_slots[*group].counts;
        counts.get(positions.start as usize..positions.end as usize).unwrap_or_default()
    };
    // If no node holds two members, hops do not depend on the nodes chosen in a domain. No used
    // node holds as much as a free one then either.
    let is_single = problem.order.iter().all(|group| counts(group).iter().all(|count| *count <= 1));
    if is_single {
        vec![NodeOrder::Compact, NodeOrder::UsedFirst]
    } else {
        vec![
            NodeOrder::Compact,
            NodeOrder::UsedFirst,
            NodeOrder::MostSlots,
            NodeOrder::ShortestRing,
        ]
    }
}

fn evaluate(
    world: &World,
    request: &Request<'_>,
    cost_model: &dyn CostModel,
    placed: Vec<Placed>,
) -> Evaluated {
    let none = DisruptionSet::default();
    let mut cost = cost_model.cost(world, request.gang, &placed, none);
    if !request.pinned.is_empty() {
        let pinned = request.pinned.iter().map(|pin| (pin.rank, pin.placement.node));
        let placed = placed.iter().map(|placed| (placed.rank, placed.placement.node));
        let ring: std::collections::BTreeMap<u32, NodeId> = pinned.chain(placed).collect();
        cost.set(CostTerm::Hops, ring_hops(&world.topology, ring.into_values()));
    }
    let denied = cost_model.check(world, request.gang, &placed, none, &cost).err();
    Evaluated { placed, cost, denied }
}

fn compare_found(cost_model: &dyn CostModel, a: &Evaluated, b: &Evaluated) -> Ordering {
    let members = b.placed.len().cmp(&a.placed.len());
    members.then_with(|| cost_model.compare(&a.cost, &b.cost))
}

/// The plan of the first, with the second as its runner-up.
fn plan_of(
    found: Vec<Evaluated>,
    world: &World,
    cost_model: &dyn CostModel,
    steps: u64,
) -> Option<Plan> {
    let mut found = found.into_iter();
    let Evaluated { placed, cost, .. } = found.next()?;
    let runner_up = found.next().map(|other| RunnerUp {
        place: ranks::describe(world, &other.placed),
        worse_in: cost_model.worse_in(&cost, &other.cost),
        cost: other.cost,
    });
    Some(Plan { placements: placed, cost, runner_up, steps, ..Plan::default() })
}

fn refusal(reason: Reason, steps: u64) -> Refusal {
    Refusal { reason, remedy: None, steps }
}
