//! Options of a node: for each number of members the cheapest pods to disrupt.

use smallvec::{SmallVec, smallvec};

use super::disruption_cost::DisruptionCost;
use super::node_view;
use super::victims::{Disruption, PodIndex, VictimPool};
use crate::World;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::shape::Shape;
use crate::workload::Member;

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
    /// More members for more victims: both ascend.
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
/// `slack` is the number of pods of a workload that may still be evicted alone.
pub(super) fn find(
    world: &World,
    pool: &VictimPool,
    view: &NodeView<'_>,
    shape: &Shape,
    most: u32,
    slack: impl Fn(u32) -> u32,
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
    let groups = groups(world, pool, view, &slack);
    let costs = groups.iter().map(|group| cost(pool, view, group)).collect();
    let limits = limits(pool, view, &groups, &slack);
    let mut search = Search {
        view,
        groups: &groups,
        costs,
        limits,
        free,
        max_fit,
        best: vec![None; (max_fit - free) as usize],
        count: &count,
        spent: 0,
    };
    let subsets = groups.iter().map(|group| group.disruptions.len() + 1);
    let subsets = subsets.fold(1_usize, usize::saturating_mul);
    if subsets <= MAX_SUBSETS {
        let mut state = view.state.clone();
        let mut gone = smallvec![0; view.pods.len()];
        search.all(0, &mut state, &mut gone, &mut SmallVec::new(), DisruptionCost::ZERO);
    } else {
        search.greedy(&empty);
    }
    *spent += search.spent;
    let more = frontier(std::mem::take(&mut search.best), free);
    NodeOptions { free, groups, more }
}

/// Offers that are cheaper than all that give more.
fn frontier(best: Vec<Option<(DisruptionCost, SmallVec<[u16; 8]>)>>, free: u32) -> Vec<NodeOption> {
    let mut more = Vec::new();
    let mut cheapest: Option<DisruptionCost> = None;
    for (above, found) in (1..).zip(best).collect::<Vec<_>>().into_iter().rev() {
        let Some((cost, counts)) = found else { continue };
        if cheapest.is_none_or(|cheapest| cost < cheapest) {
            cheapest = Some(cost);
            more.push(NodeOption { members: free + above, counts });
        }
    }
    more.reverse();
    more
}

struct Search<'a, 'm, C> {
    view: &'a NodeView<'m>,
    groups: &'a [Group],
    costs: Vec<DisruptionCost>,
    /// For workloads that may lose only some pods alone: the groups, and the limit.
    limits: Vec<(SmallVec<[usize; 4]>, u16)>,
    free: u32,
    max_fit: u32,
    /// By members above `free`, less one.
    best: Vec<Option<(DisruptionCost, SmallVec<[u16; 8]>)>>,
    count: &'a C,
    spent: u64,
}

impl<C: Fn(&NodeState) -> u32> Search<'_, '_, C> {
    /// Enumerates the numbers of disruptions of all groups from `depth` on.
    fn all(
        &mut self,
        depth: usize,
        state: &mut NodeState,
        gone: &mut SmallVec<[u16; 8]>,
        counts: &mut SmallVec<[u16; 8]>,
        cost: DisruptionCost,
    ) {
        if self.best.last().is_some_and(|best| best.as_ref().is_some_and(|best| best.0 <= cost)) {
            return;
        }
        if depth == self.groups.len() {
            self.note(state, counts, cost);
            return;
        }
        let (groups, each) = (self.groups, self.costs[depth]);
        let group = &groups[depth];
        let before = state.clone();
        let mut sum = cost;
        counts.push(0);
        self.all(depth + 1, state, gone, counts, sum);
        for (number, disruption) in (1..).zip(&group.disruptions) {
            self.take(state, gone, disruption);
            counts[depth] = number;
            sum = sum.plus(each);
            self.all(depth + 1, state, gone, counts, sum);
        }
        counts.pop();
        for disruption in &group.disruptions {
            for position in disruption {
                gone[usize::from(*position)] -= 1;
            }
        }
        *state = before;
    }

    fn note(&mut self, state: &NodeState, counts: &SmallVec<[u16; 8]>, cost: DisruptionCost) {
        if !self.is_within_limits(counts) {
            return;
        }
        self.spent += 1;
        let members = (self.count)(state).min(self.max_fit);
        let Some(above) = members.checked_sub(self.free + 1) else { return };
        let best = &mut self.best[above as usize];
        if best.as_ref().is_none_or(|best| cost < best.0) {
            *best = Some((cost, counts.clone()));
        }
    }

    fn is_within_limits(&self, counts: &[u16]) -> bool {
        self.limits
            .iter()
            .all(|(groups, most)| groups.iter().map(|group| counts[*group]).sum::<u16>() <= *most)
    }

    fn take(&self, state: &mut NodeState, gone: &mut SmallVec<[u16; 8]>, disruption: &Positions) {
        for position in disruption {
            let position = usize::from(*position);
            gone[position] += 1;
            if gone[position] == 1 {
                node_view::take_off(state, self.view.members[position]);
            }
        }
    }

