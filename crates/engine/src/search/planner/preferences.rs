//! Plans that miss fewer preferences.
//!
//! The searches build a few plans from bounds that know no preferences. A preferred node may be in
//! none of them. So the search is repeated without the nodes that miss the most, and the policy
//! compares the two plans. For a single pod the result misses the fewest points possible. For a
//! gang the most that a member misses is as small as possible.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use super::{DecisionInput, Planner};
use crate::World;
use crate::gang::{Gang, Group};
use crate::objective::CostTerm;
use crate::objective::policy::PolicyError;
use crate::plan::{Placed, Plan, RunnerUp};
use crate::preemption::PreemptionBudget;
use crate::solve::ranks;

impl Planner {
    /// The plan, or one that the policy prefers because it misses fewer preferences. Plans that
    /// disturb other pods stay. Fails as [`Self::decide`].
    pub(super) fn prefer(
        &mut self,
        world: &mut World,
        input: &DecisionInput<'_>,
        plan: Plan,
    ) -> Result<Plan, PolicyError> {
        let is_disturbing = !plan.evictions.is_empty() || !plan.moves.is_empty();
        if is_disturbing || !input.policy.has(CostTerm::PreferencesMissed) {
            return Ok(plan);
        }
        let bounds = lower_bounds(world, input.gang, &plan.placements);
        let (mut low, mut high) = (0, bounds.len());
        let mut best: Option<Plan> = None;
        let mut steps = plan.steps;
        while low < high {
            let middle = usize::midpoint(low, high);
            let gang = without_worse(input.gang, bounds[middle]);
            let preemption_budget = &PreemptionBudget::none();
            let restricted = DecisionInput { gang: &gang, preemption_budget, ..*input };
            let answer = self.search(world, &restricted, None)?;
            steps = steps.saturating_add(match &answer {
                Ok(found) => found.steps,
                Err(refusal) => refusal.steps,
            });
            match answer {
                Ok(found) if found.placements.len() >= plan.placements.len() => {
                    best = Some(found);
                    high = middle;
                }
                _ => low = middle + 1,
            }
        }
        let is_better = |best: &Plan| input.policy.compare(&best.cost, &plan.cost).is_lt();
        let Some(best) = best.filter(is_better) else { return Ok(Plan { steps, ..plan }) };
        let runner_up = RunnerUp {
            place: ranks::describe(world, &plan.placements),
            worse_in: input.policy.worse_in(&best.cost, &plan.cost),
            cost: plan.cost,
        };
        Ok(Plan { steps, runner_up: Some(runner_up), ..best })
    }
}

/// Penalties below the greatest of the placed members, in ascending order.
fn lower_bounds(world: &World, gang: &Gang, placed: &[Placed]) -> Vec<u32> {
    let penalty = |placed: &Placed| {
        let group = gang.groups.get(placed.group as usize)?;
        Some(group.penalty(placed.placement.node))
    };
    let Some(most) = placed.iter().filter_map(penalty).max() else { return Vec::new() };
    let mut bounds = BTreeSet::new();
    for group in &gang.groups {
        bounds.extend(group.penalties.values().copied());
        if group.penalties.len() < world.cluster.node_count() {
            bounds.insert(0);
        }
    }
    bounds.into_iter().take_while(|bound| *bound < most).collect()
}

/// The gang without nodes on which a member would miss more than `bound`.
fn without_worse(gang: &Gang, bound: u32) -> Gang {
    let restrict = |group: &Group| {
        let worse = group.penalties.iter().filter(|(_, points)| **points > bound);
        let forbidden = group.forbidden.iter().copied().chain(worse.map(|(node, _)| *node));
        Group { forbidden: forbidden.collect(), ..group.clone() }
    };
    Gang { profile: gang.profile.clone(), groups: gang.groups.iter().map(restrict).collect() }
}
