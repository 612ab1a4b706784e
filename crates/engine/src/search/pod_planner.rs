//! Placement of one pod by a packing policy: the node, the cost and the runner-up.

#[cfg(test)]
pub(super) mod fixtures;
mod infeasible_counts;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use infeasible_counts::{InfeasibleCounts, Obstacle, obstacle};

use crate::World;
use crate::cluster::states::NodeState;
use crate::node::NodeId;
use crate::objective::cost::{Change, PolicyCostModel};
use crate::objective::{CostModel, CostTerm, CostVector};
use crate::packing::{Choice, Packing, Rival};
use crate::pick;
use crate::placement::Placement;
use crate::plan::{Placed, Plan, PlanResult, Reason, Refusal, Remedy, RunnerUp};
use crate::shape::Shape;
use crate::topology::Topology;
use crate::workload::Profile;

/// A place and what it costs.
struct ScoredPlacement {
    placement: Placement,
    cost: CostVector,
}

/// The placement that the packing policy chooses for one pod, or a refusal. The packing price is the
/// negated score. The caller calls [`Packing::arrived`], [`Packing::placed`] and
/// [`Packing::released`]; without these calls a policy learns nothing.
pub fn plan_pod(
    world: &World,
    cost_model: &PolicyCostModel<'_>,
    packing: &mut dyn Packing,
    profile: &Profile,
    shape: &Arc<Shape>,
) -> PlanResult {
    let request = PodRequest { world, cost_model, profile, shape };
    match packing.choose(&world.cluster, shape) {
        Some(choice) => Ok(request.plan(choice, packing.scores_per_millionth())),
        None => Err(request.no_node()),
    }
}

/// A pod with the inputs of its decision.
struct PodRequest<'a> {
    world: &'a World,
    cost_model: &'a PolicyCostModel<'a>,
    profile: &'a Profile,
    shape: &'a Arc<Shape>,
}

impl PodRequest<'_> {
    /// The state of a node with the pod on it.
    fn after(&self, placement: &Placement, before: &NodeState) -> NodeState {
        let mut change = Change::default();
        change.place(&self.world.cluster, &self.shape.resources, placement);
        let after = change.states(&self.world.cluster).next().map(|(_, _, after)| after);
        after.unwrap_or_else(|| before.clone())
    }

    /// The cost of a placement in every term.
    fn cost(&self, placement: &Placement, before: &NodeState) -> CostVector {
        let after = self.after(placement, before);
        let of_node = self.cost_model.node_cost(&self.world.cluster, [before, &after]);
        let (node, milli) = (placement.node, milli(placement));
        of_node.plus(&self.cost_model.pod_cost(self.world, self.profile, node, milli))
    }

    /// The choice of the packing policy, with its cost in the other terms. `each` is the score of a
    /// millionth of a GPU.
    fn plan(&self, choice: Choice, each: i64) -> Plan {
        let priced = |placement: Placement, state: &NodeState, score: i64| {
            let mut cost = self.cost(&placement, state);
            cost.set(CostTerm::PackingPrice, score.saturating_neg() / each.max(1));
            ScoredPlacement { placement, cost }
        };
        let cluster = &self.world.cluster;
        let state = |node: NodeId| cluster.states().state(cluster.state(node));
        let second = choice.runner_up.and_then(|Rival { node, score }| {
            let placement = pick::default_placement(cluster, node, self.shape)?;
            Some(priced(placement, state(node)?, score))
        });
        let best = match state(choice.placement.node) {
            Some(state) => priced(choice.placement, state, choice.score),
            None => ScoredPlacement { placement: choice.placement, cost: CostVector::default() },
        };
        let runner_up = second.map(|second| RunnerUp {
            place: node_description(self.world, second.placement.node),
            worse_in: self.cost_model.worse_in(&best.cost, &second.cost),
            cost: second.cost,
        });
        let placements = vec![Placed { group: 0, rank: 0, placement: best.placement }];
        Plan { placements, cost: best.cost, runner_up, steps: 1, ..Plan::default() }
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
