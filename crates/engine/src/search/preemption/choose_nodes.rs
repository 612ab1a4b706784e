//! The nodes for members with equal requests, and the cheapest victims on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::disruption_cost::DisruptionCost;
use super::node_options::{NodeOptions, NodeView};
use super::option_cache::CandidateState;
use super::victims::{Disruption, PodIndex};
use crate::fit;
use crate::node::NodeId;
use crate::shape::Shape;
use crate::solve::constraints::{GroupConstraints, LimitUsage};

/// Table cells of the exact choice; above it the choice is greedy.
const MAX_TABLE_CELLS: usize = 1 << 20;

/// Members to place.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberDemand<'a> {
    /// Index of their group.
    pub(super) group: u32,
    pub(super) shape: &'a Shape,
    pub(super) count: u32,
    pub(super) constraints: &'a GroupConstraints,
    /// Members of the gang that are already placed.
    pub(super) usage: &'a LimitUsage,
}

impl MemberDemand<'_> {
    /// The maximum number of them on a node.
    fn max_on(&self, node: NodeId) -> u32 {
        self.count.min(self.constraints.remaining(node, self.usage))
    }
}

/// Chosen nodes with their victims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Members for each node.
    pub(super) assigned: Vec<(NodeId, u32)>,
    pub(super) disruptions: Vec<Disruption>,
    pub(super) cost: DisruptionCost,
}

/// A node that may be chosen.
struct CandidateNode {
    node: NodeId,
    signature: u32,
    /// Members that may be there at most.
    most: u32,
    options: Arc<NodeOptions>,
}

/// The cheapest choice among `nodes`. None: the members do not fit even without all victims, or the
/// step limit is reached.
///
/// The choice is exact if each victim matters to one node only and the table is small enough. It
/// then computes the least cost for each number of members, node by node. Of nodes with one
/// signature, it reads at most as many as members are missing. Otherwise the choice is greedy by
/// cost per member, with whole gangs among the candidates, and reprieves victims that turn out not
/// to be needed.
///
/// Fields compared after the highest priority are minimal for each node, not in total: a maximum is
/// not additive.
pub(super) fn choose(
    state: &mut CandidateState<'_>,
    nodes: &[NodeId],
    wanted: MemberDemand<'_>,
) -> Option<Choice> {
    let mut candidates = Vec::new();
    for node in nodes {
        if state.is_spent() {
            return None;
        }
        let most = wanted.max_on(*node);
        if most == 0 {
            continue;
        }
        let found = state.options(*node, wanted.group, wanted.shape, most);
        let Some((signature, options)) = found else { continue };
        if options.free > 0 || !options.more.is_empty() {
            candidates.push(CandidateNode { node: *node, signature, most, options });
        }
    }
    let free: u64 = candidates.iter().map(|candidate| u64::from(candidate.options.free)).sum();
    let Some(missing) = u64::from(wanted.count).checked_sub(free).filter(|missing| *missing > 0)
    else {
        // Of nodes with equal slots the fullest first: their remaining capacity serves the fewest
        // other pods.
        let mut slots: Vec<(NodeId, u32)> =
            candidates.iter().map(|candidate| (candidate.node, candidate.options.free)).collect();
        slots.sort_by_cached_key(|(node, _)| milli_left(state, *node));
        return Some(Choice { assigned: assigned(slots, wanted.count), ..Choice::default() });
    };
    let missing = u32::try_from(missing).unwrap_or(u32::MAX);
    let candidate_options = candidate_options(state, &candidates, missing);
    let is_multi_node =
        candidate_options.iter().flat_map(|(_, options)| options).any(|(_, _, disruptions)| {
            disruptions.iter().any(|disruption| state.is_multi_node(*disruption))
        });
    let exact = exact(state, &candidates, &candidate_options, wanted, missing);
    if !is_multi_node && exact.is_some() {
        return exact;
    }
    let greedy = greedy(state, nodes, &candidates, wanted);
    [exact, greedy].into_iter().flatten().min_by_key(|choice| choice.cost)
}

