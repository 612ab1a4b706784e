//! Whom to move or evict so that something fits, with the least disturbance.
//!
//! 1. *Bound*: what would fit if everybody went who may be disturbed? If that is too little, the
//!    answer is no, without a search.
//! 2. *Offers*: for each node the cheapest pods that make room for 1, 2, ... members. Nodes that
//!    are alike up to names and numbers offer the same and are looked at once: 4,000 equal pods on
//!    500 full nodes are one node.
//! 3. *Choice*: for each domain in which the gang may be, the nodes with the least sum.
//! 4. *Play*: victims go, members come, moved pods get places on nodes from which nobody is moved
//!    away (the fullest that fit, the largest pod first); who turns out not to be needed stays, the
//!    dearest asked first.
//!
//! Victims are units. A pod goes alone where its workload has more members than it needs; else the
//! whole workload goes, wherever its members are. A moved pod moves alone, within the domain in
//! which its workload must be.
//!
//! Of two sets of victims the better one has, in this order: fewer pods, fewer evictions, a lower
//! highest priority of who is evicted, less work lost (seconds at risk times GPUs), lower priorities
//! in sum, smaller pods, newer workloads; before age the judge is asked about the members' own
//! places. Nobody is disturbed to save hops.
//!
//! There are no chains (a pod that moves to where another one moves away, or to where somebody is
//! evicted for it alone), and nobody moves within its node: so moves can be carried out in any order,
//! and a place is free when its move starts.
//! Members of a gang above its minimum disturb nobody; they come later, by growth.

mod choose_nodes;
mod disruption_cost;
mod domain_assignments;
mod node_options;
mod node_view;
mod option_cache;
pub(crate) mod relocation;
mod remedy;
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
pub use remedy::cheapest_remedy;

use crate::World;
use crate::fit;
use crate::node::NodeId;
use crate::objective::{CostTerm, CostVector};
use crate::plan::{DisruptionSet, Placed, Plan, PlanResult, Reason, Refusal, RunnerUp};
use crate::solve::areas::{roots, tiers};
use crate::solve::residual::{GroupDemand, demands};
use crate::solve::{CostModel, Request, ranks, ring_hops};
use crate::topology::{DomainId, LevelId};
use crate::workload::Profile;
use domain_assignments::DomainAssignment;
use option_cache::OptionCache;
use relocation::is_in_scope;
use simulate::{Infeasible, SearchContext, SimulatedPlan, Simulation};
use victims::{PodClass, VictimPool};

/// Domains that are played through at most once a plan is found.
const MAX_SIMULATED_DOMAINS: usize = 8;

/// Whom a decision may disturb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptionBudget {
    /// How many pods may be moved at most, of workloads that are movable, whatever their priority.
    pub moves: u32,
    /// Who may be evicted; none: nobody.
    pub evictions: Option<EvictionScope>,
    /// States of nodes that are looked at, about, before the search ends.
    pub steps: u64,
}

