//! Repair: failed and late members, growth, defragmentation, preemption. Each is the same search
//! with pinned members.
//!
//! | case | pinned | forbidden | disruption |
//! |---|---|---|---|
//! | a failed member is replaced | the others | lost nodes | within the budget |
//! | late members arrive | the running ones | | within the budget |
//! | a workload grows | the running ones | | within the budget |
//! | free capacity by moving pods | | | movable pods |
//! | preemption | | | workloads of lower priority |
//!
//! Each is first tried without disruption. A workload with the gang's name is the gang itself; it
//! is never a victim.

mod apply;
mod defragment;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use apply::{StalePlan, apply, apply_moves};
pub use defragment::defragment;

use crate::World;
use crate::gang::{Gang, GangError, Group, MAX_MEMBERS};
use crate::objective::{CostModel, CostTerm};
use crate::plan::{Plan, PlanResult, Reason, Refusal};
use crate::preemption::{self, PreemptionBudget};
use crate::solve::{NodeSet, Pinned, Request, Solver};
use crate::topology::{DomainId, Topology};
use crate::transaction::Transaction;
use crate::workload::{Member, MemberId, Workload, WorkloadId};

/// The search and the cost model of a repair.
pub struct RepairContext<'a> {
    /// The search.
    pub solver: &'a mut Solver,
    /// The cost model.
    pub cost_model: &'a dyn CostModel,
}

/// How far a repair may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairLimits {
    /// The disruption that the repair may cause.
    pub preemption_budget: PreemptionBudget,
    /// Whether all members may be restarted elsewhere if the missing ones do not fit beside the
    /// others.
    pub may_move_all: bool,
}

impl RepairLimits {
    /// No disruption, and no restart of running members.
    pub fn none() -> Self {
        Self { preemption_budget: PreemptionBudget::none(), may_move_all: false }
    }
}

/// Places the members that are not pinned: without disruption if possible, else with the least
/// disruption within `preemption_budget`.
///
/// A refusal has the proof that takes the budget into account, and the remedy without it.
pub fn admit(
    world: &mut World,
    context: &mut RepairContext<'_>,
    request: &Request<'_>,
    preemption_budget: &PreemptionBudget,
) -> PlanResult {
    let refusal = match context.solver.solve(world, request, context.cost_model) {
        Ok(plan) => return Ok(plan),
        Err(refusal) => refusal,
    };
    let is_final = matches!(refusal.reason, Reason::Request(_));
    if is_final || (preemption_budget.moves == 0 && preemption_budget.evictions.is_none()) {
        return Err(refusal);
    }
    let steps = refusal.steps;
    match preemption::plan(world, request, preemption_budget, context.cost_model) {
        Ok(plan) => Ok(Plan { steps: plan.steps.saturating_add(steps), ..plan }),
        Err(other) => {
            let steps = other.steps.saturating_add(steps);
            Err(Refusal { reason: other.reason, remedy: refusal.remedy, steps })
        }
    }
}

/// Places a gang that does not fit by moving up to `moves` running pods.
pub fn admit_by_defragmentation(
    world: &mut World,
    context: &mut RepairContext<'_>,
    gang: &Gang,
    moves: u32,
) -> PlanResult {
    admit_new(world, context, gang, &PreemptionBudget::moves(moves))
}

/// Places a gang that does not fit by evicting workloads of lower priority.
pub fn preempt_for(world: &mut World, context: &mut RepairContext<'_>, gang: &Gang) -> PlanResult {
    admit_new(world, context, gang, &PreemptionBudget::evictions_below(gang.profile.priority))
}

fn admit_new(
    world: &mut World,
    context: &mut RepairContext<'_>,
    gang: &Gang,
    preemption_budget: &PreemptionBudget,
) -> PlanResult {
    let forbidden = NodeSet::new();
    let request = Request { gang, pinned: &[], forbidden: &forbidden, within: None };
    admit(world, context, &request, preemption_budget)
}

