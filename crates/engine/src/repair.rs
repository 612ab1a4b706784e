//! Repair: failed and late members, growth, defragmentation, preemption; each is the one search with
//! pins.
//!
//! | what | pinned | forbidden | disturbs |
//! |---|---|---|---|
//! | a failed member is replaced | the others | nodes that are lost | as allowed |
//! | late members come | those that are there | | as allowed |
//! | a workload grows | those that are there | | as allowed |
//! | room by moving pods | | | movable pods |
//! | preemption | | | workloads of lower priority |
//!
//! Each is first tried without disturbing anybody. A workload of the gang's name is the gang itself;
//! it is never among those who are disturbed.

mod apply;
mod defragment;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use apply::{Stale, apply, apply_moves};
pub use defragment::defragment;

use crate::World;
use crate::decision::{Answer, Plan, Reason, Refusal};
use crate::disturb::{self, Allowance, Rehearsal};
use crate::gang::{Gang, GangError, Group, MOST_MEMBERS};
use crate::objective::Unit;
use crate::solve::{Judge, NodeSet, Pinned, Request, Solver};
use crate::topology::{DomainId, Topology};
use crate::workload::{Member, MemberId, Workload, WorkloadId};

/// Who searches and who judges.
pub struct Means<'a> {
    /// The search.
    pub solver: &'a mut Solver,
    /// The judge of costs.
    pub judge: &'a dyn Judge,
}

/// How far a repair may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leave {
    /// Whom it may disturb.
    pub allowance: Allowance,
    /// Whether all members may be restarted elsewhere if the missing ones find no place beside them.
    pub may_move_all: bool,
}

impl Leave {
    /// Nobody is disturbed, and no member that runs is restarted.
    pub fn nothing() -> Self {
        Self { allowance: Allowance::nothing(), may_move_all: false }
    }
}

/// The one routine: places for the members that are not pinned, disturbing nobody if that is
/// possible, else as few as possible within `allowance`.
///
/// A refusal carries the proof that counts with the allowance, and what would help without it.
pub fn admit(
    world: &mut World,
    means: &mut Means<'_>,
    request: &Request<'_>,
    allowance: &Allowance,
) -> Answer {
    let refusal = match means.solver.solve(world, request, means.judge) {
        Ok(plan) => return Ok(plan),
        Err(refusal) => refusal,
    };
    let is_final = matches!(refusal.reason, Reason::Request(_));
    if is_final || (allowance.moves == 0 && allowance.evictions.is_none()) {
        return Err(refusal);
    }
    let steps = refusal.steps;
    match disturb::plan(world, request, allowance, means.judge) {
        Ok(plan) => Ok(Plan { steps: plan.steps.saturating_add(steps), ..plan }),
        Err(other) => {
            let steps = other.steps.saturating_add(steps);
            Err(Refusal { reason: other.reason, remedy: refusal.remedy, steps })
        }
    }
}

/// A place for a gang that does not fit, made by moving up to `moves` running pods.
pub fn admit_by_defragmentation(
    world: &mut World,
    means: &mut Means<'_>,
    gang: &Gang,
    moves: u32,
) -> Answer {
    admit_new(world, means, gang, &Allowance::moves(moves))
}

/// A place for a gang that does not fit, made by evicting workloads of lower priority than its own.
pub fn preempt_for(world: &mut World, means: &mut Means<'_>, gang: &Gang) -> Answer {
    admit_new(world, means, gang, &Allowance::evictions_below(gang.profile.priority))
}

fn admit_new(
    world: &mut World,
    means: &mut Means<'_>,
    gang: &Gang,
    allowance: &Allowance,
) -> Answer {
    let forbidden = NodeSet::new();
    let request = Request { gang, pinned: &[], forbidden: &forbidden, within: None };
    admit(world, means, &request, allowance)
}

