//! Pods in the cache, and the index of claim users.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::placement::GpuParts;
use octavo_kube_io::objects::{NodeName, ObjectName, Pod, PodUid};

use super::Scheduler;
use super::pod::{Place, PlaceState, PodRecord};
use super::queue::QueueKey;
use crate::predicates::PodRequests;
use crate::status::StatusUpdate;

/// Shared requests from which on those without pods are looked for.
pub(super) const MIN_FOOTPRINTS: usize = 1024;

impl Scheduler {
    pub(super) fn set_pod(&mut self, pod: &Arc<Pod>) {
        let uid = pod.uid();
        if !self.pods.contains_key(&uid) {
            let footprint = self.intern_footprint(pod);
            let record = PodRecord::new(Arc::clone(pod), footprint, self.now);
            self.by_name.insert(pod.meta.name.clone(), uid.clone());
            self.pods.insert(uid.clone(), record);
        }
        let Some(record) = self.pods.get_mut(&uid) else { return };
        let did_occupy = record.occupies();
        let was_present = record.is_present();
        let old = std::mem::replace(&mut record.pod, Arc::clone(pod));
        record.observe_nominated_node();
        // For example claims that were generated from templates since.
        let has_other_labels = old.meta.labels != pod.meta.labels;
        let has_other_metadata = has_other_labels || old.meta.annotations != pod.meta.annotations;
        // Rules of other pods may select it now, or not any more.
        let has_neighbour_changed =
            has_other_labels || old.meta.deleted.is_some() != pod.meta.deleted.is_some();
        record.has_neighbour_changed |= has_neighbour_changed;
        let may_unblock = old.claims != pod.claims || has_other_metadata;
        if has_other_metadata {
            record.profile = None;
        }
        let is_other_spec = old.spec != pod.spec;
        let mut is_resized = false;
        if is_other_spec || old.held != pod.held {
            // Lifted gates, node selectors set by a quota manager, or an in-place resize. Usage is
            // subtracted with the footprint that was added.
            let footprint =
                std::mem::replace(&mut record.footprint, Arc::new(PodRequests::of(pod)));
            is_resized = did_occupy && footprint != record.footprint;
            if let Some(counted_on) = record.counted_on.take()
                && let Some(node) = self.nodes.get_mut(&counted_on)
            {
                node.usage.remove(&footprint);
            }
            if record.neighbour_on.take().is_some() {
                self.neighbours.remove(&uid);
            }
        }
        let old_node = record.place.as_ref().map(|place| place.node.clone());
        if let Some(node) = &pod.node {
            let is_same_binding = record
                .place
                .as_ref()
                .is_some_and(|place| place.node == *node && place.state == PlaceState::Bound);
            if !is_same_binding {
                let before = record.place.take();
                let elsewhere = before.as_ref().filter(|place| place.node != *node);
                if let Some(residents) =
                    elsewhere.and_then(|place| self.on_node.get_mut(&place.node))
                {
                    residents.remove(&uid);
                }
                if elsewhere.is_some() {
                    // Another scheduler has bound it: our assumed devices are free.
                    self.devices.forget(&uid);
                }
                let of_plan = before.filter(|place| place.node == *node);
                let gpus = of_plan.map_or_else(GpuParts::new, |place| place.gpus);
                record.place = Some(Place { node: node.clone(), gpus, state: PlaceState::Bound });
                self.on_node.entry(node.clone()).or_default().insert(uid.clone());
            }
        }
        if is_other_spec {
            self.forget_wish(&uid);
        }
        self.index_claims(&uid, &old);
        self.update_membership(&uid);
        self.update_queue(&uid);
        if may_unblock {
            self.wake(&uid);
        }
        self.refresh_pod(&uid);
        let (occupies, is_present) = self
            .pods
            .get(&uid)
            .map_or((false, false), |record| (record.occupies(), record.is_present()));
        if is_resized
            && occupies
            && let Some(node) = &pod.node
        {
            // The resize may have freed resources.
            self.room_changed(node);
        }
        let is_bound_now = old.node.is_none() && pod.node.is_some();
        // The binding of a pod that is assumed there changes nothing.
        let is_elsewhere = is_bound_now && old_node.as_ref() != pod.node.as_ref();
        if is_elsewhere || (has_neighbour_changed && is_present) {
            self.neighbour_changed(&uid);
        }
        if is_bound_now {
            // Also if another scheduler has bound it, or if the result of our bind is unknown.
            self.reports.push(StatusUpdate::PodSettled { uid: uid.clone() });
        }
        if let (true, Some(old)) = (is_bound_now, old_node.as_ref())
            && pod.node.as_ref() != Some(old)
        {
            // Another scheduler has bound it: our assumed place is free.
            self.room_changed(old);
        }
        if is_bound_now || (pod.meta.deleted.is_some() && pod.node.is_none()) {
            self.nominated_pod_gone(&uid);
        }
        if was_present && !is_present {
            self.pod_left(&uid, old_node.as_ref());
            if let Some(member) = self.pods.get(&uid).and_then(|record| record.member.clone()) {
                self.report_departure(&member.group, &member.spec);
            }
        }
    }

