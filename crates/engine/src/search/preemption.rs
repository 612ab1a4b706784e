//! Preemption and relocation: the least disruption that makes a request fit.
//!
//! 1. *Bound*: the number of members that fit without all possible victims. If that is too small,
//!    the request is refused without a search.
//! 2. *Options*: for each node the cheapest pods whose removal fits 1, 2, ... members. Nodes that
//!    are equal up to names and numbers share their options: 4,000 equal pods on 500 full nodes are
//!    evaluated once.
//! 3. *Choice*: for each domain in which the gang may be, the nodes with the least total cost.
//! 4. *Simulation*: remove victims, place members, relocate moved pods. A moved pod goes to the
//!    fullest fitting node from which no pod is moved away; the largest pod is first. Victims that
//!    turn out not to be needed are reprieved, the most expensive first.
//!
//! Limits on evictions count evicted and moved pods over the whole plan. No plan exceeds one. The
//! options of a node and the sums of the choice keep alternatives that use limits differently.
//! What is kept is bounded, and groups of a gang are placed one after another. So a plan within
//! tight limits may be missed for a gang, or on a node with more than 1,024 sets of victims.
//!
//! A disruption is one pod if its workload has members above its minimum, else the whole workload,
//! wherever its members are. A moved pod moves alone, within the domain that its workload requires.
//!
//! The highest priority among the evicted pods is minimal: one pod of a high priority is not evicted
//! to save two of a low one. It is found by bisection over the priorities that exist, as far as the
//! steps suffice. Sets of victims up to that priority are compared in this order: fewer pods, fewer evictions, less lost work
//! (seconds at risk times GPUs), a lower sum of priorities, smaller pods, newer workloads. Before age,
//! the cost model compares the members' placements. No pod is disrupted to save hops.
//! kube-scheduler compares priorities, their sum and the number in that order. In its sum each pod
//! counts 2^31 more than its priority, so there, too, the number decides first.
//!
//! There are no chains: no pod moves to capacity that another move or a separate eviction would
//! free. No pod moves within its node. Moves can therefore run in any order, and the target is free
//! when a move starts. Members of a gang above its minimum disrupt no pods; they are added later by
//! growth.

mod choose_nodes;
mod disruption_cost;
mod domain_assignments;
mod eviction_uses;
mod node_options;
mod node_view;
mod option_cache;
pub(crate) mod relocation;
mod simulate;
mod upper_bound;
mod victims;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use disruption_cost::DisruptionCost;

use crate::World;
use crate::node::NodeId;
use crate::objective::{CostModel, CostTerm, CostVector};
use crate::plan::{DisruptionSet, Placed, Plan, PlanResult, Reason, Refusal, RunnerUp};
use crate::solve::areas::{roots, tiers};
use crate::solve::residual::{GroupDemand, demands};
use crate::solve::{Request, ranks, ring_hops};
use crate::topology::{DomainId, LevelId};
use crate::workload::{MemberId, Profile, Workloads};
use domain_assignments::DomainAssignment;
use option_cache::OptionCache;
use simulate::{Infeasible, SearchContext, SimulatedPlan, Simulation};
use victims::VictimPool;

/// Domains to simulate at most once a plan is found.
const MAX_SIMULATED_DOMAINS: usize = 8;

/// The disruption that a decision may cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptionBudget {
    /// The maximum number of moved pods, of movable workloads of any priority.
    pub moves: u32,
    /// Workloads that may be evicted; none: no evictions.
    pub evictions: Option<EvictionScope>,
    /// States of nodes that are looked at, about, before the search ends.
    pub steps: u64,
}

/// The workloads that may be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionScope {
    /// Preemptible workloads of a priority below this one.
    pub below_priority: i32,
    /// Of these tenants; none: of any.
    pub tenants: Option<BTreeSet<Arc<str>>>,
}

impl PreemptionBudget {
    /// Steps that are enough for clusters of some thousand nodes.
    pub const STEPS: u64 = 4_000_000;

    /// No disruption.
    pub fn none() -> Self {
        Self { moves: 0, evictions: None, steps: Self::STEPS }
    }