/// Options of a candidate node (by index): members beyond the free slots, the cost, the victims.
type CandidateOptions = (usize, Vec<(u32, DisruptionCost, Vec<Disruption>)>);

/// Of each signature the cheapest stands, as many as could be needed.
fn candidate_options(
    state: &mut CandidateState<'_>,
    candidates: &[CandidateNode],
    missing: u32,
) -> Vec<CandidateOptions> {
    let mut alike: BTreeMap<(u32, u32), Vec<(DisruptionCost, usize)>> = BTreeMap::new();
    let mut all: BTreeMap<usize, Vec<(u32, DisruptionCost, Vec<Disruption>)>> = BTreeMap::new();
    for (number, candidate) in candidates.iter().enumerate() {
        if candidate.options.more.is_empty() {
            continue;
        }
        let Some(view) = state.ordered(candidate.node) else { continue };
        let options: Vec<_> = candidate
            .options
            .more
            .iter()
            .map(|option| {
                let disruptions = view.disruptions(state.pool, &candidate.options, option);
                (
                    option.members - candidate.options.free,
                    state.pool.total_cost(disruptions.iter().copied()),
                    disruptions,
                )
            })
            .collect();
        let first = options.first().map_or(DisruptionCost::ZERO, |option| option.1);
        alike.entry((candidate.signature, candidate.most)).or_default().push((first, number));
        all.insert(number, options);
    }
    let mut kept = BTreeSet::new();
    for numbers in alike.values_mut() {
        numbers.sort_unstable();
        kept.extend(numbers.iter().take(missing as usize).map(|(_, number)| *number));
    }
    all.into_iter().filter(|(number, _)| kept.contains(number)).collect()
}

/// The least total cost for `missing` members. None: impossible, or the table is too large.
fn exact(
    state: &mut CandidateState<'_>,
    candidates: &[CandidateNode],
    candidate_options: &[CandidateOptions],
    wanted: MemberDemand<'_>,
    missing: u32,
) -> Option<Choice> {
    let missing = missing as usize;
    let most = candidate_options.iter().map(|(_, options)| options.len()).max().unwrap_or(0);
    if candidate_options.len().saturating_mul(missing + 1).saturating_mul(most) > MAX_TABLE_CELLS {
        return None;
    }
    let mut least: Vec<Option<DisruptionCost>> = vec![None; missing + 1];
    least[0] = Some(DisruptionCost::ZERO);
    let mut taken: Vec<Vec<u16>> = Vec::with_capacity(candidate_options.len());
    for (_, options) in candidate_options {
        *state.spent += (missing * options.len()) as u64 / 16;
        if state.is_spent() {
            return None;
        }
        let mut row = vec![0; missing + 1];
        for members in (1..=missing).rev() {
            for (number, (gain, cost, _)) in (1..).zip(options) {
                let remaining = members.saturating_sub(*gain as usize);
                let Some(sum) = least[remaining].map(|remaining| remaining.plus(*cost)) else {
                    continue;
                };
                if least[members].is_none_or(|least| sum < least) {
                    least[members] = Some(sum);
                    row[members] = number;
                }
            }
        }
        taken.push(row);
    }
    least[missing]?;
    let mut slots: BTreeMap<NodeId, u32> = BTreeMap::new();
    for candidate in candidates {
        slots.insert(candidate.node, candidate.options.free);
    }
    let (mut disruptions, mut remaining) = (BTreeSet::new(), missing);
    for ((candidate, options), row) in candidate_options.iter().zip(&taken).rev() {
        let Some(number) = row[remaining].checked_sub(1) else { continue };
        let (gain, _, victims) = &options[usize::from(number)];
        disruptions.extend(victims.iter().copied());
        *slots.entry(candidates[*candidate].node).or_default() += gain;
        remaining = remaining.saturating_sub(*gain as usize);
    }
    let disruptions: Vec<Disruption> = disruptions.into_iter().collect();
    if !is_within_slack(state, &disruptions) {
        return None;
    }
    let used = used_nodes(state, &disruptions);
    let cost = state.pool.total_cost(disruptions.iter().copied());
    Some(Choice { assigned: assigned_on(slots, &used, wanted.count), disruptions, cost })
}

