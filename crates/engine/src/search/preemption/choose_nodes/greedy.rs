//! The greedy choice, for victims that matter to several nodes and for tables that are too large.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use super::super::disruption_cost::DisruptionCost;
use super::super::node_options::{DisruptionKind, NodeOptions, NodeView};
use super::super::option_cache::CandidateState;
use super::super::victims::{Disruption, PodIndex};
use super::{
    CandidateNode, Choice, MemberDemand, OptionOnNode, allowed_options, assigned_on, node_of,
    used_nodes,
};
use crate::fit;
use crate::node::NodeId;

/// Takes the best action that limits on evictions allow, repeatedly; then reprieves victims that are
/// not needed.
pub(super) fn greedy(
    state: &mut CandidateState<'_>,
    nodes: &[NodeId],
    candidates: &[CandidateNode],
    wanted: MemberDemand<'_>,
) -> Option<Choice> {
    let before = state.taken.clone();
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
    state.taken = before;
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
    options: BTreeMap<NodeId, Vec<OptionOnNode>>,
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
        let list = allowed_options(state, view, options, |pod| self.removed.contains(&pod));
        self.slots.insert(node, options.free);
        self.options.insert(node, list);
    }

    /// The disruptions with the least cost per additional member.
    fn best(&self, state: &mut CandidateState<'_>) -> Option<Vec<Disruption>> {
        let missing = self.missing();
        *state.spent += self.options.len() as u64;
        let mut of_gangs: Vec<(u32, DisruptionCost, Disruption)> = Vec::new();
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
            of_gangs.push((gain, state.pool.cost(disruption), disruption));
        }
        let of_nodes = self.options.values().flatten();
        let of_nodes = of_nodes.map(|option| (option.gain, option.cost, &option.disruptions[..]));
        let of_gangs = of_gangs.iter();
        let of_gangs = of_gangs.map(|(gain, cost, gang)| (*gain, *cost, slice::from_ref(gang)));
        let mut best: Option<(DisruptionCost, u32, &[Disruption])> = None;
        for (gain, cost, disruptions) in of_nodes.chain(of_gangs) {
            let gain = gain.min(missing);
            let is_better =
                best.is_none_or(|(least, most, _)| cost.cmp_each(gain, least, most).is_lt());
            if gain == 0 || !is_better {
                continue;
            }
            let uses = state.uses(disruptions, &|pod| self.removed.contains(&pod));
            *state.spent += u64::from(!uses.is_empty());
            if state.taken.allows(state.pool, &uses) {
                best = Some((cost, gain, disruptions));
            }
        }
        best.map(|(.., disruptions)| disruptions.to_vec())
    }

    fn take(&mut self, state: &mut CandidateState<'_>, disruptions: Vec<Disruption>) {
        for disruption in disruptions {
            for pod in state.pool.pods_of(disruption) {
                if !state.taken.gone[pod as usize] && self.removed.insert(pod) {
                    state.taken.take(state.pool, pod, false);
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
            let can_go = state.pool.workloads[workload as usize].is_multi_node
                && state.pool.workloads[workload as usize].may_evict_all
                && !state.taken.gone[*pod as usize];
            if can_go && state.kind(*pod).is_some_and(|kind| kind != DisruptionKind::Move) {
                gangs.entry(workload).or_default().insert(*node);
            }
        }
    }
    gangs.retain(|_, nodes| nodes.len() > 1);
    gangs
}