/// New places for members that failed: those of the ranks `failed`, and all on the nodes `lost`, in
/// one request, however many they are. Members that are missing already are placed with them.
///
/// The others stay where they are. If the failed ones find no place beside them, the whole gang may
/// be placed anew, where `leave` says so; its plan counts the members that ran as disturbed.
///
/// Members above the minimum may get no new place. What they had may be given to others, so the
/// plan has them among its evictions; a failed one of them is not counted as disturbed.
pub fn replace_failed(
    world: &mut World,
    means: &mut Means<'_>,
    gang: &Gang,
    failed: &BTreeSet<u32>,
    lost: &NodeSet,
    leave: &Leave,
) -> Answer {
    let own = world.workloads.named(&gang.profile.name);
    let (mut pinned, mut gone, mut staying) = (Vec::new(), Vec::new(), Vec::new());
    let mut gone_ranks = Vec::new();
    for (rank, member) in members(world, own) {
        if failed.contains(&rank) || lost.contains(&member.placement.node) {
            gone_ranks.push(rank);
            gone.push(member);
        } else {
            pinned.push(Pinned { rank, placement: member.placement.clone() });
            staying.push(member);
        }
    }
    // What failed members had is free again, where their nodes are not lost.
    let mut rehearsal = Rehearsal::new(world);
    for member in &gone {
        let taken = rehearsal.take_off(member);
        debug_assert!(taken.is_ok(), "who runs has what it has: {taken:?}");
    }
    let request = Request { gang, pinned: &pinned, forbidden: lost, within: None };
    let answer = admit(rehearsal.world_mut(), means, &request, &leave.allowance);
    let refusal = match answer {
        Err(refusal) if leave.may_move_all && !staying.is_empty() => refusal,
        answer => return answer.map(|plan| without_unplaced(plan, own, gone_ranks)),
    };
    for member in &staying {
        let taken = rehearsal.take_off(member);
        debug_assert!(taken.is_ok(), "who runs has what it has: {taken:?}");
    }
    let request = Request { pinned: &[], ..request };
    let anew = admit(rehearsal.world_mut(), means, &request, &leave.allowance);
    // Why the missing members have no place beside the others is what people want to know.
    let Ok(mut plan) = anew else { return Err(refusal) };
    let restarted = i64::try_from(staying.len()).unwrap_or(i64::MAX);
    plan.cost.add(Unit::PodsDisturbed, restarted);
    if let Some(second) = &mut plan.runner_up {
        second.cost.add(Unit::PodsDisturbed, restarted);
    }
    gone_ranks.extend(pinned.iter().map(|pin| pin.rank));
    Ok(without_unplaced(plan, own, gone_ranks))
}

/// The plan with those of the ranks evicted that it has no place for.
fn without_unplaced(mut plan: Plan, own: Option<WorkloadId>, mut ranks: Vec<u32>) -> Plan {
    let Some(workload) = own else { return plan };
    let placed: BTreeSet<u32> = plan.placements.iter().map(|placed| placed.rank).collect();
    ranks.retain(|rank| !placed.contains(rank));
    ranks.sort_unstable();
    plan.evictions.extend(ranks.into_iter().map(|member| MemberId { workload, member }));
    plan
}

/// Places for the members of a running gang that are not there yet, with those that are.
pub fn late_members(
    world: &mut World,
    means: &mut Means<'_>,
    gang: &Gang,
    allowance: &Allowance,
) -> Answer {
    let leave = Leave { allowance: allowance.clone(), may_move_all: false };
    replace_failed(world, means, gang, &BTreeSet::new(), &NodeSet::new(), &leave)
}

