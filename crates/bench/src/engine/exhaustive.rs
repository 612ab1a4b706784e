//! The fewest hops of a small gang, by enumeration. The time is exponential in the number of nodes.

use octavo_engine::solve::ring_hops;
use octavo_engine::{Gang, NodeId, Topology, World, fit};

/// All ways to spread members over the nodes.
struct Search<'a> {
    topology: &'a Topology,
    /// Nodes in topology order, and how many members fit each.
    slots: Vec<(NodeId, u32)>,
    /// The nodes that hold members.
    chosen: Vec<NodeId>,
    best: Option<i64>,
}

/// The fewest hops of a ring through all members of a gang with one group and no constraints. None
/// if they do not fit.
pub(super) fn fewest_hops(world: &World, gang: &Gang) -> anyhow::Result<Option<i64>> {
    let [group] = &gang.groups[..] else { anyhow::bail!("the gang has several groups") };
    let World { cluster, topology, .. } = world;
    let slots = topology.nodes(Topology::ROOT).iter().map(|node| {
        let state = cluster.states().state(cluster.state(*node));
        (*node, state.map_or(0, |state| fit::times(cluster, state, &group.shape)))
    });
    let slots = slots.filter(|(_, slots)| *slots > 0).collect();
    let mut search = Search { topology, slots, chosen: Vec::new(), best: None };
    search.spread(0, group.count);
    Ok(search.best)
}

impl Search<'_> {
    /// Spreads `left` members over the nodes from index `next` on.
    fn spread(&mut self, next: usize, left: u32) {
        if left == 0 {
            // Members in topology order form the shortest ring: each domain is entered once.
            let hops = ring_hops(self.topology, self.chosen.iter().copied());
            self.best = Some(self.best.map_or(hops, |best| best.min(hops)));
            return;
        }
        let Some((node, slots)) = self.slots.get(next).copied() else { return };
        self.spread(next + 1, left);
        self.chosen.push(node);
        for count in 1..=slots.min(left) {
            self.spread(next + 1, left - count);
        }
        self.chosen.pop();
    }
}

#[cfg(test)]
mod tests;
