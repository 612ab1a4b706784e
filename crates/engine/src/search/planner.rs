//! One decision with all its inputs: the same for a live cluster, an explain request and a replay.
//!
//! The packing policy places a single pod without constraints. The gang search places everything
//! else, compared by the placement policy. Caches between decisions (bounds, figures) affect
//! speed, not results. The exception is the learned demand of the packing policy, which is saved
//! with a snapshot.

mod preferences;
mod risk;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::World;
use crate::cluster::Cluster;
use crate::fragmentation::TypicalPods;
use crate::gang::Gang;
use crate::objective::cost::PolicyCostModel;
use crate::objective::fairness::FairShares;
use crate::objective::policy::{PlacementPolicy, PolicyError};
use crate::objective::{CostModel, CostTerm};
use crate::packing::Packing;
use crate::packing::domains::{InDomains, UnusedNodes};
use crate::packing::price::PricePolicy;
use crate::placement::Placement;
use crate::plan::{Plan, PlanResult, Reason, Refusal};
use crate::pod_planner::{self, raised_limit};
use crate::preemption::{self, PreemptionBudget};
use crate::shape::{GpuDemand, Shape};
use crate::snapshot::{PackingRecord, SnapshotError};
use crate::solve::{NodeSet, Pinned, Request, Solver};
use crate::workload::Member;

/// The input of a decision.
#[derive(Clone, Copy, Debug)]
pub struct DecisionInput<'a> {
    /// The gang to place, including pinned members.
    pub gang: &'a Gang,
    /// Members that have their places.
    pub pinned: &'a [Pinned],
    /// Nodes that get no member.
    pub forbidden: &'a NodeSet,
    /// The disruption that the decision may cause.
    pub preemption_budget: &'a PreemptionBudget,
    /// How plans are compared. It must be valid for this world ([`PlacementPolicy::check`]).
    pub policy: &'a PlacementPolicy,
    /// Other waiting gangs: they count for typical pods and for fair shares.
    pub waiting: &'a [Gang],
    /// Weights of tenants; 1 where none is named.
    pub weights: &'a BTreeMap<Arc<str>, u32>,
}

/// Decides, and caches data between decisions. Use one for each world.
#[derive(Clone, Debug)]
pub struct Planner {
    /// None: single pods are searched like gangs and compared in every cost term.
    packing: Option<PricePolicy>,
    domains: UnusedNodes,
    solver: Solver,
}

impl Default for Planner {
    fn default() -> Self {
        Self::with_packing(PricePolicy::learned())
    }
}

impl Planner {
    /// A planner with the learned state of a packing policy.
    pub fn with_packing(packing: PricePolicy) -> Self {
        Self { packing: Some(packing), ..Self::without_packing() }
    }

    /// A planner without a packing policy: it searches for a single pod as for a gang.
    pub fn without_packing() -> Self {
        let (domains, solver) = (UnusedNodes::default(), Solver::default());
        Self { packing: None, domains, solver }
    }

    /// A planner with the packing policy of a snapshot.
    pub fn restored(form: &PackingRecord, cluster: &Cluster) -> Result<Self, SnapshotError> {
        Ok(Self::with_packing(PricePolicy::restored(form, cluster)?))
    }

    /// The learned state of the packing policy, for a snapshot; `None` without one.
    pub fn saved(&self, cluster: &Cluster) -> Option<PackingRecord> {
        self.packing.as_ref().map(|packing| packing.saved(cluster))
    }

    /// Records the arrival of a pod. Call it once for each pod, before its decision.
    pub fn arrived(&mut self, shape: &Arc<Shape>) {
        if let Some(packing) = &mut self.packing {
            packing.arrived(shape);
        }
    }

    /// A pod has left its place.
    pub fn released(&mut self, shape: &Arc<Shape>, placement: &Placement) {
        if let Some(packing) = &mut self.packing {
            packing.released(shape, placement);
        }
    }

    /// Decides. The world is unchanged afterwards; the caller applies the plan. Fails if the policy
    /// names a level that the world lacks.
    pub fn decide(
        &mut self,
        world: &mut World,
        input: &DecisionInput<'_>,
    ) -> Result<PlanResult, PolicyError> {
        // Before the first decision of any kind: pods that are placed from now on have arrived.
        if let Some(packing) = self.packing.as_mut().filter(|packing| packing.is_new()) {
            let shapes = running(world).map(|member| &member.shape);
            packing.observe_running(&world.cluster, shapes);
        }
        match self.decide_at_any_risk(world, input)? {
            Ok(plan) => self.avoid_risk(world, input, plan).map(Ok),
            refused @ Err(_) => Ok(refused),
        }
    }