    pub(super) fn drop_pod(&mut self, uid: &PodUid) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        let member = record.member.clone();
        let old_node = record.place.as_ref().map(|place| place.node.clone());
        let name = record.pod.meta.name.clone();
        self.nominated_pod_gone(uid);
        let Some(record) = self.pods.get_mut(uid) else { return };
        record.place = None;
        self.release_assumed(uid);
        self.refresh_pod(uid);
        self.leave_group(uid);
        self.queue.remove(&QueueKey::Pod(uid.clone()));
        self.pending.remove(&QueueKey::Pod(uid.clone()));
        self.drop_nomination(&QueueKey::Pod(uid.clone()));
        self.forget_wish(uid);
        self.unindex_claims(uid);
        self.indeterminate.remove(uid);
        self.rollbacks.forget(uid);
        self.pods.remove(uid);
        // Also for a pod that was assumed or nominated there.
        if let Some(residents) = old_node.as_ref().and_then(|node| self.on_node.get_mut(node)) {
            residents.remove(uid);
        }
        if self.by_name.get(&name) == Some(uid) {
            self.by_name.remove(&name);
        }
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
        let key = self.queue_key_of(uid);
        if !self.nominations.get(&key).is_some_and(|nomination| nomination.includes(uid)) {
            return;
        }
        self.revoke_nomination(&key);
        if let QueueKey::Pod(_) = key {
            self.queue.remove(&key);
            self.pending.remove(&key);
        }
    }

    /// Handles a pod that has left its place, which is free for others.
    fn pod_left(&mut self, uid: &PodUid, node: Option<&NodeName>) {
        if let Some(node) = node {
            self.holders_changed(node);
            self.room_changed(node);
        }
        self.victim_left(uid);
    }

    /// The footprint of a pod. Equal footprints are shared.
    fn intern_footprint(&mut self, pod: &Pod) -> Arc<PodRequests> {
        let footprint = PodRequests::of(pod);
        if let Some(shared) = self.footprints.get(&footprint) {
            return Arc::clone(shared);
        }
        let footprint = Arc::new(footprint);
        // Footprints with volumes are unique and would only fill the table.
        if footprint.claims.is_empty() {
            if self.footprints.len() >= self.max_footprints {
                // Those of which no pod is left go.
                self.footprints.retain(|shared| Arc::strong_count(shared) > 1);
                self.max_footprints = MIN_FOOTPRINTS.max(2 * self.footprints.len());
            }
            self.footprints.insert(Arc::clone(&footprint));
        }
        footprint
    }

    /// Pods that use one of these claims.
    pub(super) fn pods_using(&self, claims: &BTreeSet<ObjectName>) -> Vec<PodUid> {
        let uids = claims.iter().filter_map(|name| self.by_claim.get(name)).flatten();
        uids.cloned().collect()
    }

    /// Adds a pod to the index of claim users.
    fn index_claims(&mut self, uid: &PodUid, old: &Pod) {
        let Some(record) = self.pods.get(uid) else { return };
        let is_first = !record.has_indexed_claims;
        if !is_first && old.claims == record.pod.claims && old.spec.claims == record.pod.spec.claims
        {
            return;
        }
        let namespace = &record.pod.meta.name.namespace;
        let names: Vec<_> =
            record.claim_names().map(|name| ObjectName::new(Arc::clone(namespace), name)).collect();
        for name in names {
            self.by_claim.entry(name).or_default().insert(uid.clone());
        }
        if let Some(record) = self.pods.get_mut(uid) {
            record.has_indexed_claims = true;
        }
    }

    /// Removes a deleted pod from the index of claim users.
    fn unindex_claims(&mut self, uid: &PodUid) {
        let Some(record) = self.pods.get(uid) else { return };
        let namespace = &record.pod.meta.name.namespace;
        let names = record.claim_names().map(|name| ObjectName::new(Arc::clone(namespace), name));
        for name in names.collect::<Vec<_>>() {
            if let Some(users) = self.by_claim.get_mut(&name) {
                users.remove(uid);
                if users.is_empty() {
                    self.by_claim.remove(&name);
                }
            }
        }
    }
}
