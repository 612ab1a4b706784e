//! Gangs on lost nodes: members are deleted there, so that their owners recreate them elsewhere.
//!
//! Kubernetes' taint manager evicts such pods after their tolerations' seconds. Octavo does the same
//! for gangs, after the longer of its own setting and these seconds. Where many nodes are lost at
//! once, they are probably cut off from the API server, and their pods still run. Octavo deletes
//! nothing there. The taint `out-of-service` says that a node is shut down: it takes effect at once.

use octavo_kube_io::objects::{Pod, PodUid, TaintEffect};

use crate::bind::{Evict, OpKind};
use crate::predicates::tolerates;
use crate::state::Scheduler;
use crate::state::cache::lost_nodes::LOST_TAINTS;
use crate::state::operations::OpPurpose;
use crate::state::reporter::pending_reason::Reason;
use crate::state::reservations::nomination::EVICTION_RETRY_DELAY_MS;
use crate::status::{StatusText, StatusUpdate};

impl Scheduler {
    /// Deletes members of gangs on nodes that are lost for long enough, so that their owners
    /// recreate them elsewhere. Only called while leading.
    pub(in crate::state) fn repair_lost_nodes(&mut self) {
        let after = self.cache.config().repair_after_seconds.saturating_mul(1000);
        if after == 0 || self.cache.lost_nodes().is_empty() {
            return;
        }
        let lost_in = self.cache.lost_nodes_by_domain();
        for (node, since) in self.cache.lost_nodes().clone() {
            let is_out_of_service = self.cache.is_out_of_service(&node);
            if !is_out_of_service && self.cache.is_cut_off(&node, &lost_in) {
                // Nodes of such a domain come back one by one. The last of them are given as much
                // time as if they were the first.
                self.cache.restart_loss(node);
                continue;
            }
            let uids: Vec<_> = self.cache.pods_on(&node).cloned().collect();
            for uid in uids {
                let tolerated = self.cache.pod(&uid).map_or(0, |record| tolerated_ms(&record.pod));
                let wait = if is_out_of_service { 0 } else { after.max(tolerated) };
                if since.saturating_add(wait) <= self.cache.now() {
                    let message =
                        format!("node {node} is lost; the gang gets a new member on another node");
                    self.remove_member(&uid, Reason::NodeLost, message, false);
                }
            }
        }
    }

    /// Handles a failed deletion of a member: it is tried again.
    pub(in crate::state) fn repair_failed(&mut self, uid: &PodUid) {
        let at = self.cache.now().saturating_add(EVICTION_RETRY_DELAY_MS);
        self.cache.set_repaired(uid, false);
        self.cache.protect_until(uid, at);
        self.operations.retry_eviction_at(at, uid);
    }

    /// Asks a running member to leave for its gang's sake, unless it was asked before.
    pub(super) fn remove_member(
        &mut self,
        uid: &PodUid,
        reason: Reason,
        message: String,
        is_bound_by_budgets: bool,
    ) {
        let Some(record) = self.cache.pod(uid) else { return };
        let is_due = record.pod.node.is_some()
            && record.pod.meta.deleted.is_none()
            && !record.pod.has_ended()
            && !record.is_repaired
            && record.eviction_retry_at <= self.cache.now();
        let Some(member) = record.member.as_ref().filter(|_| is_due) else { return };
        let (pod, group) = (record.reference(), member.group.clone());
        self.cache.set_repaired(uid, true);
        let reason = reason.as_str();
        let status_text = StatusText { reason, message: message.clone() };
        self.reporter.report(StatusUpdate::PodEvicted { pod: pod.clone(), status_text });
        let task = OpKind::Evict(Evict { pod, message, reason, is_bound_by_budgets });
        self.operations.submit(uid, OpPurpose::Repair, task);
        self.reporter.report_group(&group);
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
