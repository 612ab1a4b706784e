//! Observed pods: what their changes mean for the queue, nominations and reports.

use std::sync::Arc;

use octavo_kube_io::objects::{NodeName, Pod, PodUid};

use crate::groups::MemberState;
use crate::state::Scheduler;
use crate::state::queue::QueueKey;
use crate::status::StatusUpdate;

impl Scheduler {
    pub(in crate::state) fn set_pod(&mut self, pod: &Arc<Pod>) {
        let uid = pod.uid();
        let Some(change) = self.cache.observe_pod(pod) else { return };
        if change.is_other_spec {
            self.forget_request(&uid);
        }
        self.update_membership(&uid);
        self.update_queue(&uid);
        if change.may_unblock {
            self.wake(&uid);
        }
        if MemberState::of(pod) == MemberState::Leaving {
            self.keep_member_place(&uid, pod.has_ended());
        }
        self.cache.refresh_pod(&uid);
        let (occupies, is_present) = self
            .cache
            .pod(&uid)
            .map_or((false, false), |record| (record.occupies(), record.is_present()));
        if change.is_resized
            && occupies
            && let Some(node) = &pod.node
        {
            // The resize may have freed resources.
            self.cache.room_changed(node);
        }
        let old_node = change.node_before.as_ref();
        // The binding of a pod that is assumed there changes nothing.
        let is_elsewhere = change.is_bound_now && old_node != pod.node.as_ref();
        if is_elsewhere || (change.has_neighbour_changed && is_present) {
            self.cache.neighbour_changed(&uid);
        }
        if change.is_bound_now {
            // Also if another scheduler has bound it, or if the result of our bind is unknown.
            self.reporter.report(StatusUpdate::PodSettled { uid: uid.clone() });
        }
        if let Some(old) = old_node.filter(|_| is_elsewhere) {
            // Another scheduler has bound it: our assumed place is free.
            self.cache.room_changed(old);
            self.end_loan(&uid);
        }
        if change.is_bound_now || (pod.meta.deleted.is_some() && pod.node.is_none()) {
            self.nominated_pod_gone(&uid);
        }
        if change.was_present && !is_present {
            self.pod_left(&uid, old_node);
            if let Some(member) = self.cache.pod(&uid).and_then(|record| record.member.clone()) {
                self.report_departure(&member.group, &member.spec);
            }
        }
    }

    pub(in crate::state) fn drop_pod(&mut self, uid: &PodUid) {
        let Some(record) = self.cache.pod(uid) else { return };
        let member = record.member.clone();
        let old_node = record.place.as_ref().map(|place| place.node.clone());
        self.nominated_pod_gone(uid);
        self.keep_member_place(uid, true);
        self.cache.vacate(uid);
        self.release_assumed(uid);
        self.cache.refresh_pod(uid);
        self.leave_group(uid);
        self.queue.remove(&QueueKey::Pod(uid.clone()));
        self.reporter.forget_pending(&QueueKey::Pod(uid.clone()));
        self.drop_nomination(&QueueKey::Pod(uid.clone()));
        self.forget_request(uid);
        self.operations.forget(uid);
        self.cache.remove_pod(uid, old_node.as_ref());
        if old_node.is_some() {
            self.pod_left(uid, old_node.as_ref());
        }
        if let Some(member) = member {
            self.report_departure(&member.group, &member.spec);
        }
    }

    /// Handles the end of a nominated pod, or its binding by another scheduler: its victims stay, and
    /// its gang is decided again.
    fn nominated_pod_gone(&mut self, uid: &PodUid) {
        let key = self.cache.queue_key_of(uid);
        if !self.reservations.nomination(&key).is_some_and(|nomination| nomination.includes(uid)) {
            return;
        }
        self.revoke_nomination(&key);
        if let QueueKey::Pod(_) = key {
            self.queue.remove(&key);
            self.reporter.forget_pending(&key);
        }
    }

    /// Handles a pod that has left its place, which is free for others.
    fn pod_left(&mut self, uid: &PodUid, node: Option<&NodeName>) {
        if let Some(node) = node {
            self.holders_changed(node);
            self.cache.room_changed(node);
        }
        self.victim_left(uid);
    }
}
