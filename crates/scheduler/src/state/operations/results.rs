//! Results of write operations.

use octavo_kube_io::objects::PodUid;

use crate::bind::{ClaimVersions, Failure, FailureKind, OpId, OpResult};
use crate::devices::Invalidation;
use crate::state::Scheduler;
use crate::state::cycle::reserve::AssumedPlacement;
use crate::state::operations::{InFlightOp, OpPurpose};
use crate::state::queue::{QueueKey, State};
use crate::state::reporter::pending_reason::PendingReason;
use crate::status::StatusUpdate;

/// Maximum number of doublings of the retry delay.
const MAX_BACKOFF_DOUBLINGS: u32 = 4;

impl Scheduler {
    /// Submits the binds of an entry. A gang with pending members stays ready.
    pub(in crate::state) fn finish_placement(
        &mut self,
        key: &QueueKey,
        assumed: Vec<AssumedPlacement>,
    ) {
        if !self.submit_binds(key, assumed) {
            return;
        }
        match key {
            QueueKey::Pod(_) => self.queue.remove(key),
            QueueKey::Group(group) => {
                if self.requeue_pending_members(group) {
                    self.queue.set_state(key, State::Ready);
                }
                self.reporter.report_group(group);
            }
        }
    }

    /// Submits the binds of a gang's members. The remaining members are pending with this reason.
    pub(in crate::state) fn finish_gang_placement(
        &mut self,
        key: &QueueKey,
        assumed: Vec<AssumedPlacement>,
        why: &PendingReason,
    ) {
        if !self.submit_binds(key, assumed) {
            return;
        }
        let QueueKey::Group(group) = key else { return };
        if self.requeue_pending_members(group) {
            // This also reports the gang's status.
            self.set_pending(key, why);
        } else {
            self.reporter.report_group(group);
        }
    }

    /// Binds pods whose volumes are bound. The others wait for them.
    fn submit_binds(&mut self, key: &QueueKey, assumed: Vec<AssumedPlacement>) -> bool {
        let Some(assumed) = self.await_volumes(key, assumed) else { return false };
        let gang_placed = match key {
            QueueKey::Group(group) => self.cache.placed_gang(group),
            QueueKey::Pod(_) => None,
        };
        for placement in assumed {
            self.submit_bind(placement, gang_placed.clone());
        }
        self.reporter.metrics().decided(key, "placed", "");
        self.reporter.forget_pending(key);
        true
    }

    /// Removes a gang from the queue if no member is pending. Returns whether any is.
    fn requeue_pending_members(&mut self, group: &crate::groups::GroupName) -> bool {
        let waits = self.cache.has_pending_members(group);
        if waits {
            self.enqueue_group(group);
        } else {
            self.queue.remove(&QueueKey::Group(group.clone()));
        }
        waits
    }

    /// Applies the result of a write operation.
    pub fn complete_op(&mut self, op_result: &OpResult) {
        let Some(op) = self.operations.in_flight.remove(&op_result.id) else { return };
        if matches!(&op_result.result, Err(failure) if failure.kind == FailureKind::NotLeader) {
            // The lease may have been lost so briefly that nothing else noticed.
            self.operations.note_leadership_gap();
        }
        let uid = op.pod.clone();
        match (op.purpose, &op_result.result) {
            (OpPurpose::Bind, Ok(versions)) => {
                self.bind_succeeded(&uid, versions.clone());
                self.pod_bound(&uid);
            }
            (OpPurpose::Bind, Err(failure)) => {
                self.bind_failed(&uid, op_result.id, op, failure);
            }
            (OpPurpose::Evict, Err(failure)) => self.eviction_failed(&uid, failure),
            (OpPurpose::Repair, Err(_)) => self.repair_failed(&uid),
            (OpPurpose::Rollback, result) => {
                self.rollback_finished(&uid, op_result.id, result.as_ref().err());
            }
            (OpPurpose::Nominate, result) => self.nominated_node_written(&uid, result.is_err()),
            (OpPurpose::RequestVolumes, Err(failure)) => self.volume_request_failed(&uid, failure),
            (OpPurpose::Evict | OpPurpose::Repair | OpPurpose::RequestVolumes, _) => {}
        }
    }

    /// The claims that a bind wrote replace what is assumed for its pod as soon as they are observed.
    fn bind_succeeded(&mut self, uid: &PodUid, versions: ClaimVersions) {
        self.operations.indeterminate.remove(uid);
        let has_ended = self.cache.pod(uid).is_none_or(|record| record.pod.has_ended());
        let touched = if has_ended {
            // They may never be observed, and are not needed.
            self.cache.devices_mut().forget(uid)
        } else {
            self.cache.devices_mut().bound(uid, versions)
        };
        self.assumption_replaced(uid, &touched);
    }

