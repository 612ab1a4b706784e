//! Carries a plan out on a world: all of it, or nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::World;
use crate::cluster::ClusterError;
use crate::gang::Gang;
use crate::plan::{Placed, Plan};
use crate::transaction::Transaction;
use crate::workload::{Coupling, Member, MemberId, Workload, WorkloadId};

/// Why a plan cannot be carried out: the world is not as it was when the plan was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StalePlan {
    /// A place is taken, or a node is gone.
    #[error("the plan does not fit any more; ask again: {0}")]
    Cluster(#[from] ClusterError),
    /// Who is to be moved or evicted does not run any more.
    #[error(
        "member {} of workload number {} does not run any more; ask again",
        .0.member,
        .0.workload.0
    )]
    NoMember(MemberId),
    /// A place for a group that the gang has not.
    #[error("the plan has a place for group number {group}, but the gang has {groups} groups")]
    NoGroup {
        /// Index of the group.
        group: u32,
        /// How many groups there are.
        groups: usize,
    },
}

/// Carries out a plan for a gang: evictions, then moves in their order, then placements. A move's
/// place is taken before the old one is given back, so it must be free when the move starts.
///
/// Placements become members of the workload of the gang's name, or of a new one. A member that is
/// there already under the rank of a placement is replaced: what it had is given back first. A
/// workload of which nobody is left is gone. On an error nothing has changed.
pub fn apply(world: &mut World, gang: &Gang, plan: &Plan) -> Result<WorkloadId, StalePlan> {
    let known = world.workloads.named(&gang.profile.name);
    let placed = change(world, Some(gang), known, plan)?;
    let own = if let Some(own) = known {
        own
    } else {
        let (profile, min_members, coupling) =
            (gang.profile.clone(), gang.min(), Coupling::of(gang));
        let members = vec![None; gang.count() as usize];
        // The name was not known, so there is room for it.
        world
            .workloads
            .add(Workload { profile, min_members, coupling, members })
            .unwrap_or_default()
    };
    for (rank, member) in placed {
        world.workloads.set_member(MemberId { workload: own, member: rank }, Some(member));
    }
    remove(world, plan, Some(own));
    Ok(own)
}

/// Carries out the evictions and moves of a plan that places no gang, such as that of
/// [`super::defragment`]. On an error nothing has changed.
pub fn apply_moves(world: &mut World, plan: &Plan) -> Result<(), StalePlan> {
    change(world, None, None, plan)?;
    remove(world, plan, None);
    Ok(())
}

/// Changes the cluster, and the places of those who move; the new members by rank.
fn change(
    world: &mut World,
    gang: Option<&Gang>,
    known: Option<WorkloadId>,
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
        let Some(workload) = known else { break };
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
    let groups = gang.map_or(&[][..], |gang| &gang.groups);
    let mut placed = Vec::with_capacity(plan.placements.len());
    for Placed { group, rank, placement } in &plan.placements {
        let no_group = StalePlan::NoGroup { group: *group, groups: groups.len() };
        let shape = Arc::clone(&groups.get(*group as usize).ok_or(no_group)?.shape);
        txn.place(&shape.resources, placement)?;
        placed.push((*rank, Member { shape, placement: placement.clone() }));
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

/// Takes away who is evicted, and workloads of which nobody is left.
fn remove(world: &mut World, plan: &Plan, own: Option<WorkloadId>) {
    let workloads = &mut world.workloads;
    for id in &plan.evictions {
        workloads.set_member(*id, None);
        let is_empty = |workload: &Workload| workload.member_count() == 0;
        if Some(id.workload) != own && workloads.workload(id.workload).is_some_and(is_empty) {
            workloads.remove(id.workload);
        }
    }
}