    /// Removes all victims and reprieves those that are not needed, the most expensive first, in
    /// several orders.
    fn greedy(&mut self, empty: &NodeState) {
        let mut order: Vec<(usize, usize)> = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            order.extend((0..group.disruptions.len()).map(|disruption| (number, disruption)));
        }
        let dear = |(group, _): &(usize, usize)| std::cmp::Reverse(self.costs[*group]);
        let mut by_price = order.clone();
        by_price.sort_by_key(dear);
        let mut by_size = order.clone();
        by_size.sort_by_key(|&(group, disruption)| {
            (self.size(group, disruption), dear(&(group, disruption)))
        });
        // A GPU is idle only after its last pod is gone: keep the GPUs with the most expensive
        // pods.
        let mut by_gpu = order;
        by_gpu.sort_by_key(|&(group, disruption)| {
            std::cmp::Reverse(self.cost_of_gpus(group, disruption))
        });
        for order in [by_price, by_size, by_gpu] {
            for above in 1..=self.max_fit - self.free {
                self.greedy_for(self.free + above, empty, &order);
            }
        }
    }

    fn greedy_for(&mut self, members: u32, empty: &NodeState, order: &[(usize, usize)]) {
        let mut state = empty.clone();
        let mut gone: SmallVec<[u16; 8]> = smallvec![0; self.view.pods.len()];
        let mut counts: SmallVec<[u16; 8]> = smallvec![0; self.groups.len()];
        for (number, group) in self.groups.iter().enumerate() {
            counts[number] = u16::try_from(group.disruptions.len()).unwrap_or(u16::MAX);
            for position in group.disruptions.iter().flatten() {
                gone[usize::from(*position)] += 1;
            }
        }
        for &(group, disruption) in order {
            let before = state.clone();
            let disruption = &self.groups[group].disruptions[disruption];
            for position in disruption {
                let position = usize::from(*position);
                gone[position] -= 1;
                if gone[position] == 0 {
                    node_view::put_back(&mut state, self.view.members[position]);
                }
            }
            self.spent += 1;
            if (self.count)(&state) >= members {
                counts[group] -= 1;
            } else {
                state = before;
                for position in disruption {
                    gone[usize::from(*position)] += 1;
                }
            }
        }
        let mut cost = DisruptionCost::ZERO;
        for (count, each) in counts.iter().zip(&self.costs) {
            for _ in 0..*count {
                cost = cost.plus(*each);
            }
        }
        self.note(&state, &counts, cost);
    }

    fn size(&self, group: usize, disruption: usize) -> i64 {
        let members = self.groups[group].disruptions[disruption].iter();
        -members.map(|position| self.view.members[usize::from(*position)].gpu_milli()).sum::<i64>()
    }

    /// Total cost of all pods on the GPUs of a disruption.
    fn cost_of_gpus(&self, group: usize, disruption: usize) -> DisruptionCost {
        let has = |position: &u16, gpu: u16| {
            let member = self.view.members[usize::from(*position)];
            member.placement.gpus.iter().any(|part| part.gpu == gpu)
        };
        let mine = &self.groups[group].disruptions[disruption];
        let mut sum = DisruptionCost::ZERO;
        for gpu in (0..).take(self.view.state.gpus.len()) {
            if !mine.iter().any(|position| has(position, gpu)) {
                continue;
            }
            for (group, each) in self.groups.iter().zip(&self.costs) {
                let on = group
                    .disruptions
                    .iter()
                    .filter(|disruption| disruption.iter().any(|pod| has(pod, gpu)));
                for _ in on {
                    sum = sum.plus(*each);
                }
            }
        }
        sum
    }
}

/// The disruptions of a node in groups of interchangeable ones.
fn groups(
    world: &World,
    pool: &VictimPool,
    view: &NodeView<'_>,
    slack: &impl Fn(u32) -> u32,
) -> Vec<Group> {
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
            && slack(number) < pool.workloads[number as usize].members
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
    whole.retain(|(workload, positions)| positions.len() > slack(*workload) as usize);
    let mut groups: Vec<Group> = found.into_iter().map(|(_, group)| group).collect();
    groups.extend(whole.into_iter().map(|(_, positions)| Group {
        kind: DisruptionKind::EvictAll,
        disruptions: smallvec![positions],
    }));
    groups
}

/// Groups of workloads that may lose only some pods alone.
fn limits(
    pool: &VictimPool,
    view: &NodeView<'_>,
    groups: &[Group],
    slack: &impl Fn(u32) -> u32,
) -> Vec<(SmallVec<[usize; 4]>, u16)> {
    let mut limits: Vec<(u32, SmallVec<[usize; 4]>, u16)> = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let first = group.disruptions.first().and_then(|disruption| disruption.first());
        let (DisruptionKind::Evict, Some(first)) = (group.kind, first) else { continue };
        let workload = pool.pod(view.pods[usize::from(*first)]).workload;
        let most = slack(workload);
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

/// The cost of one disruption of a group without age, in which alone the members of a group differ.
fn cost(pool: &VictimPool, view: &NodeView<'_>, group: &Group) -> DisruptionCost {
    let disruption =
        group.disruptions.first().and_then(|pods| view.disruption(pool, group.kind, pods));
    disruption.map_or(DisruptionCost::ZERO, |disruption| pool.cost(disruption)).without_age()
}
