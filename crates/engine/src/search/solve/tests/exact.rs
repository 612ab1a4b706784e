//! The minimum number of hops, by enumeration. Exponential in the number of nodes: for small
//! instances, to measure how far the search is from the optimum.

use crate::World;
use crate::fit;
use crate::gang::Segment;
use crate::node::NodeId;
use crate::solve::constraints::{GroupConstraints, LimitUsage};
use crate::solve::{Request, ring_hops};
use crate::topology::{DomainId, LevelId, Topology};

/// The best there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exact {
    /// Hops of the ring through the members.
    pub(super) hops: i64,
    /// Members that are placed: as many as fit.
    pub(super) members: u32,
    /// Nodes in topology order, and the number of members of each.
    pub(super) nodes: Vec<(NodeId, u32)>,
}

struct Search<'a> {
    topology: &'a Topology,
    segment: Option<Segment>,
    nodes: Vec<(NodeId, u32)>,
    chosen: Vec<(NodeId, u32)>,
    best: Option<(i64, Vec<(NodeId, u32)>)>,
}

/// The minimum number of hops of a gang with one group. It places as many members as fit, but at
/// least its `min`, in one domain of the required levels, with whole segments. Preferred levels are
/// ignored.
///
/// None: the gang does not fit, or it has several groups or pinned members, which are not
/// supported. The time is exponential in the number of fitting nodes; a dozen are many.
pub(super) fn fewest_hops(world: &World, request: &Request<'_>) -> Option<Exact> {
    let ([group], []) = (&*request.gang.groups, request.pinned) else { return None };
    let topology = &world.topology;
    let wishes = [request.gang.profile.topology.required, group.topology.required];
    let level = wishes.into_iter().flatten().max().unwrap_or(LevelId(0));
    let size = group.segment.map_or(1, |segment| segment.size);
    let mut best: Option<Exact> = None;
    for (domain, _) in topology.at(level) {
        let nodes = nodes_with_slots(world, request, domain);
        let most: u64 = nodes.iter().map(|(_, slots)| u64::from(*slots)).sum();
        let most = u32::try_from(most).unwrap_or(u32::MAX).min(group.count) / size * size;
        let counts = (group.min.max(1)..=most).rev().filter(|count| count % size == 0);
        for count in counts.take_while(|count| best.as_ref().is_none_or(|b| *count >= b.members)) {
            let (chosen, segment) = (Vec::new(), group.segment);
            let mut search = Search { topology, segment, nodes: nodes.clone(), chosen, best: None };
            search.from(0, count);
            let Some((hops, nodes)) = search.best else { continue };
            let is_better = best.as_ref().is_none_or(|best| {
                (std::cmp::Reverse(count), hops) < (std::cmp::Reverse(best.members), best.hops)
            });
            if is_better {
                best = Some(Exact { hops, members: count, nodes });
            }
            break;
        }
    }
    best
}

fn nodes_with_slots(world: &World, request: &Request<'_>, domain: DomainId) -> Vec<(NodeId, u32)> {
    let nodes = world.topology.nodes(domain).iter();
    let group = &request.gang.groups[0];
    let (shape, constraints) = (&group.shape, GroupConstraints::of(group, &LimitUsage::default()));
    let slots = |node: &NodeId| {
        let state = world.cluster.states().state(world.cluster.state(*node));
        let slots = state.map_or(0, |state| fit::times(&world.cluster, state, shape));
        let left = constraints.remaining(*node, &LimitUsage::default());
        (*node, if request.forbidden.contains(node) { 0 } else { slots.min(left) })
    };
    nodes.map(slots).filter(|(_, slots)| *slots > 0).collect()
}

impl Search<'_> {
    fn from(&mut self, next: usize, left: u32) {
        // A ring through several nodes enters each, two hops a time.
        let entered = i64::try_from(self.chosen.len()).unwrap_or(i64::MAX);
        let is_hopeless =
            entered > 1 && self.best.as_ref().is_some_and(|(hops, _)| 2 * entered >= *hops);
        if is_hopeless && left > 0 {
            return;
        }
        if left == 0 {
            self.evaluate();
            return;
        }
        let Some((node, slots)) = self.nodes.get(next).copied() else { return };
        for count in (0..=slots.min(left)).rev() {
            if count > 0 {
                self.chosen.push((node, count));
            }
            self.from(next + 1, left - count);
            if count > 0 {
                self.chosen.pop();
            }
        }
    }

    /// Members in topology order form the shortest ring. The path between two nodes goes up to
    /// their common domain, so each domain is best entered once.
    fn evaluate(&mut self) {
        if let Some(segment) = self.segment {
            let mut by_domain = std::collections::BTreeMap::new();
            for (node, count) in &self.chosen {
                let Some(domain) = self.topology.domain_of(*node, segment.level) else { return };
                *by_domain.entry(domain).or_insert(0) += count;
            }
            if by_domain.values().any(|count| count % segment.size != 0) {
                return;
            }
        }
        let hops = ring_hops(self.topology, self.chosen.iter().map(|(node, _)| *node));
        if self.best.as_ref().is_none_or(|(best, _)| hops < *best) {
            self.best = Some((hops, self.chosen.clone()));
        }
    }
}
