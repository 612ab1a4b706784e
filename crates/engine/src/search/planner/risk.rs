//! Plans on GPUs of less risk.
//!
//! The searches build a few plans from bounds that know no risk. A node without risky GPUs may be in
//! none of them. So the search is repeated without the riskiest GPUs, and the policy compares the
//! plans. For a single pod that the packing policy places, the first plan has the least risk already.

#[cfg(test)]
mod tests;

use octavo_health::risk::RiskClass;

use super::{DecisionInput, Planner, is_packed};
use crate::World;
use crate::cluster::Cluster;
use crate::node::NodeId;
use crate::objective::CostTerm;
use crate::objective::policy::PolicyError;
use crate::plan::{Plan, PlanResult, RunnerUp};
use crate::preemption::PreemptionBudget;
use crate::solve::ranks;

/// GPUs that a search closes, at most: each costs the planner's caches a node. Of more GPUs the nodes are
/// left out as a whole.
const MAX_CLOSED: usize = 64;

impl Planner {
    /// The plan, or one that the policy prefers because its GPUs have less risk. Plans that disturb
    /// other pods stay. Fails as [`Self::decide`].
    pub(super) fn avoid_risk(
        &mut self,
        world: &mut World,
        input: &DecisionInput<'_>,
        plan: Plan,
    ) -> Result<Plan, PolicyError> {
        let counts = [CostTerm::GpuRisk, CostTerm::ExpectedLostGpuSeconds];
        let counts = counts.into_iter().any(|unit| input.policy.has(unit));
        let is_disturbing = !plan.evictions.is_empty() || !plan.moves.is_empty();
        if !counts || is_disturbing || plan.cost.of(CostTerm::GpuRisk) == 0 {
            return Ok(plan);
        }
        let has_preferences = input.gang.groups.iter().any(|group| !group.penalties.is_empty());
        let has_least = is_packed(input, world) && input.policy.avoids_risk() && !has_preferences;
        if has_least && self.packing.is_some() {
            return Ok(plan);
        }
        let mut steps = plan.steps;
        for class in RiskClass::ALL {
            let riskier = riskier(&world.cluster, class);
            if riskier.is_empty() {
                break;
            }
            let found = match self.decide_without(world, input, &riskier)? {
                Ok(found) => found,
                Err(refusal) => {
                    steps = steps.saturating_add(refusal.steps);
                    continue;
                }
            };
            steps = steps.saturating_add(found.steps);
            if found.placements.len() >= plan.placements.len()
                && input.policy.compare(&found.cost, &plan.cost).is_lt()
            {
                let runner_up = RunnerUp {
                    place: ranks::describe(world, &plan.placements),
                    worse_in: input.policy.worse_in(&found.cost, &plan.cost),
                    cost: plan.cost,
                };
                return Ok(Plan { steps, runner_up: Some(runner_up), ..found });
            }
        }
        Ok(Plan { steps, ..plan })
    }

    /// Decides without these GPUs, and without disturbing other pods.
    fn decide_without(
        &mut self,
        world: &mut World,
        input: &DecisionInput<'_>,
        gpus: &[(NodeId, u16)],
    ) -> Result<PlanResult, PolicyError> {
        let preemption_budget = &PreemptionBudget::none();
        if gpus.len() > MAX_CLOSED {
            let nodes = gpus.iter().map(|(node, _)| *node);
            let forbidden = &nodes.chain(input.forbidden.iter().copied()).collect();
            let input = DecisionInput { forbidden, preemption_budget, ..*input };
            return self.decide_at_any_risk(world, &input);
        }
        set_open(&mut world.cluster, gpus, false);
        let input = DecisionInput { preemption_budget, ..*input };
        let answer = self.decide_at_any_risk(world, &input);
        set_open(&mut world.cluster, gpus, true);
        answer
    }
}

/// The open GPUs of more risk than this class.
fn riskier(cluster: &Cluster, class: RiskClass) -> Vec<(NodeId, u16)> {
    let on_node = |node: &NodeId| {
        let node = *node;
        let gpus = (0_u16..).zip(cluster.gpus(node));
        let riskier = gpus.filter(move |(_, gpu)| gpu.risk > class && !gpu.is_closed);
        riskier.map(move |(gpu, _)| (node, gpu))
    };
    cluster.risky_nodes().iter().flat_map(on_node).collect()
}

fn set_open(cluster: &mut Cluster, gpus: &[(NodeId, u16)], is_open: bool) {
    for (node, gpu) in gpus {
        // Cannot fail: the GPU exists.
        let _ = cluster.set_gpu_open(*node, *gpu, is_open);
    }
}
