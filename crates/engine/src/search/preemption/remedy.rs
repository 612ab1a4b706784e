//! The remedy for a refused request by disruption.

use std::sync::Arc;

use super::{PreemptionBudget, plan};
use crate::World;
use crate::objective::{CostModel, CostTerm};
use crate::plan::{Plan, Remedy};
use crate::solve::Request;

/// The least disruption that would allow a plan for a refused request: moves alone, or also
/// evictions below the gang's own priority. The one with fewer pods; of equals the moves. `None`:
/// no such plan was found within `steps`.
pub fn cheapest_remedy(
    world: &mut World,
    request: &Request<'_>,
    steps: u64,
    cost_model: &dyn CostModel,
) -> Option<Remedy> {
    let moves = PreemptionBudget { moves: u32::MAX, evictions: None, steps };
    let evictions = PreemptionBudget {
        steps,
        ..PreemptionBudget::evictions_below(request.gang.profile.priority)
    };
    let moves = plan(world, request, &moves, cost_model).ok();
    let evictions = plan(world, request, &evictions, cost_model).ok();
    let pods = |plan: &Plan| plan.cost.of(CostTerm::PodsDisturbed);
    match (moves, evictions) {
        (Some(moves), Some(evictions)) if pods(&evictions) < pods(&moves) => {
            Some(by_evictions(world, &evictions))
        }
        (Some(moves), _) => {
            let pods = u32::try_from(pods(&moves)).unwrap_or(u32::MAX);
            Some(Remedy::Moves { pods, cost: moves.cost })
        }
        (None, evictions) => evictions.map(|plan| by_evictions(world, &plan)),
    }
}

fn by_evictions(world: &World, plan: &Plan) -> Remedy {
    let mut names: Vec<Arc<str>> = Vec::new();
    for member in &plan.evictions {
        let workload = world.workloads.workload(member.workload);
        let Some(name) = workload.map(|workload| &workload.profile.name) else { continue };
        if !names.contains(name) {
            names.push(Arc::clone(name));
        }
    }
    Remedy::Evictions {
        pods: u32::try_from(plan.evictions.len()).unwrap_or(u32::MAX),
        workloads: names,
    }
}
