//! Nodes fail: what was on them is lost, and those who lost members want them back.

use octavo_engine::repair;
use octavo_engine::solve::Pinned;
use octavo_engine::workload::{Member, MemberId, WorkloadId};
use octavo_engine::{Gang, World};

use super::WhatifError;

/// A gang that wants places for members that have none.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    /// The whole gang.
    pub(super) gang: Gang,
    /// Members that are where they were.
    pub(super) pinned: Vec<Pinned>,
}

impl Loss {
    /// A gang of which nobody runs yet.
    pub(super) fn new_gang(gang: Gang) -> Self {
        Self { gang, pinned: Vec::new() }
    }
}

/// Lets nodes fail. Who lost members comes back, the highest priority first.
pub(super) fn fail(world: &mut World, names: &[String]) -> Result<Vec<Loss>, WhatifError> {
    let mut nodes = Vec::new();
    for name in names {
        let node = world.cluster.node_named(name).ok_or_else(|| WhatifError::UnknownNode {
            name: name.clone(),
            like: similar(world, name),
        })?;
        nodes.push(node);
    }
    let mut hit: Vec<WorkloadId> = Vec::new();
    for node in nodes {
        // The ids are of this cluster, so closing cannot fail.
        let _ = world.cluster.set_open(node, false);
        let members: Vec<MemberId> = world.workloads.on(node).collect();
        for id in members {
            if !hit.contains(&id.workload) {
                hit.push(id.workload);
            }
        }
    }
    let mut losses = Vec::new();
    for id in hit {
        losses.extend(loss(world, id));
    }
    losses.sort_by(|one, other| {
        let (one, other) = (&one.gang.profile, &other.gang.profile);
        other.priority.cmp(&one.priority).then_with(|| one.name.cmp(&other.name))
    });
    Ok(losses)
}

/// Takes a workload's members off closed nodes and says what it wants back.
fn loss(world: &mut World, id: WorkloadId) -> Option<Loss> {
    let workload = world.workloads.workload(id)?;
    let is_lost = |member: &Member| !world.cluster.is_open(member.placement.node);
    let mut pinned = Vec::new();
    let mut lost = Vec::new();
    for (rank, member) in (0..).zip(&workload.members) {
        match member {
            Some(member) if is_lost(member) => lost.push((rank, member.clone())),
            Some(member) => pinned.push(Pinned { rank, placement: member.placement.clone() }),
            None => {}
        }
    }
    let mut gang = repair::gang_of(workload);
    // Whoever was lost is asked for, whether or not the workload could do without.
    for group in &mut gang.groups {
        group.min = group.count;
    }
    for (rank, member) in lost {
        let _ = world.cluster.release(&member.shape.resources, &member.placement);
        world.workloads.set_member(MemberId { workload: id, member: rank }, None);
    }
    Some(Loss { gang, pinned })
}

/// A node of the same name but for case, or else but for one letter.
fn similar(world: &World, name: &str) -> Option<String> {
    let wanted = name.to_lowercase();
    let names = || world.cluster.nodes().map(|node| world.cluster.name(node));
    let differing = |other: &str| {
        let pairs = wanted.chars().zip(other.chars());
        pairs.filter(|(one, other)| one != other).count()
    };
    let is_near = |other: &&str| wanted.len() == other.len() && differing(other) == 1;
    let found = names().find(|other| other.to_lowercase() == wanted);
    found.or_else(|| names().find(is_near)).map(str::to_owned)
}
