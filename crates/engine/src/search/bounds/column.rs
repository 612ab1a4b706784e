//! Fitting pods of one shape.

use crate::cluster::Cluster;
use crate::cluster::log::{Changes, ClusterId, Cursor};
use crate::fit;
use crate::gang::Segment;
use crate::node::NodeId;
use crate::shape::Shape;
use crate::topology::Topology;

/// How many pods of one shape fit each node and each domain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Column {
    cursor: Cursor,
    /// The cluster whose states are known.
    cluster_id: ClusterId,
    /// By slot of the state: its generation and the number of fitting pods.
    by_slot: Vec<Option<(u32, u32)>>,
    /// By position in the topology's order.
    counts: Vec<u32>,
    /// By domain.
    sums: Vec<u64>,
}

impl Column {
    /// By position in [`Topology::order`].
    pub(crate) fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// By domain.
    pub(crate) fn sums(&self) -> &[u64] {
        &self.sums
    }

    pub(super) fn refresh(&mut self, cluster: &Cluster, topology: &Topology, shape: &Shape) {
        let is_laid_out = self.counts.len() == topology.order().len();
        let cluster_id = cluster.log().cluster_id();
        if std::mem::replace(&mut self.cluster_id, cluster_id) != cluster_id {
            self.by_slot.clear();
        }
        match cluster.log().read(&mut self.cursor) {
            Changes::Nodes(nodes) if is_laid_out && nodes.len() < self.counts.len() => {
                for node in nodes {
                    self.update(cluster, topology, shape, *node);
                }
            }
            _ => self.rebuild(cluster, topology, shape),
        }
    }

    pub(super) fn skip(&mut self, since: Cursor, cluster: &Cluster) {
        if self.cursor == since {
            self.cursor = cluster.log().end();
        }
    }

    fn update(&mut self, cluster: &Cluster, topology: &Topology, shape: &Shape, node: NodeId) {
        // A node added since is not in this topology, so nothing fits it here.
        let position = topology.position(node) as usize;
        if position >= self.counts.len() {
            return;
        }
        let now = self.times(cluster, shape, node);
        let before = std::mem::replace(&mut self.counts[position], now);
        if now != before {
            adjust_sums(topology, &mut self.sums, node, before, now);
        }
    }

    fn rebuild(&mut self, cluster: &Cluster, topology: &Topology, shape: &Shape) {
        let nodes = topology.order();
        self.counts = nodes.iter().map(|node| self.times(cluster, shape, *node)).collect();
        self.sums = sums(topology, &self.counts);
    }

    fn times(&mut self, cluster: &Cluster, shape: &Shape, node: NodeId) -> u32 {
        if node.0 as usize >= cluster.node_count() {
            return 0;
        }
        let state = cluster.state(node);
        let slot = state.slot as usize;
        if slot >= self.by_slot.len() {
            self.by_slot.resize(cluster.states().slot_count(), None);
        }
        match self.by_slot[slot] {
            Some((generation, times)) if generation == state.generation => times,
            _ => {
                let times = fit::times_on(cluster, node, shape);
                self.by_slot[slot] = Some((state.generation, times));
                times
            }
        }
    }
}

/// By domain: the sum of a per-node figure, given by position.
pub(crate) fn sums(topology: &Topology, counts: &[u32]) -> Vec<u64> {
    let mut before = Vec::with_capacity(counts.len() + 1);
    let mut sum = 0;
    before.push(sum);
    before.extend(counts.iter().map(|count| {
        sum += u64::from(*count);
        sum
    }));
    let of = |position: u32| before.get(position as usize).copied().unwrap_or(sum);
    topology.domains().map(|(_, domain)| of(domain.nodes.end) - of(domain.nodes.start)).collect()
}

/// Applies the change of a node's figure to the sums.
pub(crate) fn adjust_sums(
    topology: &Topology,
    sums: &mut [u64],
    node: NodeId,
    before: u32,
    now: u32,
) {
    for domain in topology.ancestors(topology.leaf_domain(node)) {
        if let Some(sum) = sums.get_mut(domain.0 as usize) {
            *sum = (*sum + u64::from(now)).saturating_sub(u64::from(before));
        }
    }
}

/// By domain: the number of whole segments that fit, given the number of fitting members. From the
/// segments' level down it is the quotient. Above it, segments of different domains do not join,
/// and nodes in no domain of the level have none.
pub(crate) fn segments(topology: &Topology, sums: &[u64], segment: Segment) -> Vec<u64> {
    let size = u64::from(segment.size.max(1));
    let mut whole = vec![0; sums.len()];
    // Children have greater ids than their parents.
    let mut domains: Vec<_> = topology.domains().collect();
    domains.reverse();
    for (id, domain) in domains {
        let at = id.0 as usize;
        if domain.level >= segment.level {
            whole[at] = sums.get(at).copied().unwrap_or_default() / size;
        } else {
            whole[at] = topology.children(id).map(|child| whole[child.0 as usize]).sum();
        }
    }
    whole
}