/// Places for `by` more members of one group of a running gang, in one request: all of them or
/// none. Ranks that are missing come first; beyond the group's count only the last group can grow,
/// because ranks of groups follow one another. Fewer are placed where there are no more ranks.
///
/// A gang that makes no sense, a group that it has not and more members than a gang may have
/// ([`MOST_MEMBERS`]) are refused.
pub fn grow(
    world: &mut World,
    means: &mut Means<'_>,
    gang: &Gang,
    group: usize,
    by: u32,
    allowance: &Allowance,
) -> Answer {
    gang.check(world.topology.levels().len()).map_err(senseless)?;
    let name = || std::sync::Arc::clone(&gang.profile.name);
    let Some(grown) = gang.groups.get(group) else {
        let error = GangError::NoGroup { gang: name(), group, groups: gang.groups.len() };
        return Err(senseless(error));
    };
    let own = world.workloads.named(&gang.profile.name);
    let there: Vec<(u32, Member)> = members(world, own).collect();
    let most = MOST_MEMBERS as usize;
    if by > MOST_MEMBERS || there.len() > most {
        let count = u64::from(by).saturating_add(there.len() as u64);
        return Err(senseless(GangError::TooMany { gang: name(), count }));
    }
    let first: u32 = gang.groups[..group].iter().map(|group| group.count).sum();
    let is_last = group + 1 == gang.groups.len();
    let end = if is_last { u32::MAX } else { first + grown.count };
    let taken: BTreeSet<u32> = there.iter().map(|(rank, _)| *rank).collect();
    let ranks = (first..end).filter(|rank| !taken.contains(rank));
    let mut ranks: Vec<u32> = ranks.take(by as usize).collect();
    if let Some(segment) = grown.segment {
        // Only whole segments: a part of one would have to lie beside what is there of it.
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
    if there.len() + ranks.len() > most || ranks.last().is_some_and(|rank| *rank >= MOST_MEMBERS) {
        let last = ranks.last().map_or(0, |rank| u64::from(*rank) + 1);
        let count = last.max((there.len() + ranks.len()) as u64);
        return Err(senseless(GangError::TooMany { gang: name(), count }));
    }
    // A gang of the new members alone; the others, under ranks that it has not, say where it is.
    let shape = std::sync::Arc::clone(&grown.shape);
    // Where the others are is said below.
    let new = Group { count, min: count, shape, together: None, ..grown.clone() };
    let part = Gang { profile: gang.profile.clone(), groups: vec![new] };
    let pinned: Vec<Pinned> = (count..)
        .zip(&there)
        .map(|(rank, (_, member))| Pinned { rank, placement: member.placement.clone() })
        .collect();
    let within = group_home(&world.topology, gang, group, &there);
    let forbidden = NodeSet::new();
    let request = Request { gang: &part, pinned: &pinned, forbidden: &forbidden, within };
    let mut plan = admit(world, means, &request, allowance)?;
    for placed in &mut plan.placements {
        placed.rank = ranks.get(placed.rank as usize).copied().unwrap_or(placed.rank);
        placed.group = u32::try_from(group).unwrap_or(u32::MAX);
    }
    Ok(plan)
}

fn senseless(error: GangError) -> Refusal {
    Refusal { reason: Reason::Request(error), remedy: None, steps: 0 }
}

/// The domain in which a group must stay, with those that lie together with it.
fn group_home(
    topology: &Topology,
    gang: &Gang,
    group: usize,
    there: &[(u32, Member)],
) -> Option<DomainId> {
    let grown = gang.groups.get(group)?;
    let level = grown.topology.required?;
    let mut end = 0_u32;
    let ranks = gang.groups.iter().enumerate().filter_map(|(number, other)| {
        let first = end;
        end = end.saturating_add(other.count);
        let is_beside = grown.together.is_some() && other.together == grown.together;
        (number == group || is_beside).then_some(first..end)
    });
    let ranks: Vec<_> = ranks.collect();
    let (_, member) = there.iter().find(|(rank, _)| ranks.iter().any(|own| own.contains(rank)))?;
    topology.domain_of(member.placement.node, level)
}

/// The gang that a running workload is, as far as the workload tells: members of equal shape that
/// follow one another are a group, and nothing is known of segments or wishes of groups.
pub fn gang_of(workload: &Workload) -> Gang {
    let mut groups: Vec<Group> = Vec::new();
    for member in &workload.members {
        let shape = member.as_ref().map(|member| &member.shape);
        match (groups.last_mut(), shape) {
            // A missing member is like the one before.
            (Some(last), None) => last.count += 1,
            (Some(last), Some(shape)) if *last.shape == **shape => last.count += 1,
            // Members that are missing at the start are like the first one that is there.
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
    let mut rest = workload.min_members;
    for group in &mut groups {
        group.min = group.count.min(rest);
        rest -= group.min;
    }
    Gang { profile: workload.profile.clone(), groups }
}

fn members(world: &World, own: Option<WorkloadId>) -> impl Iterator<Item = (u32, Member)> + '_ {
    let workload = own.and_then(|own| Some((own, world.workloads.workload(own)?)));
    workload.into_iter().flat_map(move |(own, workload)| {
        let ranks = 0..u32::try_from(workload.members.len()).unwrap_or(u32::MAX);
        ranks.filter_map(move |member| {
            let id = MemberId { workload: own, member };
            Some((member, world.workloads.member(id)?.clone()))
        })
    })
}
