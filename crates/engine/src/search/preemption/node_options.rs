//! Options of a node: for each number of members the cheapest pods to disrupt.

mod search;

use smallvec::{SmallVec, smallvec};

use super::disruption_cost::DisruptionCost;
use super::eviction_uses::Alternatives;
use super::node_view;
use super::victims::{Disruption, PodIndex, Taken, VictimPool};
use crate::World;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::shape::Shape;
use crate::workload::Member;
use search::Search;

/// Subsets of a node's pods to enumerate; with more of them the search is greedy.
const MAX_SUBSETS: usize = 1024;

/// Positions in the list of a node's pods.
pub(super) type Positions = SmallVec<[u16; 4]>;

/// Options of a node, as positions in its list of pods. Nodes of one signature have equal options.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeOptions {
    /// Members that fit now.
    pub(super) free: u32,
    /// Possible disruptions in groups of interchangeable ones.
    pub(super) groups: Vec<Group>,
    /// More members for more victims: both ascend. With limits on evictions there may be several
    /// for one number of members, which use these limits differently.
    pub(super) more: Vec<NodeOption>,
}

/// Interchangeable disruptions of a node.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) kind: DisruptionKind,
    /// The pods of each disruption on this node: one, or several for a whole gang.
    pub(super) disruptions: SmallVec<[Positions; 4]>,
}

/// The type of a disruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum DisruptionKind {
    Move,
    Evict,
    EvictAll,
}

/// The total number of members that fit after `counts` disruptions of each group.
#[derive(Clone, Debug)]
pub(super) struct NodeOption {
    pub(super) members: u32,
    pub(super) counts: SmallVec<[u16; 8]>,
}

/// A node and its possible victims.
#[derive(Debug)]
pub(super) struct NodeView<'a> {
    pub(super) state: NodeState,
    pub(super) pods: SmallVec<[PodIndex; 8]>,
    pub(super) members: SmallVec<[&'a Member; 8]>,
    pub(super) kinds: SmallVec<[DisruptionKind; 8]>,
}

impl NodeView<'_> {
    /// The disruptions of an option on this node. Of interchangeable ones the cheapest are taken,
    /// which are the newest.
    pub(super) fn disruptions(
        &self,
        pool: &VictimPool,
        options: &NodeOptions,
        option: &NodeOption,
    ) -> Vec<Disruption> {
        let mut disruptions = Vec::new();
        for (group, count) in options.groups.iter().zip(&option.counts) {
            let mut alike: SmallVec<[Disruption; 8]> = group
                .disruptions
                .iter()
                .filter_map(|pods| self.disruption(pool, group.kind, pods))
                .collect();
            alike
                .sort_by_key(|disruption| (pool.cost(*disruption), std::cmp::Reverse(*disruption)));
            disruptions.extend(alike.into_iter().take(usize::from(*count)));
        }
        disruptions
    }

    fn disruption(
        &self,
        pool: &VictimPool,
        kind: DisruptionKind,
        pods: &Positions,
    ) -> Option<Disruption> {
        let pod = *self.pods.get(usize::from(*pods.first()?))?;
        Some(match kind {
            DisruptionKind::Move => Disruption::Move(pod),
            DisruptionKind::Evict => Disruption::Evict(pod),
            DisruptionKind::EvictAll => Disruption::EvictAll(pool.pod(pod).workload),
        })
    }
}

/// Computes the options of a node for up to `most` members. `spent` grows by the evaluated states.
/// They depend on the pods that are taken already, but not on what is left of the limits.
pub(super) fn find(
    world: &World,
    pool: &VictimPool,
    view: &NodeView<'_>,
    shape: &Shape,
    most: u32,
    taken: &Taken,
    spent: &mut u64,
) -> NodeOptions {
    let count = |state: &NodeState| fit::times(&world.cluster, state, shape).min(most);
    let free = count(&view.state);
    let mut empty = view.state.clone();
    for member in &view.members {
        node_view::take_off(&mut empty, member);
    }
    let max_fit = count(&empty);
    *spent += 2;
    if max_fit == free {
        return NodeOptions { free, ..NodeOptions::default() };
    }
    let groups = groups(world, pool, view, taken);
    let first = groups.iter().map(|group| first_disruption(pool, view, group));
    // Age apart, the members of a group cost the same, and they have one limit.
    let costs = first.clone().map(|first| {
        first.map_or(DisruptionCost::ZERO, |disruption| pool.cost(disruption)).without_age()
    });
    let uses =
        first.map(|first| pool.uses(first.into_iter().flat_map(|first| pool.pods_of(first))));
    let mut search = Search {
        view,
        groups: &groups,
        costs: costs.collect(),
        uses: uses.collect(),
        slack: slack_limits(pool, view, &groups, taken),
        limits: &pool.limits,
        free,
        max_fit,
        best: vec![Alternatives::default(); (max_fit - free) as usize],
        count: &count,
        spent: 0,
    };
    let subsets = groups.iter().map(|group| group.disruptions.len() + 1);
    let subsets = subsets.fold(1_usize, usize::saturating_mul);
    if subsets <= MAX_SUBSETS {
        search.exhaustive();
    } else {
        search.greedy();
    }
    *spent += search.spent;
    let more = frontier(std::mem::take(&mut search.best), free);
    NodeOptions { free, groups, more }
}

