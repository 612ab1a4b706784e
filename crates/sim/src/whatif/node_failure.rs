//! Node failures: the members on failed nodes are lost and requested again.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::gang::MAX_MEMBERS;
use octavo_engine::plan::Plan;
use octavo_engine::solve::{NodeSet, Pinned};
use octavo_engine::workload::{MemberId, WorkloadId};
use octavo_engine::{Gang, Group, Shape, World};

use super::WhatifError;

/// A gang with members that need a placement.
#[derive(Clone, Debug)]
pub(super) struct GangRequest {
    /// The gang. A running gang has the size that it is to have again. Ranks without a member are
    /// left out, and the remaining ranks are renumbered without gaps.
    pub(super) gang: Gang,
    /// Members that are where they were, by their ranks in `gang`.
    pub(super) pinned: Vec<Pinned>,
    /// Of one that runs: the rank that each member of `gang` has in its workload.
    ranks: Vec<u32>,
}

impl GangRequest {
    /// A gang without running members.
    pub(super) fn new(gang: Gang) -> Self {
        Self { gang, pinned: Vec::new(), ranks: Vec::new() }
    }

    /// A gang with some placed members, as a live scheduler requests it.
    pub(super) fn with_pinned(gang: Gang, pinned: Vec<Pinned>) -> Self {
        Self { pinned, ..Self::new(gang) }
    }

    /// A plan for the gang, with the ranks that its members have in their workload.
    pub(super) fn with_workload_ranks(&self, mut plan: Plan) -> Plan {
        for placed in &mut plan.placements {
            placed.rank = self.ranks.get(placed.rank as usize).copied().unwrap_or(placed.rank);
        }
        plan
    }
}

/// Lets nodes fail. Returns a request for each gang that lost members, highest priority first.
pub(super) fn fail_nodes(
    world: &mut World,
    names: &[String],
) -> Result<Vec<GangRequest>, WhatifError> {
    let mut nodes = NodeSet::new();
    for name in names {
        let node = world.cluster.node_named(name).ok_or_else(|| WhatifError::UnknownNode {
            name: name.clone(),
            like: similar(world, name),
        })?;
        nodes.insert(node);
    }
    let mut hit: Vec<WorkloadId> = Vec::new();
    for node in &nodes {
        // The ids are of this cluster, so closing cannot fail.
        let _ = world.cluster.set_open(*node, false);
        let members: Vec<MemberId> = world.workloads.on(*node).collect();
        for id in members {
            if !hit.contains(&id.workload) {
                hit.push(id.workload);
            }
        }
    }
    let mut requests = Vec::new();
    for id in hit {
        requests.extend(lost_members_request(world, id, &nodes));
    }
    requests.sort_by(|left, right| {
        let (left, right) = (&left.gang.profile, &right.gang.profile);
        right.priority.cmp(&left.priority).then_with(|| left.name.cmp(&right.name))
    });
    Ok(requests)
}

/// Removes a workload's members from failed nodes and returns the request for them. All lost
/// members are requested, even if the gang could do without them. Members that were missing before
/// are not requested, unless the gang ran with fewer than its minimum. Then the lowest missing
/// ranks fill the gap.
fn lost_members_request(
    world: &mut World,
    id: WorkloadId,
    failed: &NodeSet,
) -> Option<GangRequest> {
    let workload = world.workloads.workload(id)?;
    let member = |rank: &u32| world.workloads.member(MemberId { workload: id, member: *rank });
    let missing = workload.min_members.saturating_sub(workload.member_count());
    let gaps = (0..MAX_MEMBERS).filter(|rank| member(rank).is_none()).take(missing as usize);
    let all = 0..u32::try_from(workload.members.len()).unwrap_or(u32::MAX);
    let present = all.filter(|rank| member(rank).is_some());
    let wanted: BTreeSet<u32> = present.chain(gaps).collect();
    let ranks: Vec<u32> = wanted.into_iter().collect();
    let (mut pinned, mut lost) = (Vec::new(), Vec::new());
    for (rank, workload_rank) in (0..).zip(&ranks) {
        match member(workload_rank) {
            Some(member) if failed.contains(&member.placement.node) => {
                lost.push((*workload_rank, member.clone()));
            }
            Some(member) => pinned.push(Pinned { rank, placement: member.placement.clone() }),
            None => {}
        }
    }
    let shapes = ranks.iter().map(|rank| member(rank).map(|member| &member.shape));
    let gang = Gang { profile: workload.profile.clone(), groups: groups_of(shapes) };
    for (rank, member) in lost {
        let _ = world.cluster.release(&member.shape.resources, &member.placement);
        world.workloads.set_member(MemberId { workload: id, member: rank }, None);
    }
    Some(GangRequest { gang, pinned, ranks })
}

/// Groups of a running gang, as far as they can be reconstructed: consecutive members of one shape.
/// A missing member has the shape of the one before it, or else of the first present one. Segments
/// and constraints of groups are unknown.
fn groups_of<'a>(shapes: impl Iterator<Item = Option<&'a Arc<Shape>>>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut missing = 0;
    for shape in shapes {
        match (groups.last_mut(), shape) {
            (Some(last), None) => last.count += 1,
            (Some(last), Some(shape)) if last.shape == *shape => last.count += 1,
            (None, None) => missing += 1,
            (last, Some(shape)) => {
                let count = if last.is_none() { missing + 1 } else { 1 };
                let name = format!("members-{}", groups.len());
                groups.push(Group::new(name, Arc::clone(shape), count));
            }
        }
    }
    for group in &mut groups {
        group.min = group.count;
    }
    groups
}

/// A node of the same name but for case, or else but for one letter.
fn similar(world: &World, name: &str) -> Option<String> {
    let wanted = name.to_lowercase();
    let names = || world.cluster.nodes().map(|node| world.cluster.name(node));
    let differing = |name: &str| {
        let pairs = wanted.chars().zip(name.chars());
        pairs.filter(|(left, right)| left != right).count()
    };
    let is_near = |name: &&str| wanted.len() == name.len() && differing(name) == 1;
    let found = names().find(|name| name.to_lowercase() == wanted);
    found.or_else(|| names().find(is_near)).map(str::to_owned)
}