/// Whether no workload loses more pods to single evictions, over all nodes, than it has above its
/// minimum.
fn is_within_slack(state: &CandidateState<'_>, disruptions: &[Disruption]) -> bool {
    let mut alone: BTreeMap<u32, u32> = BTreeMap::new();
    for disruption in disruptions {
        if let Disruption::Evict(pod) = disruption {
            *alone.entry(state.pool.pod(*pod).workload).or_default() += 1;
        }
    }
    alone.iter().all(|(workload, count)| *count <= state.slack(*workload))
}

/// Takes the best action repeatedly, then reprieves victims that are not needed.
fn greedy(
    state: &mut CandidateState<'_>,
    nodes: &[NodeId],
    candidates: &[CandidateNode],
    wanted: MemberDemand<'_>,
) -> Option<Choice> {
    let mut draft = Draft {
        wanted,
        slots: candidates
            .iter()
            .map(|candidate| (candidate.node, candidate.options.free))
            .collect(),
        options: BTreeMap::new(),
        removed: BTreeSet::new(),
        disruptions: BTreeSet::new(),
        gangs: gangs(state, nodes),
    };
    for candidate in candidates {
        let Some(view) = state.ordered(candidate.node) else { continue };
        draft.set_offers(state, &view, candidate.node, &candidate.options);
    }
    let mut is_found = true;
    while is_found && draft.missing() > 0 {
        match draft.best(state) {
            Some(disruptions) => draft.take(state, disruptions),
            None => is_found = false,
        }
        is_found &= !state.is_spent();
    }
    if is_found {
        draft.reprieve(state);
    }
    for pod in std::mem::take(&mut draft.removed) {
        state.lost[state.pool.pod(pod).workload as usize] -= 1;
    }
    if !is_found {
        return None;
    }
    let disruptions: Vec<Disruption> = draft.disruptions.into_iter().collect();
    let used = used_nodes(state, &disruptions);
    let cost = state.pool.total_cost(disruptions.iter().copied());
    Some(Choice { assigned: assigned_on(draft.slots, &used, wanted.count), disruptions, cost })
}

struct Draft<'a> {
    wanted: MemberDemand<'a>,
    /// Free slots for members by node, with the victims so far removed.
    slots: BTreeMap<NodeId, u32>,
    /// Options of each node beyond its free slots.
    options: BTreeMap<NodeId, Vec<(u32, DisruptionCost, Vec<Disruption>)>>,
    /// Pods removed in this draft.
    removed: BTreeSet<PodIndex>,
    disruptions: BTreeSet<Disruption>,
    /// Evictable gangs on several of the nodes, with these nodes.
    gangs: BTreeMap<u32, BTreeSet<NodeId>>,
}

