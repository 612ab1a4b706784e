//! The nodes for members with equal requests, and the cheapest victims on them.

mod greedy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::disruption_cost::DisruptionCost;
use super::eviction_uses::{Alternatives, EvictionUses, LimitIndex, MAX_ALTERNATIVES};
use super::node_options::{NodeOptions, NodeView};
use super::option_cache::CandidateState;
use super::victims::{Disruption, PodIndex};
use crate::node::NodeId;
use crate::shape::Shape;
use crate::solve::constraints::{GroupConstraints, LimitUsage};

/// Table cells of the exact choice; above it the choice is greedy.
const MAX_TABLE_CELLS: usize = 1 << 20;

/// Tables to compute at most, each with more limits than the one before.
const MAX_TABLES: usize = 8;

/// Table cells of one step.
const CELLS_PER_STEP: u64 = 16;

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

/// An option of a node.
struct OptionOnNode {
    /// Members beyond the free slots.
    gain: u32,
    cost: DisruptionCost,
    uses: EvictionUses,
    disruptions: Vec<Disruption>,
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
/// Where limits on evictions are tight for several nodes, the table keeps several sums for a number
/// of members, which use the limits differently. Their number is bounded; so a valid choice may be
/// missed where many limits are tight.
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
    let is_multi_node = candidate_options
        .iter()
        .flat_map(|(_, options)| options)
        .any(|option| option.disruptions.iter().any(|disruption| state.is_multi_node(*disruption)));
    let exact = exact(state, &candidates, &candidate_options, wanted, missing);
    if !is_multi_node && exact.is_some() {
        return exact;
    }
    let greedy = greedy::greedy(state, nodes, &candidates, wanted);
    [exact, greedy].into_iter().flatten().min_by_key(|choice| choice.cost)
}

/// Options of a candidate node (by index).
type CandidateOptions = (usize, Vec<OptionOnNode>);

/// The options of a node that limits on evictions allow now.
fn allowed_options(
    state: &CandidateState<'_>,
    view: &NodeView<'_>,
    options: &NodeOptions,
    is_removed: impl Fn(PodIndex) -> bool,
) -> Vec<OptionOnNode> {
    let of_option = |option| {
        let disruptions = view.disruptions(state.pool, options, option);
        let uses = state.uses(&disruptions, &is_removed);
        let cost = state.pool.total_cost(disruptions.iter().copied());
        OptionOnNode { gain: option.members - options.free, cost, uses, disruptions }
    };
    let options = options.more.iter().map(of_option);
    options.filter(|option| state.taken.allows(state.pool, &option.uses)).collect()
}

/// Of each signature the cheapest stands, as many as could be needed.
fn candidate_options(
    state: &mut CandidateState<'_>,
    candidates: &[CandidateNode],
    missing: u32,
) -> Vec<CandidateOptions> {
    let mut alike: BTreeMap<(u32, u32), Vec<(DisruptionCost, usize)>> = BTreeMap::new();
    let mut all: BTreeMap<usize, Vec<OptionOnNode>> = BTreeMap::new();
    for (number, candidate) in candidates.iter().enumerate() {
        if candidate.options.more.is_empty() {
            continue;
        }
        let Some(view) = state.ordered(candidate.node) else { continue };
        let options = allowed_options(state, &view, &candidate.options, |_| false);
        let Some(first) = options.first() else { continue };
        alike.entry((candidate.signature, candidate.most)).or_default().push((first.cost, number));
        all.insert(number, options);
    }
    let mut kept = BTreeSet::new();
    for numbers in alike.values_mut() {
        numbers.sort_unstable();
        kept.extend(numbers.iter().take(missing as usize).map(|(_, number)| *number));
    }
    all.into_iter().filter(|(number, _)| kept.contains(number)).collect()
}

