//! Ranked candidate placements of a shape, updated incrementally.
//!
//! States of nodes are scored, not nodes. Each score is kept in a heap with the first node of its
//! state. Scores share a heap if their GPUs have the same risk and the same reserved shapes would lose slots. The set of tight shapes
//! therefore only selects which heap tops are compared. It may change at any decision without
//! rescoring.
//!
//! Stale entries stay in the heaps until they reach the top. Each live state that fits has an entry
//! for each candidate. Its node is the state's first node or a lower one: a node that becomes first
//! is in the log. If the node of a top entry has left the state, the entry is replaced with one for
//! the state's first node.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use super::candidates::Candidates;
use super::potential::WORTH_UNIT;
use crate::cluster::Cluster;
use crate::cluster::log::Cursor;
use crate::cluster::states::StateId;
use crate::node::{NodeId, NodeSet};
use crate::pick::FreeLevel;
use crate::shape::Shape;

/// Penalty for each lost slot of a tight shape. It is bounded: with a larger one, CPU-heavy steady
/// clusters keep slots for pods that rarely fit.
const RESERVED_PENALTY: i64 = 10 * WORTH_UNIT;

/// The scores of one shape.
#[derive(Clone, Debug)]
pub(super) struct Index {
    pub(super) shape: Arc<Shape>,
    pub(super) cursor: Cursor,
    /// When it was last asked.
    pub(super) used: u64,
    /// By the risk of the GPUs and the mask of reserved shapes that lose a slot.
    heaps: BTreeMap<(u32, u64), BinaryHeap<Entry>>,
    entries: usize,
}

/// A candidate placement of the shape with its score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) gain: i64,
    pub(super) node: NodeId,
    pub(super) state: StateId,
    pub(super) level: Option<FreeLevel>,
}

/// An entry in ranking order: the least risk, the score, then the lower node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RankedEntry {
    /// The risk of its GPUs; 0 if it does not count.
    pub(super) risk: u32,
    pub(super) losses: u32,
    pub(super) entry: Entry,
}

impl RankedEntry {
    /// The gain minus the penalties.
    pub(super) fn score(&self) -> i64 {
        self.entry.gain.saturating_sub(RESERVED_PENALTY.saturating_mul(self.losses.into()))
    }
}

impl Index {
    pub(super) fn new(shape: &Arc<Shape>) -> Self {
        let (shape, cursor) = (Arc::clone(shape), Cursor::default());
        Self { shape, cursor, used: 0, heaps: BTreeMap::new(), entries: 0 }
    }

    /// Forgets all scores.
    pub(super) fn clear(&mut self) {
        self.heaps.clear();
        self.entries = 0;
    }

    /// Notes the candidates of a state and its first node.
    pub(super) fn note(&mut self, node: NodeId, state: StateId, candidates: &Candidates) {
        for candidate in candidates {
            let entry = Entry { gain: candidate.gain, node, state, level: candidate.level };
            self.heaps.entry((candidate.risk, candidate.losers)).or_default().push(entry);
            self.entries += 1;
        }
    }

    /// The best entry for these tight shapes that has a node outside of `forbidden`, and the best one in another state. There is no
    /// other if all nodes of its state are forbidden.
    pub(super) fn best(
        &mut self,
        cluster: &Cluster,
        tight: u64,
        avoids_risk: bool,
        forbidden: &NodeSet,
    ) -> Option<(RankedEntry, Option<RankedEntry>)> {
        let ranked = |(risk, losers): &(u32, u64), entry| RankedEntry {
            risk: if avoids_risk { *risk } else { 0 },
            losses: (losers & tight).count_ones(),
            entry,
        };
        let mut left_out = Vec::new();
        let best = loop {
            let Some((key, first)) = self.first(cluster, ranked) else { break None };
            let allowed = allowed(cluster, first, forbidden);
            if allowed.is_some() {
                break allowed;
            }
            self.heaps.get_mut(&key).map(BinaryHeap::pop);
            left_out.push((key, first.entry));
        };
        let rival = best.and_then(|best| {
            let seconds = self.heaps.iter_mut().filter_map(|(key, heap)| {
                Some(ranked(key, second(cluster, heap, best.entry.state)?))
            });
            allowed(cluster, seconds.max()?, forbidden)
        });
        for (key, entry) in left_out {
            self.heaps.entry(key).or_default().push(entry);
        }
        Some((best?, rival))
    }