impl Draft<'_> {
    fn missing(&self) -> u32 {
        let slot_count =
            self.slots.values().fold(0_u32, |sum, slot_count| sum.saturating_add(*slot_count));
        self.wanted.count.saturating_sub(slot_count)
    }

    fn set_offers(
        &mut self,
        state: &CandidateState<'_>,
        view: &NodeView<'_>,
        node: NodeId,
        options: &NodeOptions,
    ) {
        let list = options.more.iter().map(|option| {
            let disruptions = view.disruptions(state.pool, options, option);
            (
                option.members - options.free,
                state.pool.total_cost(disruptions.iter().copied()),
                disruptions,
            )
        });
        let list: Vec<_> = list.collect();
        self.slots.insert(node, options.free);
        self.options.insert(node, list);
    }

    /// The disruptions with the least cost per additional member.
    fn best(&self, state: &mut CandidateState<'_>) -> Option<Vec<Disruption>> {
        let missing = self.missing();
        let mut best: Option<(DisruptionCost, u32, Vec<Disruption>)> = None;
        let mut consider = |cost: DisruptionCost, gain: u32, disruptions: &[Disruption]| {
            let gain = gain.min(missing);
            let is_better = |(least, most, _): &(DisruptionCost, u32, Vec<Disruption>)| {
                cost.cmp_each(gain, *least, *most).is_lt()
            };
            if gain > 0 && best.as_ref().is_none_or(is_better) {
                best = Some((cost, gain, disruptions.to_vec()));
            }
        };
        for options in self.options.values() {
            *state.spent += 1;
            for (gain, cost, disruptions) in options {
                consider(*cost, *gain, disruptions);
            }
        }
        for (gang, nodes) in &self.gangs {
            let disruption = Disruption::EvictAll(*gang);
            if self.disruptions.contains(&disruption) {
                continue;
            }
            if state.is_spent() {
                return None;
            }
            let pods = state.pool.pods_of(disruption);
            let gain = nodes.iter().map(|node| {
                *state.spent += 1;
                let is_removed = |pod| self.removed.contains(&pod) || pods.contains(&pod);
                let view = state.view(*node, is_removed);
                let now = self.slots.get(node).copied().unwrap_or(0);
                let cluster = &state.world.cluster;
                let times =
                    |view: NodeView<'_>| fit::times(cluster, &view.state, self.wanted.shape);
                view.map_or(0, times).min(self.wanted.max_on(*node)).saturating_sub(now)
            });
            let gain = gain.fold(0_u32, u32::saturating_add);
            consider(state.pool.cost(disruption), gain, &[disruption]);
        }
        best.map(|(_, _, disruptions)| disruptions)
    }

    fn take(&mut self, state: &mut CandidateState<'_>, disruptions: Vec<Disruption>) {
        for disruption in disruptions {
            for pod in state.pool.pods_of(disruption) {
                if !state.gone[pod as usize] && self.removed.insert(pod) {
                    let workload = state.pool.pod(pod).workload;
                    state.lost[workload as usize] += 1;
                }
            }
            self.disruptions.insert(disruption);
            self.recount(state, disruption);
        }
    }

    /// Evaluates all nodes again that have pods of a disruption, or of its workload if that
    /// matters.
    fn recount(&mut self, state: &mut CandidateState<'_>, disruption: Disruption) {
        let pods = match disruption {
            Disruption::Move(_) => state.pool.pods_of(disruption),
            Disruption::Evict(pod) if !state.pool.workload(pod).is_multi_node => {
                state.pool.pods_of(disruption)
            }
            Disruption::Evict(pod) => state.pool.workload(pod).pods.clone(),
            Disruption::EvictAll(workload) => state.pool.workloads[workload as usize].pods.clone(),
        };
        let nodes: BTreeSet<NodeId> = pods.filter_map(|pod| node_of(state, pod)).collect();
        for node in nodes {
            if state.is_spent() {
                return;
            }
            if !self.slots.contains_key(&node) && !self.options.contains_key(&node) {
                continue;
            }
            let Some(view) = state.view(node, |pod| self.removed.contains(&pod)) else { continue };
            let options = state.find(&view, self.wanted.shape, self.wanted.max_on(node));
            self.set_offers(state, &view, node, &options);
        }
    }

    /// Reprieves victims that are not needed, the most expensive first.
    fn reprieve(&mut self, state: &mut CandidateState<'_>) {
        let mut disruptions: Vec<Disruption> = self.disruptions.iter().copied().collect();
        disruptions.sort_by_key(|disruption| {
            std::cmp::Reverse((state.pool.cost(*disruption), *disruption))
        });
        for disruption in disruptions {
            if state.is_spent() {
                return;
            }
            let others: BTreeSet<PodIndex> = self
                .disruptions
                .iter()
                .filter(|other| **other != disruption)
                .flat_map(|other| state.pool.pods_of(*other))
                .collect();
            let pods = state.pool.pods_of(disruption).filter(|pod| !others.contains(pod));
            let nodes: BTreeSet<NodeId> = pods.filter_map(|pod| node_of(state, pod)).collect();
            let mut slots = self.slots.clone();
            for node in nodes.iter().filter(|node| self.slots.contains_key(node)) {
                *state.spent += 1;
                let view = state.view(*node, |pod| others.contains(&pod));
                let cluster = &state.world.cluster;
                let times =
                    |view: NodeView<'_>| fit::times(cluster, &view.state, self.wanted.shape);
                slots.insert(*node, view.map_or(0, times).min(self.wanted.max_on(*node)));
            }
            let slot_count =
                slots.values().fold(0_u32, |sum, slot_count| sum.saturating_add(*slot_count));
            if slot_count >= self.wanted.count {
                self.disruptions.remove(&disruption);
                self.slots = slots;
            }
        }
    }
}