/// New placements for failed members: those with the ranks `failed`, and all on the nodes `lost`,
/// in one request. Missing members are placed with them.
///
/// The others stay. If the failed ones do not fit beside them, the whole gang may be placed again
/// if `limits` allows it. That plan counts the running members as disrupted.
///
/// Members above the minimum may get no new placement. Other pods may get their resources, so the
/// plan evicts these members. A failed member among them does not count as disrupted.
pub fn replace_failed(
    world: &mut World,
    context: &mut RepairContext<'_>,
    gang: &Gang,
    failed: &BTreeSet<u32>,
    lost: &NodeSet,
    limits: &RepairLimits,
) -> PlanResult {
    let workload_id = world.workloads.named(&gang.profile.name);
    let (mut pinned, mut gone, mut staying) = (Vec::new(), Vec::new(), Vec::new());
    let mut gone_ranks = Vec::new();
    for (rank, member) in members(world, workload_id) {
        if failed.contains(&rank) || lost.contains(&member.placement.node) {
            gone_ranks.push(rank);
            gone.push(member);
        } else {
            pinned.push(Pinned { rank, placement: member.placement.clone() });
            staying.push(member);
        }
    }
    // Resources of failed members are free again, unless their nodes are lost.
    let mut txn = Transaction::new(world);
    for member in &gone {
        let taken = txn.release_member(member);
        debug_assert!(taken.is_ok(), "a running member holds its placement: {taken:?}");
    }
    let request = Request { gang, pinned: &pinned, forbidden: lost, within: None };
    let answer = admit(txn.target_mut(), context, &request, &limits.preemption_budget);
    let refusal = match answer {
        Err(refusal) if limits.may_move_all && !staying.is_empty() => refusal,
        answer => return answer.map(|plan| without_unplaced(plan, workload_id, gone_ranks)),
    };
    for member in &staying {
        let taken = txn.release_member(member);
        debug_assert!(taken.is_ok(), "a running member holds its placement: {taken:?}");
    }
    let request = Request { pinned: &[], ..request };
    let whole_gang = admit(txn.target_mut(), context, &request, &limits.preemption_budget);
    // The useful reason is why the missing members do not fit beside the others.
    let Ok(mut plan) = whole_gang else { return Err(refusal) };
    let restarted = i64::try_from(staying.len()).unwrap_or(i64::MAX);
    plan.cost.add(CostTerm::PodsDisturbed, restarted);
    if let Some(second) = &mut plan.runner_up {
        second.cost.add(CostTerm::PodsDisturbed, restarted);
    }
    gone_ranks.extend(pinned.iter().map(|pin| pin.rank));
    Ok(without_unplaced(plan, workload_id, gone_ranks))
}

/// The plan, with evictions for those ranks that it does not place.
fn without_unplaced(mut plan: Plan, workload_id: Option<WorkloadId>, mut ranks: Vec<u32>) -> Plan {
    let Some(workload) = workload_id else { return plan };
    let placed: BTreeSet<u32> = plan.placements.iter().map(|placed| placed.rank).collect();
    ranks.retain(|rank| !placed.contains(rank));
    ranks.sort_unstable();
    plan.evictions.extend(ranks.into_iter().map(|member| MemberId { workload, member }));
    plan
}

/// Places the missing members of a running gang beside the running ones.
pub fn late_members(
    world: &mut World,
    context: &mut RepairContext<'_>,
    gang: &Gang,
    preemption_budget: &PreemptionBudget,
) -> PlanResult {
    let limits = RepairLimits { preemption_budget: preemption_budget.clone(), may_move_all: false };
    replace_failed(world, context, gang, &BTreeSet::new(), &NodeSet::new(), &limits)
}

