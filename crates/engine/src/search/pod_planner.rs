//! Placement of one pod under a policy: the node, the cost and the runner-up.
//!
//! Nodes of one state cost the same, so states are compared instead of nodes. For each state every
//! candidate set of GPUs is evaluated. Ties go to the lower node, then to the first candidate.

mod candidates;
mod cost_cache;
mod infeasible_counts;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::sync::Arc;

use cost_cache::CandidateCost;
pub use cost_cache::CostCache;
pub use infeasible_counts::{InfeasibleCounts, Obstacle, obstacle};

use crate::World;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::node::NodeId;
use crate::objective::cost::{Change, PolicyCostModel, is_spare};
use crate::objective::{CostTerm, CostVector};
use crate::packing::{Choice, Packing, Rival};
use crate::placement::Placement;
use crate::plan::{Placed, Plan, PlanResult, Reason, Refusal, Remedy, RunnerUp};
use crate::shape::{GpuDemand, Shape};
use crate::solve::CostModel;
use crate::topology::Topology;
use crate::workload::Profile;

/// A place and what it costs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ScoredPlacement {
    placement: Placement,
    cost: CostVector,
}

/// A node and the cost of its best candidate, in the terms that the policy considers.
#[derive(Clone, Copy, Debug)]
struct NodeCost {
    node: NodeId,
    cost: CostVector,
}

/// The best placement for one pod, or a refusal. If only the packing price decides, `packing`
/// chooses alone, and the price is its negated score. Otherwise every state is evaluated and
/// `packing` is not called. The caller calls [`Packing::arrived`], [`Packing::placed`] and
/// [`Packing::released`]; without these calls a policy learns nothing. `cost_cache` keeps costs for
/// the next decision.
pub fn plan_pod(
    world: &World,
    cost_model: &PolicyCostModel<'_>,
    packing: &mut dyn Packing,
    cost_cache: &mut CostCache,
    profile: &Profile,
    shape: &Arc<Shape>,
) -> PlanResult {
    let request = PodRequest { world, cost_model, profile, shape };
    if cost_model.policy().is_packing_alone() {
        return match packing.choose(&world.cluster, shape) {
            Some(choice) => Ok(request.packing_plan(choice, packing.scores_per_millionth())),
            None => Err(request.no_node()),
        };
    }
    request.best(cost_cache)
}

/// A pod with the inputs of its decision.
#[derive(Clone, Copy)]
struct PodRequest<'a> {
    world: &'a World,
    cost_model: &'a PolicyCostModel<'a>,
    profile: &'a Profile,
    shape: &'a Arc<Shape>,
}

