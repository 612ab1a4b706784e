//! Single pods and domains: a pod goes where it spoils the fewest racks and NVLink cliques.
//!
//! Nodes in one state cost a pod the same. Of these the pod gets one in a domain that is in use
//! already, so that whole domains stay unused for gangs. Of several such domains it is the first:
//! pods gather there, and the last ones drain. The preference never makes a placement dearer.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use super::price::PricePolicy;
use super::{Choice, Packing};
use crate::cluster::Cluster;
use crate::cluster::log::{Changes, Cursor};
use crate::node::{NodeId, NodeSet};
use crate::pick::{self, FreeLevel};
use crate::placement::{GpuParts, Placement};
use crate::shape::{GpuDemand, Shape};
use crate::topology::{DomainId, Topology};

/// Nodes of one state that are compared one by one. If there are more, domains are searched.
const MAX_NODES: usize = 32;
/// The maximum number of domains that are searched.
const MAX_DOMAINS: usize = 64;

/// The unused nodes of each domain. A node belongs to its tightest domain. It is unused if it is
/// open and all its GPUs are idle. An instance belongs to one cluster.
#[derive(Clone, Debug, Default)]
pub struct UnusedNodes {
    cursor: Cursor,
    /// The topology that was read: the domain of each node.
    leaf_domains: Arc<[DomainId]>,
    /// By node.
    is_unused: Vec<bool>,
    /// By domain: unused nodes.
    counts: Vec<usize>,
    /// Domains by how they are used.
    order: BTreeSet<(Usage, DomainId)>,
}

/// How a domain is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Usage {
    /// Some nodes are unused.
    Partly,
    /// All nodes are unused.
    Not,
    /// No node is unused.
    Fully,
}

/// The packing policy outside of some nodes, with a preference for nodes in domains that are in use.
pub struct InDomains<'a> {
    /// The policy.
    pub packing: &'a mut PricePolicy,
    /// Of the cluster.
    pub domains: &'a mut UnusedNodes,
    /// Of the cluster.
    pub topology: &'a Topology,
    /// Nodes that no pod gets.
    pub forbidden: &'a NodeSet,
}

impl Packing for InDomains<'_> {
    fn name(&self) -> &'static str {
        self.packing.name()
    }

    fn scores_per_millionth(&self) -> i64 {
        self.packing.scores_per_millionth()
    }

    fn choose(&mut self, cluster: &Cluster, shape: &Arc<Shape>) -> Option<Choice> {
        let choice = self.packing.choose_outside(cluster, shape, self.forbidden)?;
        let chosen = &choice.placement;
        let node = self.domains.equal_node(cluster, self.topology, chosen.node, self.forbidden);
        let placement = node
            .filter(|node| *node != chosen.node)
            .and_then(|node| moved(cluster, shape, chosen, node))
            .unwrap_or_else(|| chosen.clone());
        Some(Choice { placement, ..choice })
    }
}

impl UnusedNodes {
    /// The preferred node in the state of this one that is not forbidden; none if all nodes are in one domain, or if none
    /// was found.
    fn equal_node(
        &mut self,
        cluster: &Cluster,
        topology: &Topology,
        node: NodeId,
        forbidden: &NodeSet,
    ) -> Option<NodeId> {
        self.catch_up(cluster, topology);
        if self.order.len() < 2 {
            return None;
        }
        let state = cluster.state(node);
        let few: SmallVec<[NodeId; MAX_NODES + 1]> =
            cluster.states().nodes(state).take(MAX_NODES + 1).collect();
        let is_allowed = |node: &NodeId| !forbidden.contains(node);
        if few.len() <= MAX_NODES {
            return few.into_iter().filter(is_allowed).min_by_key(|node| {
                let domain = topology.leaf_domain(*node);
                (self.usage(topology, domain) == Usage::Not, domain, *node)
            });
        }
        self.order.iter().take(MAX_DOMAINS).find_map(|(_, domain)| {
            let nodes = topology.loose_nodes(*domain).iter().copied();
            nodes.filter(|node| cluster.state(*node) == state && is_allowed(node)).min()
        })
    }

    fn usage(&self, topology: &Topology, domain: DomainId) -> Usage {
        match self.counts.get(domain.0 as usize) {
            None | Some(0) => Usage::Fully,
            Some(count) if *count == topology.loose_nodes(domain).len() => Usage::Not,
            Some(_) => Usage::Partly,
        }
    }

    fn catch_up(&mut self, cluster: &Cluster, topology: &Topology) {
        // A node that was added may be in a new domain, and then other domains have other ids.
        let is_same = Arc::ptr_eq(&self.leaf_domains, topology.leaf_domains());
        match cluster.log().read(&mut self.cursor) {
            Changes::Nodes(nodes) if is_same => {
                for node in nodes {
                    self.enter(cluster, topology, *node);
                }
            }
            Changes::Nodes(_) | Changes::All => {
                self.leaf_domains = Arc::clone(topology.leaf_domains());
                self.is_unused.clear();
                self.counts = vec![0; topology.domains().count()];
                self.order.clear();
                for node in cluster.nodes() {
                    self.enter(cluster, topology, node);
                }
            }
        }
    }

    fn enter(&mut self, cluster: &Cluster, topology: &Topology, node: NodeId) {
        let gpus = cluster.class(node).gpus;
        let is_unused = gpus > 0 && cluster.is_open(node) && cluster.idle_gpus(node) == gpus;
        if self.is_unused.len() <= node.0 as usize {
            self.is_unused.resize(node.0 as usize + 1, false);
        }
        let was_unused = std::mem::replace(&mut self.is_unused[node.0 as usize], is_unused);
        let domain = topology.leaf_domain(node);
        self.order.remove(&(self.usage(topology, domain), domain));
        if let Some(count) = self.counts.get_mut(domain.0 as usize) {
            *count = *count + usize::from(is_unused) - usize::from(was_unused);
        }
        self.order.insert((self.usage(topology, domain), domain));
    }
}

/// The same placement on another node in the same state.
fn moved(cluster: &Cluster, shape: &Shape, from: &Placement, node: NodeId) -> Option<Placement> {
    let gpus: GpuParts = match (&shape.gpus, from.gpus.first()) {
        (GpuDemand::Share { count: 1, milli, memory_mib }, Some(part)) => {
            let gpu = cluster.gpus(from.node).get(usize::from(part.gpu))?;
            pick::share_at(cluster, node, *milli, *memory_mib, FreeLevel::of(gpu))?
        }
        _ => pick::default_placement(cluster, node, shape)?.gpus,
    };
    Some(Placement { node, gpus })
}