/// Options that are cheaper than all that give more, or use less of a limit.
fn frontier(best: Vec<Alternatives<SmallVec<[u16; 8]>>>, free: u32) -> Vec<NodeOption> {
    let mut more = Vec::new();
    let mut larger = Alternatives::default();
    for (above, found) in (1..).zip(best).collect::<Vec<_>>().into_iter().rev() {
        for (cost, uses, counts) in found.into_iter().rev() {
            if !larger.covers(cost, &uses) {
                larger.add(cost, uses, || ());
                more.push(NodeOption { members: free + above, counts });
            }
        }
    }
    more.reverse();
    more
}

/// The disruptions of a node in groups of interchangeable ones.
fn groups(world: &World, pool: &VictimPool, view: &NodeView<'_>, taken: &Taken) -> Vec<Group> {
    type GroupKey = (DisruptionKind, u32, DisruptionCost, u32, SmallVec<[u64; 4]>);
    let class = &world.cluster.classes()[view.state.class.0 as usize];
    let is_flat = class.links.is_flat();
    let mut found: Vec<(GroupKey, Group)> = Vec::new();
    for (position, pod) in (0..).zip(&view.pods) {
        let (kind, number) = (view.kinds[usize::from(position)], pool.pod(*pod).workload);
        if kind == DisruptionKind::EvictAll {
            let key = (kind, 0, DisruptionCost::ZERO, number, SmallVec::new());
            if let Some((_, group)) = found.iter_mut().find(|(other, _)| *other == key) {
                group.disruptions[0].push(position);
            } else {
                let disruptions = smallvec![smallvec![position]];
                found.push((key, Group { kind, disruptions }));
            }
            continue;
        }
        let disruption = if kind == DisruptionKind::Move {
            Disruption::Move(*pod)
        } else {
            Disruption::Evict(*pod)
        };
        let cost = pool.cost(disruption).without_age();
        let member = view.members[usize::from(position)];
        // Pods with exclusive GPUs are interchangeable wherever these GPUs are.
        let parts = member.placement.gpus.iter().map(|part| {
            let gpu = view.state.gpus.get(usize::from(part.gpu));
            let without = gpu.and_then(|gpu| gpu.with(part, u32::MAX));
            let is_alone = without.is_some_and(|gpu| gpu.is_idle());
            let place = if is_alone && is_flat { u64::MAX >> 32 } else { part.gpu.into() };
            place << 32 | u64::from(part.milli) << 16 | u64::from(part.slices.0)
        });
        let limited = if kind == DisruptionKind::Evict
            && taken.slack(pool, number) < pool.workloads[number as usize].members
        {
            number
        } else {
            u32::MAX
        };
        let key = (kind, pool.pod(*pod).class, cost, limited, parts.collect());
        if let Some((_, group)) = found.iter_mut().find(|(other, _)| *other == key) {
            group.disruptions.push(smallvec![position]);
        } else {
            let disruptions = smallvec![smallvec![position]];
            found.push((key, Group { kind, disruptions }));
        }
    }
    // A workload that may lose only some of its pods here alone may also be evicted whole.
    let mut whole: Vec<(u32, Positions)> = Vec::new();
    for (position, pod) in (0..).zip(&view.pods) {
        let number = pool.pod(*pod).workload;
        if view.kinds[usize::from(position)] != DisruptionKind::Evict {
            continue;
        }
        match whole.iter_mut().find(|(workload, _)| *workload == number) {
            Some((_, positions)) => positions.push(position),
            None => whole.push((number, smallvec![position])),
        }
    }
    whole.retain(|(workload, positions)| {
        pool.workloads[*workload as usize].may_evict_all
            && positions.len() > taken.slack(pool, *workload) as usize
    });
    let mut groups: Vec<Group> = found.into_iter().map(|(_, group)| group).collect();
    groups.extend(whole.into_iter().map(|(_, positions)| Group {
        kind: DisruptionKind::EvictAll,
        disruptions: smallvec![positions],
    }));
    groups
}

/// Groups of workloads that may lose only some pods alone.
fn slack_limits(
    pool: &VictimPool,
    view: &NodeView<'_>,
    groups: &[Group],
    taken: &Taken,
) -> Vec<(SmallVec<[usize; 4]>, u16)> {
    let mut limits: Vec<(u32, SmallVec<[usize; 4]>, u16)> = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let first = group.disruptions.first().and_then(|disruption| disruption.first());
        let (DisruptionKind::Evict, Some(first)) = (group.kind, first) else { continue };
        let workload = pool.pod(view.pods[usize::from(*first)]).workload;
        let most = taken.slack(pool, workload);
        if most >= pool.workloads[workload as usize].members {
            continue;
        }
        if let Some((_, groups, _)) = limits.iter_mut().find(|(other, ..)| *other == workload) {
            groups.push(number);
        } else {
            let most = u16::try_from(most).unwrap_or(u16::MAX);
            limits.push((workload, smallvec![number], most));
        }
    }
    limits.into_iter().map(|(_, groups, most)| (groups, most)).collect()
}

fn first_disruption(pool: &VictimPool, view: &NodeView<'_>, group: &Group) -> Option<Disruption> {
    let first = group.disruptions.first();
    first.and_then(|pods| view.disruption(pool, group.kind, pods))
}