    /// The best entry of all heaps, and the key of its heap.
    fn first(
        &mut self,
        cluster: &Cluster,
        ranked: impl Fn(&(u32, u64), Entry) -> RankedEntry,
    ) -> Option<((u32, u64), RankedEntry)> {
        let mut best: Option<((u32, u64), RankedEntry)> = None;
        let mut is_some_empty = false;
        for (key, heap) in &mut self.heaps {
            let Some(entry) = top(cluster, heap) else {
                is_some_empty = true;
                continue;
            };
            let ranked = ranked(key, entry);
            if best.is_none_or(|(_, other)| ranked > other) {
                best = Some((*key, ranked));
            }
        }
        if is_some_empty {
            self.heaps.retain(|_, heap| !heap.is_empty());
        }
        best
    }

    /// Removes stale entries once they are the majority.
    pub(super) fn tidy(&mut self, cluster: &Cluster) {
        if self.entries < 64 + 4 * cluster.states().slot_count() {
            return;
        }
        for heap in self.heaps.values_mut() {
            let entries = std::mem::take(heap).into_vec();
            let current = |entry: Entry| current(cluster, entry);
            let mut entries: Vec<Entry> = entries.into_iter().filter_map(current).collect();
            entries.sort_unstable();
            entries.dedup();
            *heap = entries.into();
        }
        self.heaps.retain(|_, heap| !heap.is_empty());
        self.entries = self.heaps.values().map(BinaryHeap::len).sum();
    }
}

/// The entry with the first node of its state that is not forbidden; none if all are.
fn allowed(cluster: &Cluster, ranked: RankedEntry, forbidden: &NodeSet) -> Option<RankedEntry> {
    let is_allowed = |node: &NodeId| !forbidden.contains(node);
    if is_allowed(&ranked.entry.node) {
        return Some(ranked);
    }
    let node = cluster.states().nodes(ranked.entry.state).find(is_allowed)?;
    Some(RankedEntry { entry: Entry { node, ..ranked.entry }, ..ranked })
}

/// The entry with the first node of its state; none if the state has no nodes.
fn current(cluster: &Cluster, entry: Entry) -> Option<Entry> {
    let node = cluster.states().first_node(entry.state)?;
    Some(Entry { node, ..entry })
}

/// The best entry that is true.
fn top(cluster: &Cluster, heap: &mut BinaryHeap<Entry>) -> Option<Entry> {
    loop {
        let mut first = heap.peek_mut()?;
        match current(cluster, *first) {
            Some(entry) if entry == *first => return Some(entry),
            // Sifted to where it belongs when `first` is dropped.
            Some(entry) => *first = entry,
            None => drop(std::collections::binary_heap::PeekMut::pop(first)),
        }
    }
}

/// The best entry that is true and of another state.
fn second(cluster: &Cluster, heap: &mut BinaryHeap<Entry>, state: StateId) -> Option<Entry> {
    let first = top(cluster, heap)?;
    if first.state != state {
        return Some(first);
    }
    heap.pop();
    // Copies of the entry go for good.
    let second = loop {
        match top(cluster, heap) {
            Some(entry) if entry == first => drop(heap.pop()),
            other => break other,
        }
    };
    heap.push(first);
    second
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        let key =
            |entry: &Self| (entry.gain, Reverse(entry.node), entry.state, Reverse(entry.level));
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RankedEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        let key =
            |ranked: &Self| (Reverse(ranked.risk), ranked.score(), Reverse(ranked.entry.node));
        key(self).cmp(&key(other)).then_with(|| self.entry.cmp(&other.entry))
    }
}

impl PartialOrd for RankedEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
