//! Gangs on lost nodes: members are deleted there, so that their owners recreate them elsewhere.
//!
//! Kubernetes' taint manager evicts such pods after their tolerations' seconds. Octavo does the same
//! for gangs, after the longer of its own setting and these seconds. Where many nodes are lost at
//! once, they are probably cut off from the API server, and their pods still run. Octavo deletes
//! nothing there. The taint `out-of-service` says that a node is shut down: it takes effect at once.

use std::collections::BTreeMap;

use octavo_engine::DomainId;
use octavo_kube_io::objects::{Node, NodeName, Pod, PodUid, TaintEffect};

use super::nomination::EVICTION_RETRY_DELAY_MS;
use super::pending_reason::Reason;
use super::{OpPurpose, Scheduler};
use crate::bind::{Evict, OpKind};
use crate::predicates::tolerates;
use crate::status::{StatusText, StatusUpdate};

/// Taints of a node without a working kubelet.
const LOST_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// Taint with which an administrator says that a node is shut down.
const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// Lost nodes that a domain must have to count as cut off.
const MIN_CUT_OFF_NODES: usize = 3;
/// Percentage of a domain's nodes that must be exceeded by lost ones for it to count as cut off.
const MAX_LOST_PERCENT: usize = 10;

impl Scheduler {
    /// Records since when a node is lost.
    pub(super) fn track_lost_node(&mut self, node: &Node) {
        let is_evicting = node.taints.iter().any(|taint| {
            taint.effect == TaintEffect::NoExecute
                && (LOST_TAINTS.contains(&&*taint.key) || taint.key == OUT_OF_SERVICE_TAINT)
        });
        if is_evicting || node.is_ready == Some(false) {
            self.lost.entry(node.name()).or_insert(self.now);
        } else {
            self.lost.remove(&*node.meta.name.name);
        }
    }

    /// Deletes members of gangs on nodes that are lost for long enough, so that their owners
    /// recreate them elsewhere. Only called while leading.
    pub(super) fn repair_lost_nodes(&mut self) {
        let after = self.config.repair_after_seconds.saturating_mul(1000);
        if after == 0 || self.lost.is_empty() {
            return;
        }
        let lost_in = self.lost_nodes_by_domain();
        for (node, since) in self.lost.clone() {
            let is_out_of_service = self.is_out_of_service(&node);
            if !is_out_of_service && self.is_cut_off(&node, &lost_in) {
                // Nodes of such a domain come back one by one. The last of them are given as much
                // time as if they were the first.
                self.lost.insert(node, self.now);
                continue;
            }
            let uids: Vec<_> = self.on_node.get(&node).into_iter().flatten().cloned().collect();
            for uid in uids {
                let tolerated = self.pods.get(&uid).map_or(0, |record| tolerated_ms(&record.pod));
                let wait = if is_out_of_service { 0 } else { after.max(tolerated) };
                if since.saturating_add(wait) <= self.now {
                    self.replace_member(&uid, &node);
                }
            }
        }
    }

    fn is_out_of_service(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|record| {
            record.node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE_TAINT)
        })
    }

    /// Lost nodes in each topology domain that has any. Nodes that are out of service are known to
    /// be shut down, so they do not count.
    fn lost_nodes_by_domain(&self) -> BTreeMap<DomainId, usize> {
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
    fn is_cut_off(&self, node: &str, lost_in: &BTreeMap<DomainId, usize>) -> bool {
        let Some(node) = self.engine.node(node) else { return false };
        let topology = &self.engine.world.topology;
        topology.ancestors(topology.leaf_domain(node)).any(|domain| {
            let lost = lost_in.get(&domain).copied().unwrap_or(0);
            lost >= MIN_CUT_OFF_NODES
                && lost * 100 > topology.nodes(domain).len() * MAX_LOST_PERCENT
        })
    }

    /// Handles a failed deletion of a member on a lost node: it is tried again.
    pub(super) fn repair_failed(&mut self, uid: &PodUid) {
        if let Some(record) = self.pods.get_mut(uid) {
            record.is_repaired = false;
            record.eviction_retry_at = self.now.saturating_add(EVICTION_RETRY_DELAY_MS);
            self.eviction_retries.insert((record.eviction_retry_at, uid.clone()));
        }
    }

    fn replace_member(&mut self, uid: &PodUid, node: &NodeName) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        let is_due = record.member.is_some()
            && record.pod.node.is_some()
            && record.pod.meta.deleted.is_none()
            && !record.pod.has_ended()
            && !record.is_repaired
            && record.eviction_retry_at <= self.now;
        if !is_due {
            return;
        }
        record.is_repaired = true;
        let pod = record.reference();
        let group = record.member.as_ref().map(|member| member.group.clone());
        let message = format!("node {node} is lost; the gang gets a new member on another node");
        let status_text =
            StatusText { reason: Reason::NodeLost.as_str(), message: message.clone() };
        self.reports.push(StatusUpdate::PodEvicted { pod: pod.clone(), status_text });
        let task = OpKind::Evict(Evict {
            pod,
            message,
            reason: Reason::NodeLost.as_str(),
            is_bound_by_budgets: false,
        });
        self.submit(uid, OpPurpose::Repair, task);
        if let Some(group) = group {
            self.report_group(&group);
        }
    }
}

/// How long a pod tolerates that its node is lost, in milliseconds. The shortest toleration counts,
/// as for Kubernetes' taint manager. One without seconds is for ever.
fn tolerated_ms(pod: &Pod) -> u64 {
    let matching = pod.spec.tolerations.iter().filter(|toleration| {
        LOST_TAINTS.iter().any(|key| tolerates(toleration, key, "", TaintEffect::NoExecute))
    });
    let seconds = matching.map(|toleration| toleration.seconds);
    let milliseconds = seconds.map(|seconds| match seconds {
        Some(seconds) => u64::try_from(seconds).unwrap_or(0).saturating_mul(1000),
        None => u64::MAX,
    });
    milliseconds.min().unwrap_or(0)
}