    /// Up to `moves` moves, no evictions.
    pub fn moves(moves: u32) -> Self {
        Self { moves, ..Self::none() }
    }

    /// Evictions of preemptible workloads below a priority, no moves.
    pub fn evictions_below(priority: i32) -> Self {
        let evictions = EvictionScope { below_priority: priority, tenants: None };
        Self { evictions: Some(evictions), ..Self::none() }
    }

    /// Whether no disruption is allowed.
    pub fn is_none(&self) -> bool {
        self.moves == 0 && self.evictions.is_none()
    }

    /// Whether any workload may be disrupted. Which tenants' workloads may be evicted is ignored.
    pub(crate) fn may_disrupt(&self, workloads: &Workloads) -> bool {
        let may_evict =
            |scope: &EvictionScope| workloads.has_preemptible_below(scope.below_priority);
        self.evictions.as_ref().is_some_and(may_evict)
            || (self.moves > 0 && workloads.has_movable())
    }

    /// Whether a workload may be evicted.
    pub fn may_evict(&self, profile: &Profile) -> bool {
        self.evictions.as_ref().is_some_and(|evictions| {
            profile.is_preemptible
                && profile.priority < evictions.below_priority
                && evictions.tenants.as_ref().is_none_or(|only| only.contains(&profile.tenant))
        })
    }
}

/// The plan with the least disruption within `preemption_budget`. The workload with the request's
/// name is not disrupted. `world` is unchanged on return.
///
/// The reason of a refusal is [`Reason::Bound`] if a bound proves it. It is [`Reason::Steps`] if no
/// plan was found, because the choice of victims is not exhaustive; with tight limits on evictions
/// it is [`Reason::EvictionLimits`], unless the steps are spent. It is [`Reason::Exhausted`] if
/// each colocated group fits the gang's domains alone, but no domain fits all of them.
pub fn plan(
    world: &mut World,
    request: &Request<'_>,
    preemption_budget: &PreemptionBudget,
    cost_model: &dyn CostModel,
) -> PlanResult {
    let mut spent = 0;
    let mut answer = least_disruption(world, request, preemption_budget, cost_model, &mut spent);
    if let (Ok(plan), Some(scope)) = (&answer, &preemption_budget.evictions) {
        let lower = lower_priorities(world, plan, preemption_budget);
        // More moves instead of an eviction would disturb more pods.
        let disturbed = plan.evictions.len().saturating_add(plan.moves.len());
        let moves = preemption_budget.moves.min(u32::try_from(disturbed).unwrap_or(u32::MAX));
        let (mut low, mut high) = (0, lower.len());
        while low < high && spent < preemption_budget.steps {
            let middle = low.midpoint(high);
            let scope = EvictionScope { below_priority: lower[middle] + 1, ..scope.clone() };
            let narrower =
                PreemptionBudget { evictions: Some(scope), moves, ..preemption_budget.clone() };
            let found = least_disruption(world, request, &narrower, cost_model, &mut spent);
            if found.is_ok() {
                (answer, high) = (found, middle);
            } else {
                low = middle + 1;
            }
        }
    }
    answer.map_err(|reason| Refusal { reason, remedy: None, steps: spent })
}