    /// Decides; risk counts only among the plans that the search compares.
    fn decide_at_any_risk(
        &mut self,
        world: &mut World,
        input: &DecisionInput<'_>,
    ) -> Result<PlanResult, PolicyError> {
        match self.decide_without_preferences(world, input)? {
            Ok(plan) => self.prefer(world, input, plan).map(Ok),
            refused @ Err(_) => Ok(refused),
        }
    }

    /// Decides; preferences count only among the plans that the search compares.
    fn decide_without_preferences(
        &mut self,
        world: &mut World,
        input: &DecisionInput<'_>,
    ) -> Result<PlanResult, PolicyError> {
        match self.plan_by_packing(world, input)? {
            Some(Err(refusal)) if !input.preemption_budget.is_none() => {
                self.search(world, input, Some(refusal))
            }
            Some(answer) => Ok(answer),
            None => self.search(world, input, None),
        }
    }

    /// Places a single pod without constraints but forbidden nodes by the packing policy; none if it does not apply.
    fn plan_by_packing(
        &mut self,
        world: &World,
        input: &DecisionInput<'_>,
    ) -> Result<Option<PlanResult>, PolicyError> {
        let Some(packing) = self.packing.as_mut().filter(|_| is_packed(input, world)) else {
            return Ok(None);
        };
        let (typical, shares) = (TypicalPods::default(), FairShares::default());
        let cost_model = PolicyCostModel::new(world, input.policy, &typical, &shares)?;
        packing.set_avoids_risk(input.policy.avoids_risk());
        let (domains, topology, forbidden) = (&mut self.domains, &world.topology, input.forbidden);
        let mut packing = InDomains { packing, domains, topology, forbidden };
        let answer = pod_planner::plan_pod(world, &cost_model, &mut packing, input.gang);
        // The search says which nodes are forbidden.
        Ok(Some(answer).filter(|answer| answer.is_ok() || forbidden.is_empty()))
    }

    /// The gang search, including preemption. `refused` is the refusal of the packing policy.
    fn search(
        &mut self,
        world: &mut World,
        input: &DecisionInput<'_>,
        refused: Option<Refusal>,
    ) -> Result<PlanResult, PolicyError> {
        let solver = &mut self.solver;
        let found = Self::with_cost_model(world, input, |world, request, cost_model| {
            admit(world, solver, request, input.preemption_budget, cost_model, refused)
        })?;
        Ok(found.map_err(|refusal| {
            let remedy = raised_limit(&refusal.reason).or(refusal.remedy);
            Refusal { remedy, ..refusal }
        }))
    }

    /// The plan that would disturb the fewest pods, for a request that was refused: by moves alone,
    /// or by evictions below a priority. Of equals the moves. Nothing is decided.
    ///
    /// Each of the two searches takes about `input.preemption_budget.steps`; the second value tells
    /// whether one ran out of them. Whether the request fits without disruption is not checked
    /// again. Fails as [`Self::decide`].
    pub fn cheapest_disruption(
        world: &mut World,
        input: &DecisionInput<'_>,
        below_priority: i32,
    ) -> Result<(Option<Plan>, bool), PolicyError> {
        let steps = input.preemption_budget.steps;
        Self::with_cost_model(world, input, |world, request, cost_model| {
            let mut is_truncated = false;
            let mut ask = |budget: PreemptionBudget| {
                let budget = PreemptionBudget { steps, ..budget };
                let answer = preemption::plan(world, request, &budget, cost_model);
                let spent = answer.as_ref().map_or_else(|refusal| refusal.steps, |plan| plan.steps);
                is_truncated |= spent > steps;
                answer.ok().filter(|plan| !plan.moves.is_empty() || !plan.evictions.is_empty())
            };
            let moves = ask(PreemptionBudget::moves(u32::MAX));
            let evictions = ask(PreemptionBudget::evictions_below(below_priority));
            let pods = |plan: &Plan| plan.cost.of(CostTerm::PodsDisturbed);
            // The first of equals.
            let best = moves.into_iter().chain(evictions).min_by_key(pods);
            (best, is_truncated)
        })
    }