impl PodRequest<'_> {
    /// The best placement by the policy. States are compared in the terms that the policy
    /// considers; only the best two are evaluated in all terms.
    fn best(&self, cost_cache: &mut CostCache) -> PlanResult {
        let cluster = &self.world.cluster;
        let costs = cost_cache.of(cluster.log().cluster_id(), self.shape);
        let mut best: Option<NodeCost> = None;
        let mut second: Option<NodeCost> = None;
        let mut denied: Option<(NodeCost, Reason)> = None;
        let mut steps = 0;
        for (id, state, nodes) in cluster.states().iter() {
            if !fit::fits(cluster, state, self.shape) {
                continue;
            }
            let Some(first) = nodes.first().copied() else { continue };
            let (node, denial) = self.unreserved_node(first, state, nodes.iter().copied());
            let mut of_state: Option<NodeCost> = None;
            for candidate in
                cost_cache::candidate_costs(costs, id, || self.candidate_costs(first, state))
            {
                steps += 1;
                let wanted = |unit| self.cost_model.looks_at(unit);
                let rest = self.cost_model.pod_cost(
                    self.world,
                    self.profile,
                    node,
                    candidate.milli,
                    wanted,
                );
                let found = NodeCost { node, cost: candidate.cost.plus(&rest) };
                let by_cost = self.cost_model.check_limits(&found.cost).err();
                if let Some(reason) = by_cost.or_else(|| denial.clone()) {
                    if denied.as_ref().is_none_or(|(best, _)| self.is_better(&found, best)) {
                        denied = Some((found, reason));
                    }
                } else if of_state.as_ref().is_none_or(|best| self.is_better(&found, best)) {
                    of_state = Some(found);
                }
            }
            let Some(found) = of_state else { continue };
            if best.as_ref().is_none_or(|best| self.is_better(&found, best)) {
                second = best.replace(found);
            } else if second.as_ref().is_none_or(|second| self.is_better(&found, second)) {
                second = Some(found);
            }
        }
        match (best.and_then(|found| self.best_placement_on(found.node)), denied) {
            (Some(best), _) => {
                let second = second.and_then(|found| self.best_placement_on(found.node));
                Ok(self.plan(best, second, steps))
            }
            (None, Some((_, reason))) => {
                let remedy = raised_limit(&reason);
                Err(Refusal { reason, remedy, steps })
            }
            (None, None) => Err(self.no_node()),
        }
    }

    /// The best placement on a node within the limits.
    fn best_placement_on(&self, node: NodeId) -> Option<ScoredPlacement> {
        let state = self.world.cluster.states().state(self.world.cluster.state(node))?;
        let places = self.places(node, state);
        let allowed = places.filter(|place| self.cost_model.check_limits(&place.cost).is_ok());
        allowed.reduce(|best, place| {
            let is_better = self.cost_model.compare(&place.cost, &best.cost).is_lt();
            if is_better { place } else { best }
        })
    }

    /// The cost of each candidate on a node, in the terms that the policy considers.
    fn candidate_costs(&self, node: NodeId, state: &NodeState) -> Box<[CandidateCost]> {
        let wanted = |unit| self.cost_model.looks_at(unit);
        let candidate_costs =
            candidates::of(&self.world.cluster, node, &self.shape.gpus).into_iter();
        candidate_costs
            .map(|gpus| {
                let placement = Placement { node, gpus };
                let after = self.after(&placement, state);
                let cost = self.cost_model.node_cost(&self.world.cluster, [state, &after], wanted);
                CandidateCost { cost, milli: milli(&placement) }
            })
            .collect()
    }

    /// The state of a node with the pod on it.
    fn after(&self, placement: &Placement, before: &NodeState) -> NodeState {
        let mut change = Change::default();
        change.place(&self.world.cluster, &self.shape.resources, placement);
        let after = change.states(&self.world.cluster).next().map(|(_, _, after)| after);
        after.unwrap_or_else(|| before.clone())
    }

    /// The candidate placements on a node with their costs.
    fn places(
        &self,
        node: NodeId,
        state: &NodeState,
    ) -> impl Iterator<Item = ScoredPlacement> + use<'_> {
        let before = state.clone();
        let candidate_costs = candidates::of(&self.world.cluster, node, &self.shape.gpus);
        let this = *self;
        candidate_costs.into_iter().map(move |gpus| {
            let placement = Placement { node, gpus };
            let cost = this.cost(&placement, &before);
            ScoredPlacement { placement, cost }
        })
    }

    /// The cost of a placement in every term.
    fn cost(&self, placement: &Placement, before: &NodeState) -> CostVector {
        let after = self.after(placement, before);
        let of_node = self.cost_model.node_cost(&self.world.cluster, [before, &after], |_| true);
        let (node, milli) = (placement.node, milli(placement));
        of_node.plus(&self.cost_model.pod_cost(self.world, self.profile, node, milli, |_| true))
    }

    /// The first of these nodes, all of one state, that may lose its spare status; or the first
    /// node with the reason for the denial.
    fn unreserved_node(
        &self,
        first: NodeId,
        state: &NodeState,
        nodes: impl Iterator<Item = NodeId>,
    ) -> (NodeId, Option<Reason>) {
        // The choice of node matters only for spare nodes, because they lie in different domains. A
        // pod without GPU capacity leaves a node spare.
        let takes_gpus = match self.shape.gpus {
            GpuDemand::Share { count, milli, memory_mib } => {
                count > 0 && (milli > 0 || memory_mib > 0)
            }
            _ => self.shape.gpus.is_some(),
        };
        if !takes_gpus || !is_spare(&self.world.cluster, state) {
            return (first, None);
        }
        let mut denial = None;
        for node in nodes {
            match self.cost_model.check_spares(self.world, std::iter::once((node, -1))) {
                Ok(()) => return (node, None),
                Err(reason) => {
                    denial.get_or_insert(reason);
                }
            }
        }
        (first, denial)
    }

    fn is_better(&self, a: &NodeCost, b: &NodeCost) -> bool {
        let by_cost = self.cost_model.compare(&a.cost, &b.cost);
        by_cost.then(a.node.cmp(&b.node)) == Ordering::Less
    }

    fn plan(&self, best: ScoredPlacement, second: Option<ScoredPlacement>, steps: u64) -> Plan {
        let runner_up = second.map(|second| RunnerUp {
            place: node_description(self.world, second.placement.node),
            worse_in: self.cost_model.worse_in(&best.cost, &second.cost),
            cost: second.cost,
        });
        let placements = vec![Placed { group: 0, rank: 0, placement: best.placement }];
        Plan { placements, cost: best.cost, runner_up, steps, ..Plan::default() }
    }

    /// The choice of the packing policy, with its cost in the other terms. `each` is the score of a
    /// millionth of a GPU.
    fn packing_plan(&self, choice: Choice, each: i64) -> Plan {
        let priced = |placement: Placement, state: &NodeState, score: i64| {
            let mut cost = self.cost(&placement, state);
            cost.set(CostTerm::PackingPrice, score.saturating_neg() / each.max(1));
            ScoredPlacement { placement, cost }
        };
        let cluster = &self.world.cluster;
        let state = |node: NodeId| cluster.states().state(cluster.state(node));
        let second = choice.runner_up.and_then(|Rival { node, score }| {
            let state = state(node)?;
            let place = self.best_placement_on(node)?;
            Some(priced(place.placement, state, score))
        });
        let cost = match state(choice.placement.node) {
            Some(state) => priced(choice.placement.clone(), state, choice.score).cost,
            None => CostVector::default(),
        };
        self.plan(ScoredPlacement { placement: choice.placement, cost }, second, 1)
    }

    fn no_node(&self) -> Refusal {
        let infeasible = InfeasibleCounts::of(&self.world.cluster, self.shape);
        let remedy = infeasible
            .template
            .map(|node| Remedy::MoreNodes { nodes: 1, like: self.world.cluster.name(node).into() });
        Refusal { reason: Reason::NoNode(infeasible), remedy, steps: 0 }
    }
}

/// Compute that a pod takes, in thousandths of a GPU.
fn milli(placement: &Placement) -> i64 {
    placement.gpus.iter().map(|part| i64::from(part.milli)).sum()
}

/// The limit that the policy would have to have.
pub(crate) fn raised_limit(reason: &Reason) -> Option<Remedy> {
    match reason {
        Reason::Constraint { unit, found, .. } => Some(Remedy::Constraint { unit, to: *found }),
        Reason::Spares { found, .. } => {
            Some(Remedy::Constraint { unit: "spare nodes", to: *found })
        }
        _ => None,
    }
}

/// A node and where it lies.
pub(crate) fn node_description(world: &World, node: NodeId) -> String {
    let name = world.cluster.name(node);
    match world.topology.leaf_domain(node) {
        Topology::ROOT => format!("node {name}"),
        home => format!("node {name} in {}", world.topology.path(home)),
    }
}
