//! Decisions as text: one form for the command line, events and conditions.
//!
//! [`answer`] turns a plan or a refusal into an [`Explanation`]. It has names instead of ids and is
//! written as JSON. [`Explanation::lines`] renders it as plain English.

mod dto;
mod lines;
mod preemption_hint;
#[cfg(test)]
mod tests;
mod words;

use crate::World;
use crate::gang::Gang;
use crate::objective::policy::{PlacementPolicy, Step};
use crate::objective::{Amount, CostTerm, CostVector};
use crate::placement::Placement;
use crate::plan::{Move, Plan, PlanResult, Reason, Refusal, Remedy, RunnerUp};
use crate::topology::Topology;
use crate::workload::MemberId;

pub use dto::{
    Explanation, GpuAllocation, MemberMove, MemberPlacement, MemberRef, NodePlacement,
    ObstacleCount, PlanSummary, RefusalSummary, RunnerUpSummary,
};
pub use preemption_hint::{PreemptionHint, VictimRef};
pub use words::{amount, order};

/// Explains a result. `world` is the world before the plan is applied: members to be moved or
/// evicted still hold their placements.
pub fn answer(
    world: &World,
    policy: &PlacementPolicy,
    gang: &Gang,
    answer: &PlanResult,
) -> Explanation {
    match answer {
        Ok(plan) => Explanation::Placed(self::plan(world, policy, gang, plan)),
        Err(refusal) => Explanation::Refused(self::refusal(world, policy, gang, refusal)),
    }
}

fn plan(world: &World, policy: &PlacementPolicy, gang: &Gang, plan: &Plan) -> PlanSummary {
    let group_name = |index: u32| {
        gang.groups.get(index as usize).map_or(String::new(), |group| group.name.to_string())
    };
    let placements = plan.placements.iter().map(|placed| MemberPlacement {
        group: group_name(placed.group),
        rank: placed.rank,
        place: place(world, &placed.placement),
    });
    PlanSummary {
        request: gang.profile.name.to_string(),
        policy: policy.name().to_owned(),
        order: words::order(policy),
        evictions: plan.evictions.iter().map(|id| member(world, *id)).collect(),
        moves: plan.moves.iter().map(|step| moved(world, step)).collect(),
        placements: placements.collect(),
        cost: amounts(policy, &plan.cost),
        runner_up: plan.runner_up.as_ref().map(|other| runner_up(policy, &plan.cost, other)),
        steps: plan.steps,
    }
}

fn refusal(
    world: &World,
    policy: &PlacementPolicy,
    gang: &Gang,
    refusal: &Refusal,
) -> RefusalSummary {
    let nodes = match &refusal.reason {
        Reason::NoNode(infeasible) => infeasible
            .counts
            .iter()
            .map(|(obstacle, count)| ObstacleCount { obstacle: *obstacle, nodes: *count })
            .collect(),
        _ => Vec::new(),
    };
    RefusalSummary {
        request: gang.profile.name.to_string(),
        policy: policy.name().to_owned(),
        reason: words::reason_name(&refusal.reason).to_owned(),
        message: words::reason(world, &refusal.reason),
        summary: words::summary(world, &refusal.reason),
        nodes,
        remedy: refusal.remedy.clone(),
        steps: refusal.steps,
    }
}

/// The disruption of a plan, as what would help a refused request.
pub fn disruption(world: &World, policy: &PlacementPolicy, plan: &Plan) -> Remedy {
    let pods = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    if plan.evictions.is_empty() {
        return Remedy::Moves { pods: pods(plan.moves.len()), cost: amounts(policy, &plan.cost) };
    }
    let mut workloads: Vec<String> = Vec::new();
    for id in &plan.evictions {
        let name = member(world, *id).workload;
        if !workloads.contains(&name) {
            workloads.push(name);
        }
    }
    Remedy::Evictions { pods: pods(plan.evictions.len()), workloads }
}

fn runner_up(policy: &PlacementPolicy, best: &CostVector, other: &RunnerUp) -> RunnerUpSummary {
    let by = other.worse_in.map(|unit| other.cost.of(unit).saturating_sub(best.of(unit)));
    RunnerUpSummary {
        place: other.place.clone(),
        worse_in: other.worse_in,
        by,
        cost: amounts(policy, &other.cost),
    }
}

/// Costs in the terms of the policy, in its order, then the other terms that are not 0.
fn amounts(policy: &PlacementPolicy, cost: &CostVector) -> Vec<Amount> {
    let policy_terms: Vec<CostTerm> = policy.steps().iter().flat_map(Step::units).collect();
    let others = CostTerm::ALL
        .into_iter()
        .filter(|unit| !policy_terms.contains(unit) && cost.of(*unit) != 0);
    policy_terms
        .iter()
        .copied()
        .chain(others)
        .map(|unit| Amount { unit, value: cost.of(unit) })
        .collect()
}

fn place(world: &World, placement: &Placement) -> NodePlacement {
    let home = world.topology.leaf_domain(placement.node);
    let gpus = placement.gpus.iter().map(|part| GpuAllocation {
        gpu: part.gpu,
        milli: part.milli,
        memory_mib: part.memory_mib,
        slices: (0..crate::gpu::Slices::MAX_SLICES)
            .filter(|slice| part.slices.0 >> slice & 1 == 1)
            .collect(),
    });
    NodePlacement {
        node: world.cluster.name(placement.node).to_owned(),
        domain: (home != Topology::ROOT).then(|| world.topology.path(home)),
        gpus: gpus.collect(),
    }
}

fn member(world: &World, id: MemberId) -> MemberRef {
    let workload = world.workloads.workload(id.workload);
    let placement = world.workloads.member(id).map(|member| &member.placement);
    MemberRef {
        workload: workload.map_or(String::new(), |workload| workload.profile.name.to_string()),
        rank: id.member,
        node: placement
            .map_or(String::new(), |placement| world.cluster.name(placement.node).to_owned()),
    }
}

fn moved(world: &World, step: &Move) -> MemberMove {
    MemberMove { member: member(world, step.member), to: place(world, &step.to) }
}
