//! Lost nodes, and since when they are lost.

use std::collections::BTreeMap;

use octavo_engine::DomainId;
use octavo_kube_io::objects::{Node, NodeName, NodeTaint, TaintEffect};

use super::Cache;

/// Taints of a node without a working kubelet.
pub(in crate::state) const LOST_TAINTS: [&str; 2] =
    ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// Taint with which an administrator says that a node is shut down.
const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// Lost nodes that a domain must have to count as cut off.
const MIN_CUT_OFF_NODES: usize = 3;
/// Percentage of a domain's nodes that must be exceeded by lost ones for it to count as cut off.
const MAX_LOST_PERCENT: usize = 10;

impl Cache {
    /// Lost nodes, with the time in milliseconds since when.
    pub(in crate::state) fn lost_nodes(&self) -> &BTreeMap<NodeName, u64> {
        &self.lost
    }

    /// Counts a lost node as lost from now on.
    pub(in crate::state) fn restart_loss(&mut self, node: NodeName) {
        self.lost.insert(node, self.now);
    }

    /// Records since when a node is lost.
    pub(in crate::state) fn track_lost_node(&mut self, node: &Node) {
        let is_lost = |taint: &NodeTaint| {
            taint.effect == TaintEffect::NoExecute && LOST_TAINTS.contains(&&*taint.key)
        };
        if is_shut_down(node) || node.taints.iter().any(is_lost) || node.is_ready == Some(false) {
            self.lost.entry(node.name()).or_insert(self.now);
        } else {
            self.lost.remove(&*node.meta.name.name);
        }
    }

    /// Whether an administrator says that a node is shut down.
    pub(in crate::state) fn is_out_of_service(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|record| is_shut_down(&record.node))
    }

    /// Lost nodes in each topology domain that has any. Nodes that are out of service are known to
    /// be shut down, so they do not count.
    pub(in crate::state) fn lost_nodes_by_domain(&self) -> BTreeMap<DomainId, usize> {
        let topology = &self.engine.world.topology;
        let mut counts = BTreeMap::new();
        for name in self.lost.keys().filter(|name| !self.is_out_of_service(name)) {
            let Some(node) = self.engine.node(name) else { continue };
            for domain in topology.ancestors(topology.leaf_domain(node)) {
                *counts.entry(domain).or_insert(0) += 1;
            }
        }
        counts
    }

    /// Whether a node is in a domain, up to the whole cluster, with many lost nodes.
    pub(in crate::state) fn is_cut_off(
        &self,
        node: &str,
        lost_in: &BTreeMap<DomainId, usize>,
    ) -> bool {
        let Some(node) = self.engine.node(node) else { return false };
        let topology = &self.engine.world.topology;
        topology.ancestors(topology.leaf_domain(node)).any(|domain| {
            let lost = lost_in.get(&domain).copied().unwrap_or(0);
            lost >= MIN_CUT_OFF_NODES
                && lost * 100 > topology.nodes(domain).len() * MAX_LOST_PERCENT
        })
    }
}

/// Whether the pods of a node have ended. As in Kubernetes' garbage collector of pods, any effect of the taint counts, and a node that is
/// ready may run pods.
fn is_shut_down(node: &Node) -> bool {
    node.is_ready != Some(true) && node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE_TAINT)
}