/// The least total cost for `missing` members. None: impossible, or it takes too long.
///
/// Limits on evictions are ignored at first. Those that the sum exceeds are counted from then on,
/// with a quarter of the remaining steps. The others are kept for the greedy choice.
fn exact(
    state: &mut CandidateState<'_>,
    candidates: &[CandidateNode],
    candidate_options: &[CandidateOptions],
    wanted: MemberDemand<'_>,
    missing: u32,
) -> Option<Choice> {
    let end = *state.spent + state.limit.saturating_sub(*state.spent) / 4;
    let mut counted: BTreeSet<LimitIndex> = BTreeSet::new();
    let mut found = None;
    for _ in 0..MAX_TABLES {
        let chosen = cheapest_sum(state, candidate_options, missing as usize, &counted, end)?;
        let disruptions: BTreeSet<Disruption> =
            chosen.iter().flat_map(|(_, option)| option.disruptions.iter().copied()).collect();
        let disruptions: Vec<Disruption> = disruptions.into_iter().collect();
        let uses = state.uses(&disruptions, &|_| false);
        let exceeded: Vec<LimitIndex> =
            uses.exceeded(|limit| state.taken.left(state.pool, limit)).collect();
        if exceeded.is_empty() {
            found = Some((chosen, disruptions));
            break;
        }
        counted.extend(exceeded);
    }
    let (chosen, disruptions) = found?;
    if !is_within_slack(state, &disruptions) {
        return None;
    }
    let mut slots: BTreeMap<NodeId, u32> = BTreeMap::new();
    for candidate in candidates {
        slots.insert(candidate.node, candidate.options.free);
    }
    for (candidate, option) in chosen {
        *slots.entry(candidates[candidate].node).or_default() += option.gain;
    }
    let used = used_nodes(state, &disruptions);
    let cost = state.pool.total_cost(disruptions.iter().copied());
    Some(Choice { assigned: assigned_on(slots, &used, wanted.count), disruptions, cost })
}

/// The options with the least total cost for `missing` members, by candidate node. They exceed no
/// limit of `counted`. With such limits, the work ends when `end` steps are spent.
fn cheapest_sum<'a>(
    state: &mut CandidateState<'_>,
    candidate_options: &'a [CandidateOptions],
    missing: usize,
    counted: &BTreeSet<LimitIndex>,
    end: u64,
) -> Option<Vec<(usize, &'a OptionOnNode)>> {
    let most = candidate_options.iter().map(|(_, options)| options.len()).max().unwrap_or(0);
    let alternatives = if counted.is_empty() { 1 } else { MAX_ALTERNATIVES };
    let cells = [missing + 1, most, alternatives].into_iter();
    if cells.fold(candidate_options.len(), usize::saturating_mul) > MAX_TABLE_CELLS {
        return None;
    }
    // A sum is the sum before it, if there is one, and another option.
    let mut sums: Vec<(Option<usize>, usize, &OptionOnNode)> = Vec::new();
    let mut least: Vec<Alternatives<Option<usize>>> = vec![Alternatives::default(); missing + 1];
    least[0].add(DisruptionCost::ZERO, EvictionUses::default(), || None);
    for (candidate, options) in candidate_options {
        let mut work = if counted.is_empty() { (missing * options.len()) as u64 } else { 0 };
        for members in (1..=missing).rev() {
            for option in options {
                let (fewer, rest) = least.split_at_mut(members);
                let remaining = &fewer[members.saturating_sub(option.gain as usize)];
                for (cost, uses, before) in remaining.iter() {
                    let mut uses = uses.clone();
                    uses.add_all(&option.uses, 1, |limit| counted.contains(&limit));
                    if !counted.is_empty() {
                        work += rest[0].work(&uses);
                    }
                    if state.taken.allows(state.pool, &uses) {
                        rest[0].add(cost.plus(option.cost), uses, || {
                            sums.push((*before, *candidate, option));
                            Some(sums.len() - 1)
                        });
                    }
                }
            }
        }
        *state.spent += work / CELLS_PER_STEP;
        if state.is_spent() || (!counted.is_empty() && *state.spent > end) {
            return None;
        }
    }
    let (mut chosen, mut last) = (Vec::new(), least[missing].iter().next()?.2);
    while let Some(sum) = last {
        let (before, candidate, option) = sums[sum];
        chosen.push((candidate, option));
        last = before;
    }
    Some(chosen)
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
