//! Carries a plan out on a world: all of it, or nothing.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::World;
use crate::cluster::ClusterError;
use crate::gang::Gang;
use crate::plan::{Placed, Plan};
use crate::transaction::Transaction;
use crate::workload::{Coupling, Member, MemberId, Workload, WorkloadId};

/// Why a plan cannot be applied: the world has changed since planning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StalePlan {
    /// A placement is taken, or a node is gone.
    #[error("the plan no longer fits; plan again: {0}")]
    Cluster(#[from] ClusterError),
    /// A member to be moved or evicted no longer runs.
    #[error(
        "member {} of workload number {} no longer runs; plan again",
        .0.member,
        .0.workload.0
    )]
    NoMember(MemberId),
    /// A placement for a group that the gang lacks.
    #[error("the plan has a place for group number {group}, but the gang has {groups} groups")]
    NoGroup {
        /// Index of the group.
        group: u32,
        /// How many groups there are.
        groups: usize,
    },
}

/// Applies a plan for a gang: evictions, then moves in their order, then placements. The target of
/// a move is allocated before its source is released, so it must be free when the move starts.
///
/// Placements become members of the workload with the gang's name, which is created if needed. A
/// running member with the rank of a placement is replaced; its resources are released first. A
/// workload without members is removed. On an error nothing is changed.
pub fn apply(world: &mut World, gang: &Gang, plan: &Plan) -> Result<WorkloadId, StalePlan> {
    let existing = world.workloads.named(&gang.profile.name);
    let placed = change(world, gang, existing, plan)?;
    let workload_id = if let Some(workload_id) = existing {
        workload_id
    } else {
        let (profile, min_members, coupling) =
            (gang.profile.clone(), gang.min(), Coupling::of(gang));
        let members = vec![None; gang.count() as usize];
        // The name was unknown, so adding cannot fail.
        world
            .workloads
            .add(Workload { profile, min_members, coupling, members })
            .unwrap_or_default()
    };
    for (rank, member) in placed {
        world.workloads.set_member(MemberId { workload: workload_id, member: rank }, Some(member));
    }
    remove(world, plan, workload_id);
    Ok(workload_id)
}

/// Changes the cluster and the placements of moved members; returns the new members by rank.
fn change(
    world: &mut World,
    gang: &Gang,
    existing: Option<WorkloadId>,
    plan: &Plan,
) -> Result<Vec<(u32, Member)>, StalePlan> {
    let World { cluster, workloads, .. } = world;
    let member = |id: MemberId| workloads.member(id).ok_or(StalePlan::NoMember(id));
    let mut txn = Transaction::new(cluster);
    let mut gone = BTreeSet::new();
    for id in &plan.evictions {
        let member = member(*id)?;
        if gone.insert(*id) {
            txn.release(&member.shape.resources, &member.placement)?;
        }
    }
    for placed in &plan.placements {
        let Some(workload) = existing else { break };
        let id = MemberId { workload, member: placed.rank };
        if let Some(member) = workloads.member(id).filter(|_| gone.insert(id)) {
            txn.release(&member.shape.resources, &member.placement)?;
        }
    }
    for step in &plan.moves {
        let member = member(step.member)?;
        if !gone.insert(step.member) {
            return Err(StalePlan::NoMember(step.member));
        }
        txn.place(&member.shape.resources, &step.to)?;
        txn.release(&member.shape.resources, &member.placement)?;
    }
    let groups = &gang.groups;
    let mut placed = Vec::with_capacity(plan.placements.len());
    for Placed { group, rank, placement } in &plan.placements {
        let no_group = StalePlan::NoGroup { group: *group, groups: groups.len() };
        let shape = Arc::clone(&groups.get(*group as usize).ok_or(no_group)?.shape);
        txn.place(&shape.resources, placement)?;
        placed.push((*rank, Member { shape, placement: placement.clone(), limit: None }));
    }
    txn.commit();
    for step in &plan.moves {
        if let Some(member) = workloads.member(step.member).cloned() {
            let moved = Member { placement: step.to.clone(), ..member };
            workloads.set_member(step.member, Some(moved));
        }
    }
    Ok(placed)
}

/// Removes evicted members, and workloads without members.
fn remove(world: &mut World, plan: &Plan, workload_id: WorkloadId) {
    let workloads = &mut world.workloads;
    for id in &plan.evictions {
        workloads.set_member(*id, None);
        let is_empty = |workload: &Workload| workload.member_count() == 0;
        if id.workload != workload_id && workloads.workload(id.workload).is_some_and(is_empty) {
            workloads.remove(id.workload);
        }
    }
}
