//! Topology: levels of domains from the whole cluster down to the nodes.
//!
//! ```text
//! level 0  cluster                (always there)
//! level 1  block     b1       b2
//! level 2  rack    r1  r2   r1  r2     names are unique below one parent only
//!          nodes   ...
//! ```
//!
//! Nodes are ordered so that each domain is one range of positions. Iterating over a domain is
//! iterating over a slice, and ranks in the order of positions follow the topology.

mod build;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use crate::node::NodeId;

pub use build::{Level, TopologyError};

/// Index of a level: 0 is the whole cluster, greater is tighter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LevelId(pub u8);

/// Index of a domain. 0 is the whole cluster. A parent has a lower id than its children, and the
/// children of one parent are contiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u32);

/// A domain: a block, a rack, an NVLink clique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its level.
    pub level: LevelId,
    /// Its name: the label's value.
    pub name: Arc<str>,
    /// The domain above; none of the whole cluster.
    pub parent: Option<DomainId>,
    /// Ids of the domains one level below.
    pub children: Range<u32>,
    /// Positions of its nodes in [`Topology::order`]: those of its children, then nodes in no child
    /// because they lack the label of the next level.
    pub nodes: Range<u32>,
}

/// Levels, domains and the order of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    levels: Vec<Arc<str>>,
    domains: Vec<Domain>,
    order: Vec<NodeId>,
    /// By node id.
    positions: Vec<u32>,
    /// By node id: the tightest domain that has it.
    leaf_domains: Arc<[DomainId]>,
}

impl Topology {
    /// The whole cluster.
    pub const ROOT: DomainId = DomainId(0);

    /// Names of the levels; the first is `cluster`.
    pub fn levels(&self) -> &[Arc<str>] {
        &self.levels
    }

    /// The level of that name.
    pub fn level_named(&self, name: &str) -> Option<LevelId> {
        let index = self.levels.iter().position(|level| **level == *name)?;
        u8::try_from(index).ok().map(LevelId)
    }

    /// A domain. An unknown id yields the whole cluster.
    pub fn domain(&self, id: DomainId) -> &Domain {
        self.domains.get(id.0 as usize).unwrap_or(&self.domains[0])
    }

    /// All domains: parents before children.
    pub fn domains(&self) -> impl Iterator<Item = (DomainId, &Domain)> {
        (0_u32..).map(DomainId).zip(&self.domains)
    }

    /// Domains of a level, in the order of their nodes.
    pub fn at(&self, level: LevelId) -> impl Iterator<Item = (DomainId, &Domain)> {
        self.domains().filter(move |(_, domain)| domain.level == level)
    }

    /// Children of a domain.
    pub fn children(&self, id: DomainId) -> impl Iterator<Item = DomainId> + use<> {
        self.domain(id).children.clone().map(DomainId)
    }

    /// Nodes in the order of the topology.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// Nodes of a domain, in the order of the topology.
    pub fn nodes(&self, id: DomainId) -> &[NodeId] {
        let nodes = &self.domain(id).nodes;
        &self.order[nodes.start as usize..nodes.end as usize]
    }

    /// Nodes that are in a domain but in none of its children.
    pub fn loose_nodes(&self, id: DomainId) -> &[NodeId] {
        let domain = self.domain(id);
        let inner = domain.children.clone().next_back().map(DomainId);
        let start = inner.map_or(domain.nodes.start, |last| self.domain(last).nodes.end);
        &self.order[start as usize..domain.nodes.end as usize]
    }

    /// Position of a node in [`Self::order`].
    pub fn position(&self, node: NodeId) -> u32 {
        self.positions.get(node.0 as usize).copied().unwrap_or(u32::MAX)
    }

    /// The tightest domain that has a node.
    pub fn leaf_domain(&self, node: NodeId) -> DomainId {
        self.leaf_domains.get(node.0 as usize).copied().unwrap_or(Self::ROOT)
    }

    /// The tightest domain of each node, by node id. Two topologies share it only if one is a clone
    /// of the other.
    pub(crate) fn leaf_domains(&self) -> &Arc<[DomainId]> {
        &self.leaf_domains
    }

    /// A domain and its ancestors, from the tightest to the whole cluster.
    pub fn ancestors(&self, id: DomainId) -> impl Iterator<Item = DomainId> + '_ {
        std::iter::successors(Some(id), |id| self.domain(*id).parent)
    }

    /// The domain of a level that contains a node; none if the node lacks the label.
    pub fn domain_of(&self, node: NodeId, level: LevelId) -> Option<DomainId> {
        self.ancestors(self.leaf_domain(node)).find(|id| self.domain(*id).level == level)
    }

    /// Distance of two nodes: 0 for the same node, 2 within the tightest level, plus 2 for each
    /// further level. A level counts twice: up to its switch and down.
    pub fn hops(&self, a: NodeId, b: NodeId) -> u32 {
        if a == b {
            return 0;
        }
        let common = self
            .ancestors(self.leaf_domain(a))
            .find(|id| self.domain(*id).nodes.contains(&self.position(b)))
            .unwrap_or(Self::ROOT);
        let depth = self.levels.len().saturating_sub(usize::from(self.domain(common).level.0));
        2 * u32::try_from(depth).unwrap_or(u32::MAX / 2)
    }

    /// Path of a domain below the cluster, such as `b1/r2`; `cluster` for the whole cluster.
    pub fn path(&self, id: DomainId) -> String {
        let mut names: Vec<_> = self
            .ancestors(id)
            .map(|id| self.domain(id))
            .filter(|domain| domain.parent.is_some())
            .map(|domain| &*domain.name)
            .collect();
        names.reverse();
        if names.is_empty() { self.levels[0].to_string() } else { names.join("/") }
    }
}

/// Hops of a ring through nodes in this order, back to the first. A ring of two members counts the
/// path there and back.
pub fn ring_hops(topology: &Topology, nodes: impl IntoIterator<Item = NodeId>) -> i64 {
    let mut nodes = nodes.into_iter();
    let Some(first) = nodes.next() else { return 0 };
    let (mut last, mut hops) = (first, 0);
    for node in nodes {
        hops += i64::from(topology.hops(last, node));
        last = node;
    }
    hops + i64::from(topology.hops(last, first))
}