/// The priorities of workloads that may be evicted, in ascending order, as far as they are lower
/// than that of the plan's most important victim.
fn lower_priorities(world: &World, plan: &Plan, preemption_budget: &PreemptionBudget) -> Vec<i32> {
    let priority = |victim: &MemberId| {
        world.workloads.workload(victim.workload).map(|workload| workload.profile.priority)
    };
    let Some(highest) = plan.evictions.iter().filter_map(priority).max() else {
        return Vec::new();
    };
    let profiles = world.workloads.iter().map(|(_, workload)| &workload.profile);
    let evictable = profiles.filter(|profile| preemption_budget.may_evict(profile));
    let lower = evictable.map(|profile| profile.priority).filter(|priority| *priority < highest);
    lower.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The plan with the fewest disrupted pods within `preemption_budget`.
fn least_disruption(
    world: &mut World,
    request: &Request<'_>,
    preemption_budget: &PreemptionBudget,
    cost_model: &dyn CostModel,
    spent: &mut u64,
) -> Result<Plan, Reason> {
    let mut answer = search(world, request, preemption_budget, cost_model, spent);
    if matches!(answer, Err(Reason::Spares { .. })) && *spent < preemption_budget.steps {
        // No bound tells which nodes must stay free: repeat the search without them.
        let forbidden = &cost_model.kept_free(world) | request.forbidden;
        let spared = Request { forbidden: &forbidden, ..*request };
        answer = search(world, &spared, preemption_budget, cost_model, spent).or(answer);
    }
    if matches!(answer, Err(Reason::Steps { .. } | Reason::EvictionLimits))
        && preemption_budget.moves > 0
        && *spent < preemption_budget.steps
    {
        // The moves with the least disruption found no target; evictions need none.
        let evictions_only = PreemptionBudget { moves: 0, ..preemption_budget.clone() };
        answer = search(world, request, &evictions_only, cost_model, spent).or(answer);
    }
    answer
}

/// The simulation of one domain.
struct SimulatedDomain {
    domain: DomainId,
    level: LevelId,
    /// The placement as text, for comparison with others.
    place: String,
    plan: SimulatedPlan,
    cost: CostVector,
}

fn search(
    world: &mut World,
    request: &Request<'_>,
    preemption_budget: &PreemptionBudget,
    cost_model: &dyn CostModel,
    spent: &mut u64,
) -> Result<Plan, Reason> {
    request.gang.check(world.topology.levels().len())?;
    let demands = demands(&world.topology, request);
    let own_workload = world.workloads.named(&request.gang.profile.name);
    let mut pool = VictimPool::gather(world, preemption_budget, own_workload);
    let max_fit = upper_bound::max_fit(world, &pool, request, &demands);
    *spent += (world.cluster.node_count() * demands.len()) as u64;
    let mut open: Vec<(DomainId, LevelId)> = Vec::new();
    let mut loosest = (Vec::new(), LevelId(0));
    for level in tiers(request.gang) {
        let roots = roots(&world.topology, request, level);
        for root in &roots {
            let is_new = open.iter().all(|(cache, _)| cache != root);
            if is_new && upper_bound::admits(&world.topology, &demands, &max_fit, *root) {
                open.push((*root, level));
            }
        }
        loosest = (roots, level);
    }
    if open.is_empty() {
        let (roots, level) = loosest;
        let failed = upper_bound::failed_bound(world, request, &demands, &max_fit, &roots, level);
        return Err(failed.map_or_else(|| exhausted(world, level, roots.len()), Reason::Bound));
    }
    if preemption_budget.evictions.is_none()
        && let Some(failed) = upper_bound::failed_by_moves(world, request, &demands)
    {
        return Err(Reason::Bound(failed));
    }
    let failed =
        upper_bound::retain_within_limits(world, &pool, request, &demands, &max_fit, &mut open);
    if let Some(failed) = failed {
        return Err(Reason::Bound(failed));
    }
    let assignments =
        domain_assignments::domain_assignments(&world.topology, &demands, &max_fit, &open);
    if assignments.is_empty() {
        return Err(exhausted(world, loosest.1, open.len()));
    }
    let classes = pool.assign_pod_classes(world);
    let mut cache = OptionCache::new(world.cluster.node_count(), classes.len());
    cache.is_immovable = (0..)
        .zip(&classes)
        .map(|(number, class)| !relocation::can_move(world, request, &pool, number, class))
        .collect();
    let context = SearchContext {
        request,
        demands: &demands,
        max_fit: &max_fit,
        pool: &pool,
        classes: &classes,
        max_moves: preemption_budget.moves,
        limit: preemption_budget.steps,
    };
    let simulated = simulate_all(
        world,
        context,
        &mut cache,
        &assignments,
        preemption_budget,
        cost_model,
        spent,
    );
    finish(&context, cost_model, simulated, *spent)
}

/// Estimated cost, level and domain of each assignment. Half of the remaining steps are kept for
/// simulating the best ones.
fn estimates(
    world: &World,
    context: SearchContext<'_>,
    cache: &mut OptionCache,
    assignments: &[DomainAssignment<'_>],
    spent: &mut u64,
) -> Vec<(DisruptionCost, Reverse<LevelId>, DomainId, usize)> {
    let limit = *spent + context.limit.saturating_sub(*spent) / 2;
    // The part that all assignments of a domain share.
    let mut of_rest: BTreeMap<DomainId, Option<DisruptionCost>> = BTreeMap::new();
    let (mut order, mut next) = (Vec::new(), None);
    for (index, DomainAssignment { domain, level, colocation_id, demands }) in
        assignments.iter().enumerate()
    {
        let context = SearchContext { demands, limit, ..context };
        let is_own = |demand: &GroupDemand| {
            colocation_id.is_some() && demand.colocation_id == *colocation_id
        };
        let other_groups = *of_rest.entry(*domain).or_insert_with(|| {
            context.estimate(world, cache, spent, *domain, |demand| !is_own(demand))
        });
        let colocated = context.estimate(world, cache, spent, *domain, is_own);
        if let (Some(other_groups), Some(colocated)) = (other_groups, colocated) {
            order.push((other_groups.max(colocated), Reverse(*level), *domain, index));
        }
        if *spent > limit {
            // An assignment without a complete estimate may still be possible.
            next = Some((DisruptionCost::ZERO, Reverse(*level), *domain, index));
            break;
        }
    }
    if order.is_empty() { next.into_iter().collect() } else { order }
}

/// Simulates the most promising domains; the reason if none succeeds.
fn simulate_all(
    world: &mut World,
    context: SearchContext<'_>,
    cache: &mut OptionCache,
    assignments: &[DomainAssignment<'_>],
    preemption_budget: &PreemptionBudget,
    cost_model: &dyn CostModel,
    spent: &mut u64,
) -> Result<Vec<SimulatedDomain>, Reason> {
    let limit = preemption_budget.steps;
    let mut order = estimates(world, context, cache, assignments, spent);
    order.sort_unstable();
    let mut simulated: Vec<SimulatedDomain> = Vec::new();
    let mut denied = None;
    for (disruption_cost, Reverse(level), domain, number) in order {
        let best = simulated.iter().map(|simulated| simulated.plan.disruption_cost).min();
        let is_dearer = best.is_some_and(|best| {
            (disruption_cost.pods, disruption_cost.evicted) > (best.pods, best.evicted)
        });
        if simulated.len() >= MAX_SIMULATED_DOMAINS
            || *spent > limit
            || (is_dearer && simulated.len() > 1)
        {
            break;
        }
        let context = SearchContext { demands: &assignments[number].demands, ..context };
        let Some((plan, cost)) =
            simulate_one(world, &context, cache, cost_model, domain, spent, limit)
        else {
            continue;
        };
        let evictions = plan.evictions(context.pool);
        let disruptions = DisruptionSet { moves: &plan.moves, evictions: &evictions };
        let placed = &plan.placements;
        match cost_model.check(world, context.request.gang, placed, disruptions, &cost) {
            Ok(()) => {
                let place = match assignments[number].colocation_id {
                    Some(_) => ranks::describe(world, placed),
                    None => world.topology.path(domain),
                };
                simulated.push(SimulatedDomain { domain, level, place, plan, cost });
            }
            Err(reason) => denied = denied.or(Some(reason)),
        }
    }
    if simulated.is_empty() {
        return Err(denied.unwrap_or(if *spent <= limit && !context.pool.limits.is_empty() {
            Reason::EvictionLimits
        } else {
            Reason::Steps { limit: limit.min(*spent) }
        }));
    }
    Ok(simulated)
}

/// Simulates one domain. Pod classes that turn out to be immovable there are excluded.
fn simulate_one(
    world: &mut World,
    context: &SearchContext<'_>,
    cache: &mut OptionCache,
    cost_model: &dyn CostModel,
    domain: DomainId,
    spent: &mut u64,
    limit: u64,
) -> Option<(SimulatedPlan, CostVector)> {
    let is_immovable = cache.is_immovable.clone();
    let mut outcome = None;
    // Each iteration but the last makes one pod class immovable.
    for _ in 0..=context.classes.len() {
        let simulation = Simulation::new(world, context, cache, spent);
        match simulation.run(domain, |world, placed| {
            cost(world, context.request, cost_model, placed, DisruptionSet::default())
        }) {
            Ok(found) => {
                outcome = Some(found);
                break;
            }
            Err(Infeasible::PodClass(class))
                if *spent <= limit && !cache.is_immovable[class as usize] =>
            {
                cache.set_immovable(class);
            }
            Err(_) => break,
        }
    }
    if cache.is_immovable != is_immovable {
        cache.restore(is_immovable);
    }
    let plan = outcome?.0;
    // Placements were compared among themselves. The cost of the plan includes the effect of the
    // victims' removal.
    let evictions = plan.evictions(context.pool);
    let disruptions = DisruptionSet { moves: &plan.moves, evictions: &evictions };
    let mut cost = cost(world, context.request, cost_model, &plan.placements, disruptions);
    cost.set(CostTerm::PodsDisturbed, plan.disruption_cost.pods);
    Some((plan, cost))
}

/// Cost of the members' placements; hops count all members if some are pinned.
fn cost(
    world: &World,
    request: &Request<'_>,
    cost_model: &dyn CostModel,
    placed: &[Placed],
    disruptions: DisruptionSet<'_>,
) -> CostVector {
    let mut cost = cost_model.cost(world, request.gang, placed, disruptions);
    if !request.pinned.is_empty() {
        let mut ring: BTreeMap<u32, NodeId> =
            request.pinned.iter().map(|pin| (pin.rank, pin.placement.node)).collect();
        ring.extend(placed.iter().map(|placed| (placed.rank, placed.placement.node)));
        let placed_hops =
            ring_hops(&world.topology, placed.iter().map(|placed| placed.placement.node));
        cost.add(CostTerm::Hops, ring_hops(&world.topology, ring.into_values()) - placed_hops);
    }
    cost
}

fn finish(
    context: &SearchContext<'_>,
    cost_model: &dyn CostModel,
    simulated: Result<Vec<SimulatedDomain>, Reason>,
    steps: u64,
) -> Result<Plan, Reason> {
    let mut simulated = simulated?;
    simulated.sort_by(|a, b| {
        let (disruption_cost, other_price) = (a.plan.disruption_cost, b.plan.disruption_cost);
        let by_price = disruption_cost.without_age().cmp(&other_price.without_age());
        by_price
            .then_with(|| cost_model.compare(&a.cost, &b.cost))
            .then_with(|| disruption_cost.age.cmp(&other_price.age))
            .then_with(|| b.level.cmp(&a.level))
            .then_with(|| a.domain.cmp(&b.domain))
    });
    let mut simulated = simulated.into_iter();
    let Some(best) = simulated.next() else { return Err(Reason::Steps { limit: steps }) };
    let second = simulated.find(|second| second.place != best.place);
    let runner_up = second.map(|second| {
        let is_dearer = second.plan.disruption_cost.pods.cmp(&best.plan.disruption_cost.pods)
            == Ordering::Greater;
        let worse_in = if is_dearer {
            Some(CostTerm::PodsDisturbed)
        } else {
            cost_model.worse_in(&best.cost, &second.cost)
        };
        RunnerUp { place: second.place, cost: second.cost, worse_in }
    });
    Ok(Plan {
        evictions: best.plan.evictions(context.pool),
        moves: best.plan.moves,
        placements: best.plan.placements,
        cost: best.cost,
        runner_up,
        steps,
    })
}

fn exhausted(world: &World, level: LevelId, searched: usize) -> Reason {
    let name = world.topology.levels().get(usize::from(level.0));
    let name = name.map_or_else(|| "cluster".into(), Arc::clone);
    Reason::Exhausted { level: name, searched: u32::try_from(searched).unwrap_or(u32::MAX) }
}