    pub(in crate::state) fn pod_bound(&mut self, uid: &PodUid) {
        self.cache.reset_bind_failures(uid);
        let Some(record) = self.cache.pod(uid) else { return };
        self.reporter.metrics().pod_bound(self.cache.now().saturating_sub(record.observed_at));
        let Some(place) = &record.place else { return };
        let (pod, node) = (record.reference(), place.node.clone());
        let report = StatusUpdate::PodBound { pod, node, loan: self.loan_text(uid) };
        let group = record.member.as_ref().map(|member| member.group.clone());
        self.reporter.report(report);
        if let Some(group) = group {
            self.reporter.report_group(&group);
        }
    }

    fn bind_failed(&mut self, uid: &PodUid, id: OpId, op: InFlightOp, failure: &Failure) {
        let Some(record) = self.cache.pod(uid) else {
            self.release_assumed(uid);
            return;
        };
        if record.pod.node.is_some() {
            // The watch has delivered the binding. It is ours if no other scheduler has led.
            self.bind_succeeded(uid, ClaimVersions::new());
            if op.spans_leadership_gap || failure.kind == FailureKind::NotLeader {
                self.accept_observed(uid);
            }
            return;
        }
        if failure.kind == FailureKind::AlreadyBound {
            // The watch will deliver the node; until then the place stays counted.
            self.operations.indeterminate.remove(uid);
            self.accept_observed(uid);
            return;
        }
        if failure.is_indeterminate() {
            // The pod may be bound, or its claims allocated. Its place stays assumed until that is
            // known.
            self.record_indeterminate(uid, id, op, failure);
            return;
        }
        if self.operations.defer_to_relist(uid, failure) {
            return;
        }
        self.operations.indeterminate.remove(uid);
        self.requeue_after_failure(uid, failure);
    }

    /// Releases the assumed devices of a pod. A claim that it was to allocate may be allocated
    /// nevertheless. Then other binds in flight that use the claim take it over.
    pub(in crate::state) fn release_assumed(&mut self, uid: &PodUid) {
        let other_users = self.operations.other_binding_pods(uid);
        self.cache.devices_mut().transfer_assumed(uid, &other_users);
        self.cache.devices_mut().forget(uid);
    }

    /// Accepts the observed claims of a bound pod. Another scheduler may have bound it with other
    /// devices of the same node.
    pub(in crate::state) fn accept_observed(&mut self, uid: &PodUid) {
        let touched = self.cache.devices_mut().accept_observed(uid);
        self.assumption_replaced(uid, &touched);
    }

    /// Handles the end of what was assumed for a pod, where other devices are observed.
    fn assumption_replaced(&mut self, uid: &PodUid, touched: &Invalidation) {
        if touched.is_empty() {
            return;
        }
        touched.holdings.iter().for_each(|node| self.cache.room_changed(node));
        let place = self.cache.pod(uid).and_then(|record| record.place.as_ref());
        if let Some(node) = place.map(|place| place.node.clone()) {
            self.holders_changed(&node);
        }
    }

    /// Handles a failed bind: the pod is unreserved and retried after a delay.
    pub(in crate::state) fn requeue_after_failure(&mut self, uid: &PodUid, failure: &Failure) {
        let Some(failures) = self.cache.count_bind_failure(uid) else { return };
        let Some(record) = self.cache.pod(uid) else { return };
        let node = record.place.as_ref().map(|place| place.node.clone());
        self.release_assumed(uid);
        self.release_place(uid);
        self.end_loan(uid);
        if let Some(node) = node {
            self.holders_changed(&node);
        }
        self.update_queue(uid);
        let key = self.cache.queue_key_of(uid);
        if failure.kind != FailureKind::PodGone {
            let doubled = 1_u64 << failures.saturating_sub(1).min(MAX_BACKOFF_DOUBLINGS);
            let wait = match failure.kind {
                // The watch delivers the changed object soon.
                FailureKind::Conflict if failures == 1 => 100,
                _ => self.cache.config().retry_seconds.saturating_mul(1000).saturating_mul(doubled),
            };
            if self.queue.state(&key) != Some(State::Nominated) {
                self.set_pending(&key, &PendingReason::Failed(failure.to_string()));
                let until = self.cache.now().saturating_add(wait);
                self.queue.set_state(&key, State::BackoffUntil(until));
                if let QueueKey::Group(group) = key {
                    // The gang may have no entry before it is outdated.
                    self.queue.outdate(&group, Some(until));
                }
            }
        }
    }
}
