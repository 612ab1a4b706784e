//! Places of pods: assumed, nominated, or taken back; and what else decisions note about pods.

use octavo_kube_io::objects::{NodeName, PodUid};

use super::Cache;
use super::pod::{Place, PlaceState};
use crate::bind::{OpId, PodRef};

impl Cache {
    /// Sets or removes the place of a pod.
    pub(in crate::state) fn set_place(&mut self, uid: &PodUid, place: Option<Place>) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        let old = std::mem::replace(&mut record.place, place.clone());
        let is_bound = record.pod.node.is_some();
        if let Some(old) = old.filter(|_| !is_bound)
            && let Some(residents) = self.on_node.get_mut(&old.node)
        {
            residents.remove(uid);
        }
        if let Some(place) = place {
            self.on_node.entry(place.node).or_default().insert(uid.clone());
        }
        self.refresh_pod(uid);
    }

    /// Notes the write operation that binds a pod to its place.
    pub(in crate::state) fn set_assumed(&mut self, uid: &PodUid, op: OpId) {
        if let Some(record) = self.pods.get_mut(uid)
            && let Some(place) = &mut record.place
        {
            place.state = PlaceState::Assumed(op);
        }
    }

    /// Sets whether a pod counts as leaving: it is a victim or a borrower of a nomination.
    pub(in crate::state) fn set_leaving(&mut self, uid: &PodUid, is_leaving: bool) {
        if let Some(record) = self.pods.get_mut(uid) {
            record.is_leaving = is_leaving;
            self.recount_pod(uid);
        }
    }

    /// Counts pods again that need not leave any more.
    pub(in crate::state) fn keep_victims<'a>(&mut self, victims: impl Iterator<Item = &'a PodUid>) {
        for uid in victims {
            self.set_leaving(uid, false);
        }
    }

    /// Protects a pod from evictions before this time in milliseconds, because one has failed.
    pub(in crate::state) fn protect_until(&mut self, uid: &PodUid, at: u64) {
        if let Some(record) = self.pods.get_mut(uid) {
            record.eviction_retry_at = at;
            record.profile = None;
        }
    }

    /// Notes that the end of a pod was counted as a fault of its gang. Returns whether it was not before.
    pub(in crate::state) fn count_fault_of(&mut self, uid: &PodUid) -> bool {
        let record = self.pods.get_mut(uid);
        record.is_some_and(|record| !std::mem::replace(&mut record.is_fault_counted, true))
    }

    /// Notes whether a pod was asked to leave for its gang's sake.
    pub(in crate::state) fn set_repaired(&mut self, uid: &PodUid, is_repaired: bool) {
        if let Some(record) = self.pods.get_mut(uid) {
            record.is_repaired = is_repaired;
        }
    }

    /// Counts another failed bind in a row. Returns their number.
    pub(in crate::state) fn count_bind_failure(&mut self, uid: &PodUid) -> Option<u32> {
        let record = self.pods.get_mut(uid)?;
        record.failures = record.failures.saturating_add(1);
        Some(record.failures)
    }

    /// Forgets the failed binds of a pod.
    pub(in crate::state) fn reset_bind_failures(&mut self, uid: &PodUid) {
        if let Some(record) = self.pods.get_mut(uid) {
            record.failures = 0;
        }
    }

    /// Notes a write of `status.nominatedNodeName`. Returns the pod if the value differs from that of
    /// the last write.
    pub(in crate::state) fn set_nominated_node(
        &mut self,
        uid: &PodUid,
        node: Option<&NodeName>,
    ) -> Option<PodRef> {
        let record = self.pods.get_mut(uid)?;
        if record.nominated_node.as_ref() == node {
            return None;
        }
        record.nominated_node = node.cloned();
        record.nominated_node_writes += 1;
        Some(record.reference())
    }

    /// Notes the end of a write of `status.nominatedNodeName`. What the API has then comes with the
    /// next watch event, or is known already if the write failed.
    pub(in crate::state) fn nominated_node_written(&mut self, uid: &PodUid, has_failed: bool) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        record.nominated_node_writes = record.nominated_node_writes.saturating_sub(1);
        if has_failed {
            record.observe_nominated_node();
        }
    }
}
