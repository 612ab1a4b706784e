//! The location of members in words.

use std::collections::BTreeSet;

use crate::World;
use crate::node::NodeId;
use crate::plan::Placed;
use crate::solve::residual::contains;
use crate::topology::{DomainId, Topology};

/// The location of members as text: the tightest domain that contains them all, and the nodes if
/// they are few.
pub(crate) fn describe(world: &World, placed: &[Placed]) -> String {
    /// Most nodes that are named.
    const MAX_NAMED_NODES: usize = 2;
    let topology = &world.topology;
    let nodes: BTreeSet<NodeId> = placed.iter().map(|placed| placed.placement.node).collect();
    let Some(first) = nodes.first() else { return topology.path(Topology::ROOT) };
    let has_all = |domain: &DomainId| nodes.iter().all(|node| contains(topology, *domain, *node));
    let domain =
        topology.ancestors(topology.leaf_domain(*first)).find(has_all).unwrap_or(Topology::ROOT);
    let path = topology.path(domain);
    if nodes.len() > MAX_NAMED_NODES {
        return format!("{path} ({} nodes)", nodes.len());
    }
    let names: Vec<_> = nodes.iter().map(|node| world.cluster.name(*node)).collect();
    format!("{path}: {}", names.join(", "))
}