/// Places `by` more members of one group of a running gang, in one request: all of them or none.
/// Missing ranks come first. Beyond the group's count only the last group can grow, because the
/// ranks of groups are contiguous. Fewer are placed if there are no more ranks.
///
/// Refused are an invalid gang, an unknown group, and more members than [`MAX_MEMBERS`].
pub fn grow(
    world: &mut World,
    context: &mut RepairContext<'_>,
    gang: &Gang,
    group: usize,
    by: u32,
    preemption_budget: &PreemptionBudget,
) -> PlanResult {
    gang.check(world.topology.levels().len()).map_err(invalid_request)?;
    let name = || std::sync::Arc::clone(&gang.profile.name);
    let Some(grown) = gang.groups.get(group) else {
        let error = GangError::NoGroup { gang: name(), group, groups: gang.groups.len() };
        return Err(invalid_request(error));
    };
    let workload_id = world.workloads.named(&gang.profile.name);
    let placed_members: Vec<(u32, Member)> = members(world, workload_id).collect();
    let most = MAX_MEMBERS as usize;
    if by > MAX_MEMBERS || placed_members.len() > most {
        let count = u64::from(by).saturating_add(placed_members.len() as u64);
        return Err(invalid_request(GangError::TooMany { gang: name(), count }));
    }
    let first: u32 = gang.groups[..group].iter().map(|group| group.count).sum();
    let is_last = group + 1 == gang.groups.len();
    let end = if is_last { u32::MAX } else { first + grown.count };
    let taken: BTreeSet<u32> = placed_members.iter().map(|(rank, _)| *rank).collect();
    let ranks = (first..end).filter(|rank| !taken.contains(rank));
    let mut ranks: Vec<u32> = ranks.take(by as usize).collect();
    if let Some(segment) = grown.segment {
        // Only whole segments: a part of one would have to lie beside its running members.
        let size = segment.size as usize;
        let is_fresh = |rank: &u32| {
            let start = rank - (rank - first) % segment.size;
            taken.range(start..start.saturating_add(segment.size)).next().is_none()
        };
        ranks.retain(is_fresh);
        ranks.truncate(ranks.len() / size * size);
    }
    let count = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
    if count == 0 {
        return Ok(Plan::default());
    }
    if placed_members.len() + ranks.len() > most
        || ranks.last().is_some_and(|rank| *rank >= MAX_MEMBERS)
    {
        let last = ranks.last().map_or(0, |rank| u64::from(*rank) + 1);
        let count = last.max((placed_members.len() + ranks.len()) as u64);
        return Err(invalid_request(GangError::TooMany { gang: name(), count }));
    }
    // A gang of the new members only. The running members are pinned under ranks beyond it.
    let shape = std::sync::Arc::clone(&grown.shape);
    // `within` below gives the domain of the other members.
    let new = Group { count, min: count, shape, colocation_id: None, ..grown.clone() };
    let part = Gang { profile: gang.profile.clone(), groups: vec![new] };
    let pinned: Vec<Pinned> = (count..)
        .zip(&placed_members)
        .map(|(rank, (_, member))| Pinned { rank, placement: member.placement.clone() })
        .collect();
    let within = group_domain(&world.topology, gang, group, &placed_members);
    let forbidden = NodeSet::new();
    let request = Request { gang: &part, pinned: &pinned, forbidden: &forbidden, within };
    let mut plan = admit(world, context, &request, preemption_budget)?;
    for placed in &mut plan.placements {
        placed.rank = ranks.get(placed.rank as usize).copied().unwrap_or(placed.rank);
        placed.group = u32::try_from(group).unwrap_or(u32::MAX);
    }
    Ok(plan)
}

fn invalid_request(error: GangError) -> Refusal {
    Refusal { reason: Reason::Request(error), remedy: None, steps: 0 }
}

/// The domain in which a group, with the groups colocated with it, must stay.
fn group_domain(
    topology: &Topology,
    gang: &Gang,
    group: usize,
    placed_members: &[(u32, Member)],
) -> Option<DomainId> {
    let grown = gang.groups.get(group)?;
    let level = grown.topology.required?;
    let mut end = 0_u32;
    let ranks = gang.groups.iter().enumerate().filter_map(|(number, other)| {
        let first = end;
        end = end.saturating_add(other.count);
        let is_beside = grown.colocation_id.is_some() && other.colocation_id == grown.colocation_id;
        (number == group || is_beside).then_some(first..end)
    });
    let ranks: Vec<_> = ranks.collect();
    let (_, member) =
        placed_members.iter().find(|(rank, _)| ranks.iter().any(|range| range.contains(rank)))?;
    topology.domain_of(member.placement.node, level)
}

/// The gang of a running workload, as far as it can be reconstructed: consecutive members with
/// equal shapes form a group. Segments and constraints of groups are unknown.
pub fn gang_of(workload: &Workload) -> Gang {
    let mut groups: Vec<Group> = Vec::new();
    for member in &workload.members {
        let shape = member.as_ref().map(|member| &member.shape);
        match (groups.last_mut(), shape) {
            // A missing member is like the one before.
            (Some(last), None) => last.count += 1,
            (Some(last), Some(shape)) if *last.shape == **shape => last.count += 1,
            // Missing members at the start count as the first present one.
            (_, Some(shape)) => {
                let name = format!("members-{}", groups.len());
                groups.push(Group { min: 0, ..Group::new(name, std::sync::Arc::clone(shape), 1) });
            }
            (None, None) => {}
        }
    }
    let missing = workload.members.iter().take_while(|member| member.is_none()).count();
    if let Some(first) = groups.first_mut() {
        first.count += u32::try_from(missing).unwrap_or(0);
    }
    let mut min_left = workload.min_members;
    for group in &mut groups {
        group.min = group.count.min(min_left);
        min_left -= group.min;
    }
    Gang { profile: workload.profile.clone(), groups }
}

fn members(
    world: &World,
    workload_id: Option<WorkloadId>,
) -> impl Iterator<Item = (u32, Member)> + '_ {
    let workload = workload_id
        .and_then(|workload_id| Some((workload_id, world.workloads.workload(workload_id)?)));
    workload.into_iter().flat_map(move |(workload_id, workload)| {
        let ranks = 0..u32::try_from(workload.members.len()).unwrap_or(u32::MAX);
        ranks.filter_map(move |member| {
            let id = MemberId { workload: workload_id, member };
            Some((member, world.workloads.member(id)?.clone()))
        })
    })
}