    fn with_cost_model<T>(
        world: &mut World,
        input: &DecisionInput<'_>,
        ask: impl FnOnce(&mut World, &Request<'_>, &dyn CostModel) -> T,
    ) -> Result<T, PolicyError> {
        let typical = typical(world, input);
        let shares = fair_shares(world, input);
        let cost_model = PolicyCostModel::new(world, input.policy, &typical, &shares)?;
        let DecisionInput { gang, pinned, forbidden, .. } = *input;
        let request = Request { gang, pinned, forbidden };
        Ok(ask(world, &request, &cost_model))
    }
}

/// Whether the packing policy alone places a pod: a single one without constraints but forbidden nodes.
fn is_packed(input: &DecisionInput<'_>, world: &World) -> bool {
    let [group] = &input.gang.groups[..] else { return false };
    group.count == 1
        && input.pinned.is_empty()
        && has_few_forbidden(input, world)
        && input.gang.profile.topology.required.is_none()
        && group.topology.required.is_none()
        && group.forbidden.is_empty()
        && group.limits.iter().all(|limit| limit.most > 0)
        && input.policy.is_packing_alone()
}

/// Whether most nodes are not forbidden. The packing policy passes over forbidden nodes one by one.
fn has_few_forbidden(input: &DecisionInput<'_>, world: &World) -> bool {
    2 * input.forbidden.len() <= world.cluster.node_count()
}

/// Places the members that are not pinned: without disruption if possible, else with the least
/// disruption within `budget`. `refused` is the refusal of the packing policy: then the search
/// without victims would find nothing either.
///
/// A refusal has the proof that takes the budget into account, and the remedy without it.
pub(super) fn admit(
    world: &mut World,
    solver: &mut Solver,
    request: &Request<'_>,
    budget: &PreemptionBudget,
    cost_model: &dyn CostModel,
    refused: Option<Refusal>,
) -> PlanResult {
    let is_packed = refused.is_some();
    let refusal = match refused.map_or_else(|| solver.solve(world, request, cost_model), Err) {
        Err(refusal)
            if budget.may_disrupt(&world.workloads)
                && !matches!(refusal.reason, Reason::Request(_)) =>
        {
            refusal
        }
        answer => return answer,
    };
    let Refusal { reason, remedy, steps } = refusal;
    match preemption::plan(world, request, budget, cost_model) {
        Ok(plan) => Ok(Plan { steps: plan.steps.saturating_add(steps), ..plan }),
        Err(other) => {
            let reason = match other.reason {
                // The obstacles on the nodes say more than that no victims help.
                Reason::Bound(_) | Reason::Steps { .. } | Reason::EvictionLimits if is_packed => {
                    reason
                }
                reason => reason,
            };
            Err(Refusal { reason, remedy, steps: other.steps.saturating_add(steps) })
        }
    }
}

/// The members of all workloads.
fn running(world: &World) -> impl Iterator<Item = &Member> {
    world.workloads.iter().flat_map(|(_, workload)| &workload.members).flatten()
}

/// Typical pods: those that run and those that want to.
fn typical(world: &World, input: &DecisionInput<'_>) -> TypicalPods {
    let running = world.workloads.shapes().map(|(shape, members)| (shape, u64::from(members)));
    let gangs = std::iter::once(input.gang).chain(input.waiting);
    let groups = gangs.flat_map(|gang| &gang.groups);
    let wanted = groups.map(|group| (&*group.shape, u64::from(group.count)));
    TypicalPods::new(world.cluster.models(), running.chain(wanted))
}

/// Used, waiting and deserved compute of the tenants.
fn fair_shares(world: &World, input: &DecisionInput<'_>) -> FairShares {
    let DecisionInput { gang, pinned, .. } = *input;
    let mut waiting: BTreeMap<Arc<str>, i64> = BTreeMap::new();
    let waits = input.waiting.iter().filter(|other| {
        other.profile.name != gang.profile.name
            && world.workloads.named(&other.profile.name).is_none()
    });
    let parts = pinned.iter().flat_map(|pin| &pin.placement.gpus);
    let held: i64 = parts.map(|part| i64::from(part.milli)).sum();
    for (gang, held) in waits.map(|other| (other, 0)).chain([(gang, held)]) {
        let milli = milli(world, gang).saturating_sub(held);
        let of_tenant = waiting.entry(Arc::clone(&gang.profile.tenant)).or_default();
        *of_tenant = of_tenant.saturating_add(milli.max(0));
    }
    FairShares::of(world.cluster.totals().gpu_milli, &world.workloads, input.weights, &waiting)
}

/// Compute that a gang requests; for a MIG profile that of the first model with it.
fn milli(world: &World, gang: &Gang) -> i64 {
    let of_shape = |shape: &Shape| match &shape.gpus {
        GpuDemand::Mig { count, profile } => {
            let profiles = world.cluster.models().iter().find_map(|model| model.profile(profile));
            profiles.map_or(0, |profile| i64::from(profile.milli)) * i64::from(*count)
        }
        gpus => gpus.total_milli(),
    };
    let groups = gang.groups.iter();
    let of_group = groups.map(|group| of_shape(&group.shape).saturating_mul(group.count.into()));
    of_group.fold(0, i64::saturating_add)
}
