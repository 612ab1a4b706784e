//! Placement of one pod by a packing policy: the node, the cost and the runner-up.

mod infeasible_counts;
#[cfg(test)]
pub(super) mod tests;

use std::slice;

pub use infeasible_counts::{InfeasibleCounts, Obstacle, obstacle};

use crate::World;
use crate::gang::Gang;
use crate::node::NodeId;
use crate::objective::{CostModel, CostTerm};
use crate::packing::{Packing, Rival};
use crate::pick;
use crate::placement::Placement;
use crate::plan::{DisruptionSet, Placed, Plan, PlanResult, Reason, Refusal, Remedy, RunnerUp};
use crate::shape::Shape;
use crate::topology::Topology;

/// The placement that the packing policy chooses for the pod of a gang of one, or a refusal. The
/// packing price is the negated score. The caller calls [`Packing::arrived`], [`Packing::placed`]
/// and [`Packing::released`]; without these calls a policy learns nothing.
pub fn plan_pod(
    world: &World,
    cost_model: &dyn CostModel,
    packing: &mut dyn Packing,
    gang: &Gang,
) -> PlanResult {
    let cluster = &world.cluster;
    let shape = &gang.groups[0].shape;
    let Some(choice) = packing.choose(cluster, shape) else { return Err(no_node(world, shape)) };
    let scores_per_millionth = packing.scores_per_millionth().max(1);
    let priced = |placement: Placement, score: i64| {
        let placed = Placed { group: 0, rank: 0, placement };
        let none = DisruptionSet::default();
        let mut cost = cost_model.cost(world, gang, slice::from_ref(&placed), none);
        cost.set(CostTerm::PackingPrice, score.saturating_neg() / scores_per_millionth);
        (placed, cost)
    };
    let second = choice.runner_up.and_then(|Rival { node, score }| {
        Some(priced(pick::default_placement(cluster, node, shape)?, score))
    });
    let (placed, cost) = priced(choice.placement, choice.score);
    let runner_up = second.map(|(other, other_cost)| RunnerUp {
        place: node_description(world, other.placement.node),
        worse_in: cost_model.worse_in(&cost, &other_cost),
        cost: other_cost,
    });
    Ok(Plan { placements: vec![placed], cost, runner_up, steps: 1, ..Plan::default() })
}

fn no_node(world: &World, shape: &Shape) -> Refusal {
    let infeasible = InfeasibleCounts::of(&world.cluster, shape);
    let like = infeasible.template.map(|node| world.cluster.name(node).to_owned());
    let remedy = like.map(|like| Remedy::MoreNodes { nodes: 1, like });
    Refusal { reason: Reason::NoNode(infeasible), remedy, steps: 0 }
}

/// The limit that the policy would have to have.
pub(crate) fn raised_limit(reason: &Reason) -> Option<Remedy> {
    match reason {
        Reason::Constraint { unit, found, .. } => {
            Some(Remedy::Constraint { unit: (*unit).to_owned(), to: *found })
        }
        Reason::Spares { found, .. } => {
            Some(Remedy::Constraint { unit: "spare nodes".to_owned(), to: *found })
        }
        _ => None,
    }
}

/// A node and where it lies.
fn node_description(world: &World, node: NodeId) -> String {
    let name = world.cluster.name(node);
    match world.topology.leaf_domain(node) {
        Topology::ROOT => format!("node {name}"),
        home => format!("node {name} in {}", world.topology.path(home)),
    }
}