/// Gangs that may be evicted whole and have pods on several of these nodes.
fn gangs(state: &CandidateState<'_>, nodes: &[NodeId]) -> BTreeMap<u32, BTreeSet<NodeId>> {
    let mut gangs: BTreeMap<u32, BTreeSet<NodeId>> = BTreeMap::new();
    for node in nodes {
        for pod in state.pool.on(*node) {
            let workload = state.pool.pod(*pod).workload;
            let can_go =
                state.pool.workloads[workload as usize].is_multi_node && !state.gone[*pod as usize];
            if can_go
                && state
                    .kind(*pod)
                    .is_some_and(|kind| kind != super::node_options::DisruptionKind::Move)
            {
                gangs.entry(workload).or_default().insert(*node);
            }
        }
    }
    gangs.retain(|_, nodes| nodes.len() > 1);
    gangs
}

fn node_of(state: &CandidateState<'_>, pod: PodIndex) -> Option<NodeId> {
    state.pool.member(state.world, pod).map(|member| member.placement.node)
}

fn used_nodes(state: &CandidateState<'_>, disruptions: &[Disruption]) -> BTreeSet<NodeId> {
    let pods = disruptions.iter().flat_map(|disruption| state.pool.pods_of(*disruption));
    pods.filter_map(|pod| node_of(state, pod)).collect()
}

fn milli_left(state: &CandidateState<'_>, node: NodeId) -> i64 {
    state.world.cluster.gpus(node).iter().map(|gpu| i64::from(gpu.open_milli())).sum()
}

/// Assigns `count` members to few of the nodes with free slots.
fn assigned(mut slots: Vec<(NodeId, u32)>, count: u32) -> Vec<(NodeId, u32)> {
    slots.sort_by_key(|(_, slot_count)| std::cmp::Reverse(*slot_count));
    let mut remaining = count;
    let mut assigned = Vec::new();
    for (node, slot_count) in slots {
        let taken = slot_count.min(remaining);
        if taken > 0 {
            assigned.push((node, taken));
            remaining -= taken;
        }
    }
    assigned
}

/// The same, preferring nodes with victims.
fn assigned_on(
    slots: BTreeMap<NodeId, u32>,
    first: &BTreeSet<NodeId>,
    count: u32,
) -> Vec<(NodeId, u32)> {
    let (on, off): (Vec<_>, Vec<_>) = slots.into_iter().partition(|(node, _)| first.contains(node));
    let mut chosen = assigned(on, count);
    let remaining = count - chosen.iter().map(|(_, assigned)| assigned).sum::<u32>();
    chosen.extend(assigned(off, remaining));
    chosen
}