/// Who may be evicted.
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

    /// Nobody.
    pub fn none() -> Self {
        Self { moves: 0, evictions: None, steps: Self::STEPS }
    }

    /// Up to so many moves, no eviction.
    pub fn moves(moves: u32) -> Self {
        Self { moves, ..Self::none() }
    }

    /// Evictions of anybody preemptible below a priority, no moves.
    pub fn evictions_below(priority: i32) -> Self {
        let evictions = EvictionScope { below_priority: priority, tenants: None };
        Self { evictions: Some(evictions), ..Self::none() }
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

/// A plan that disturbs as few as possible, within `preemption_budget`. The workload of the request's name
/// is not disturbed. `world` is as before when this returns.
///
/// A refusal says [`Reason::Bound`] where a bound proves it; [`Reason::Steps`] where no plan was
/// found, for which the choice of victims is no proof; [`Reason::Exhausted`] where groups that must lie
/// together fit the gang's domains each by itself, but no one domain of theirs has room for all.
pub fn plan(
    world: &mut World,
    request: &Request<'_>,
    preemption_budget: &PreemptionBudget,
    cost_model: &dyn CostModel,
) -> PlanResult {
    let mut spent = 0;
    let mut answer = search(world, request, preemption_budget, cost_model, &mut spent);
    if matches!(answer, Err(Reason::Spares { .. })) && spent < preemption_budget.steps {
        // No bound tells which nodes must stay free: once more without those.
        let forbidden = &cost_model.kept_free(world) | request.forbidden;
        let spared = Request { forbidden: &forbidden, ..*request };
        answer = search(world, &spared, preemption_budget, cost_model, &mut spent).or(answer);
    }
    if matches!(answer, Err(Reason::Steps { .. }))
        && preemption_budget.moves > 0
        && spent < preemption_budget.steps
    {
        // Moves that seemed the least disturbance found no place; evictions need none.
        let rest = PreemptionBudget { moves: 0, ..preemption_budget.clone() };
        answer = search(world, request, &rest, cost_model, &mut spent).or(answer);
    }
    answer.map_err(|reason| Refusal { reason, remedy: None, steps: spent })
}

/// A domain played through.
struct SimulatedDomain {
    domain: DomainId,
    level: LevelId,
    /// In words, for whoever compares it with another.
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
    let own = world.workloads.named(&request.gang.profile.name);
    let mut pool = VictimPool::gather(world, preemption_budget, own);
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
    let assignments =
        domain_assignments::domain_assignments(&world.topology, &demands, &max_fit, &open);
    if assignments.is_empty() {
        return Err(exhausted(world, loosest.1, open.len()));
    }
    let classes = pool.assign_pod_classes(world);
    let mut cache = OptionCache::new(world.cluster.node_count(), classes.len());
    cache.is_immovable = (0..)
        .zip(&classes)
        .map(|(number, class)| !can_move(world, request, &pool, number, class))
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

/// Ways with what they are about to cost, their level and domain. Half of what may still be looked at is
/// kept to play the best of them.
fn estimates(
    world: &World,
    context: SearchContext<'_>,
    cache: &mut OptionCache,
    assignments: &[DomainAssignment<'_>],
    spent: &mut u64,
) -> Vec<(DisruptionCost, Reverse<LevelId>, DomainId, usize)> {
    let limit = *spent + context.limit.saturating_sub(*spent) / 2;
    // What is the same for all ways of a domain.
    let mut of_rest: BTreeMap<DomainId, Option<DisruptionCost>> = BTreeMap::new();
    let (mut order, mut next) = (Vec::new(), None);
    for (index, DomainAssignment { domain, level, colocation_id, demands }) in
        assignments.iter().enumerate()
    {
        let context = SearchContext { demands, limit, ..context };
        let is_own = |demand: &GroupDemand| {
            colocation_id.is_some() && demand.colocation_id == *colocation_id
        };
        let rest = *of_rest.entry(*domain).or_insert_with(|| {
            context.estimate(world, cache, spent, *domain, |demand| !is_own(demand))
        });
        let own = context.estimate(world, cache, spent, *domain, is_own);
        if let (Some(rest), Some(own)) = (rest, own) {
            order.push((rest.max(own), Reverse(*level), *domain, index));
        }
        if *spent > limit {
            // What was not looked at to the end may be possible all the same.
            next = Some((DisruptionCost::ZERO, Reverse(*level), *domain, index));
            break;
        }
    }
    if order.is_empty() { next.into_iter().collect() } else { order }
}

/// Plays the most promising domains through; the reason if there is none.
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
        return Err(denied.unwrap_or(Reason::Steps { limit: limit.min(*spent) }));
    }
    Ok(simulated)
}

/// Plays one domain through; pods that turn out not to be movable there are left out.
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
    // Each round but the last makes one kind of pods stuck.
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
    // The seats were compared among themselves; the plan costs what its victims' going changes, too.
    let evictions = plan.evictions(context.pool);
    let disruptions = DisruptionSet { moves: &plan.moves, evictions: &evictions };
    let mut cost = cost(world, context.request, cost_model, &plan.placements, disruptions);
    cost.set(CostTerm::PodsDisturbed, plan.disruption_cost.pods);
    Some((plan, cost))
}

/// What the members' places cost; hops over all members where some are pinned.
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
        let own = ring_hops(&world.topology, placed.iter().map(|placed| placed.placement.node));
        cost.add(CostTerm::Hops, ring_hops(&world.topology, ring.into_values()) - own);
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

/// Whether there is a place at all to which pods of a kind could be moved now.
fn can_move(
    world: &World,
    request: &Request<'_>,
    pool: &VictimPool,
    number: u32,
    class: &PodClass,
) -> bool {
    let is_wanted = pool
        .pods
        .iter()
        .any(|pod| pod.class == number && pool.workloads[pod.workload as usize].may_move);
    is_wanted
        && world.cluster.states().iter().any(|(_, state, nodes)| {
            fit::fits(&world.cluster, state, &class.shape)
                && nodes.iter().any(|node| {
                    !request.forbidden.contains(node)
                        && is_in_scope(&world.topology, class.scope, *node)
                })
        })
}

fn exhausted(world: &World, level: LevelId, searched: usize) -> Reason {
    let name = world.topology.levels().get(usize::from(level.0));
    let name = name.map_or_else(|| "cluster".into(), Arc::clone);
    Reason::Exhausted { level: name, searched: u32::try_from(searched).unwrap_or(u32::MAX) }
}
