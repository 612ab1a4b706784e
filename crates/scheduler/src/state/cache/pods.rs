//! Pods in the cache, and the index of claim users.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::placement::GpuParts;
use octavo_kube_io::objects::{NodeName, ObjectName, Pod, PodUid};

use super::Cache;
use super::placed_gang::has_other_annotations;
use super::pod::{Place, PlaceState, PodRecord};
use crate::predicates::PodRequests;

/// Shared requests from which on those without pods are looked for.
pub(super) const MIN_FOOTPRINTS: usize = 1024;

/// What has changed about an observed pod.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Debug)]
pub(in crate::state) struct PodChange {
    /// Its request may mean something else now.
    pub(in crate::state) is_other_spec: bool,
    /// It has claims or metadata that its decision may have waited for.
    pub(in crate::state) may_unblock: bool,
    /// It runs with other resources than before.
    pub(in crate::state) is_resized: bool,
    /// Rules of other pods may select it now, or not any more.
    pub(in crate::state) has_neighbour_changed: bool,
    /// It had a place and had not ended.
    pub(in crate::state) was_present: bool,
    /// The API shows for the first time that it is bound.
    pub(in crate::state) is_bound_now: bool,
    /// The node of its place before.
    pub(in crate::state) node_before: Option<NodeName>,
}

impl Cache {
    /// A pod.
    pub(in crate::state) fn pod(&self, uid: &str) -> Option<&PodRecord> {
        self.pods.get(uid)
    }

    /// Whether a pod waits for a place from this scheduler.
    pub(in crate::state) fn is_pending(&self, uid: &str) -> bool {
        self.pod(uid).is_some_and(|record| record.is_pending_for(&self.config.scheduler_name))
    }

    /// All pods by UID.
    pub(in crate::state) fn pods(&self) -> &BTreeMap<PodUid, PodRecord> {
        &self.pods
    }

    /// The pod of a name.
    pub(in crate::state) fn pod_named(&self, name: &ObjectName) -> Option<&PodUid> {
        self.by_name.get(name)
    }

    /// Pods with a place on a node, of whatever state.
    pub(in crate::state) fn pods_on(&self, node: &str) -> impl Iterator<Item = &PodUid> {
        self.on_node.get(node).into_iter().flatten()
    }

    /// Pods by creation time.
    pub(super) fn pods_by_age(&self) -> Vec<PodUid> {
        let mut pods: Vec<_> = self.pods.values().map(|record| &record.pod.meta).collect();
        pods.sort_by_key(|meta| (meta.created, &meta.name));
        pods.into_iter().map(|meta| PodUid::from(Arc::clone(&meta.uid))).collect()
    }

    /// Applies an observed pod. Its usage and its member in the engine cache follow with
    /// [`Self::refresh_pod`].
    pub(in crate::state) fn observe_pod(&mut self, pod: &Arc<Pod>) -> Option<PodChange> {
        let uid = pod.uid();
        if !self.pods.contains_key(&uid) {
            let footprint = self.intern_footprint(pod);
            let record = PodRecord::new(Arc::clone(pod), footprint, self.now);
            self.by_name.insert(pod.meta.name.clone(), uid.clone());
            self.pods.insert(uid.clone(), record);
        }
        let record = self.pods.get_mut(&uid)?;
        let did_occupy = record.occupies();
        let was_present = record.is_present();
        let old = std::mem::replace(&mut record.pod, Arc::clone(pod));
        record.observe_nominated_node();
        // For example claims that were generated from templates since.
        let has_other_labels = old.meta.labels != pod.meta.labels;
        let has_other_metadata = has_other_labels || has_other_annotations(&old.meta, &pod.meta);
        let has_neighbour_changed =
            has_other_labels || old.meta.deleted.is_some() != pod.meta.deleted.is_some();
        record.has_neighbour_changed |= has_neighbour_changed;
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
        let node_before = record.place.as_ref().map(|place| place.node.clone());
        if let Some(node) = &pod.node {
            self.set_bound(&uid, node);
        }
        self.index_claims(&uid, &old);
        Some(PodChange {
            is_other_spec,
            may_unblock: old.claims != pod.claims || has_other_metadata,
            is_resized,
            has_neighbour_changed,
            was_present,
            is_bound_now: old.node.is_none() && pod.node.is_some(),
            node_before,
        })
    }

    /// Sets the place of a pod that is observed as bound.
    fn set_bound(&mut self, uid: &PodUid, node: &NodeName) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        let is_same = |place: &Place| place.node == *node && place.state == PlaceState::Bound;
        if record.place.as_ref().is_some_and(is_same) {
            return;
        }
        let before = record.place.take();
        let elsewhere = before.as_ref().filter(|place| place.node != *node);
        if let Some(residents) = elsewhere.and_then(|place| self.on_node.get_mut(&place.node)) {
            residents.remove(uid);
        }
        if elsewhere.is_some() {
            // Another scheduler has bound it: our assumed devices are free.
            self.devices.forget(uid);
        }
        let of_plan = before.filter(|place| place.node == *node);
        let gpus = of_plan.map_or_else(GpuParts::new, |place| place.gpus);
        record.place = Some(Place { node: node.clone(), gpus, state: PlaceState::Bound });
        self.on_node.entry(node.clone()).or_default().insert(uid.clone());
    }

    /// Takes the place from a pod that is gone. It is still listed on its node until
    /// [`Self::remove_pod`].
    pub(in crate::state) fn vacate(&mut self, uid: &PodUid) {
        if let Some(record) = self.pods.get_mut(uid) {
            record.place = None;
        }
    }

    /// Removes a deleted pod. `node` is where it had a place, if only assumed or nominated.
    pub(in crate::state) fn remove_pod(&mut self, uid: &PodUid, node: Option<&NodeName>) {
        self.unindex_claims(uid);
        let Some(record) = self.pods.remove(uid) else { return };
        if let Some(residents) = node.and_then(|node| self.on_node.get_mut(node)) {
            residents.remove(uid);
        }
        let name = &record.pod.meta.name;
        if self.by_name.get(name) == Some(uid) {
            self.by_name.remove(name);
        }
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
    pub(in crate::state) fn pods_using(&self, claims: &BTreeSet<ObjectName>) -> Vec<PodUid> {
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
