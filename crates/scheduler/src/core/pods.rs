//! Records of pods: who comes, changes and goes, and which claims they use.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::placement::GpuParts;
use octavo_kube_io::objects::{ObjectName, Pod};

use super::Core;
use super::pod::{Hold, Place, PodRecord};
use super::queue::{State, Unit};
use crate::predicates::PodRequests;

impl Core {
    pub(super) fn set_pod(&mut self, pod: &Arc<Pod>) {
        let uid = Arc::clone(&pod.meta.uid);
        if !self.pods.contains_key(&uid) {
            let footprint = self.footprint(pod);
            let record = PodRecord::new(Arc::clone(pod), footprint);
            self.by_name.insert(pod.meta.name.clone(), Arc::clone(&uid));
            self.pods.insert(Arc::clone(&uid), record);
        }
        let Some(record) = self.pods.get_mut(&uid) else { return };
        let was_there = record.occupies();
        let old = std::mem::replace(&mut record.pod, Arc::clone(pod));
        // Claims that were made from templates since, for one.
        let is_other_said =
            old.meta.labels != pod.meta.labels || old.meta.annotations != pod.meta.annotations;
        let is_news = old.claims != pod.claims || is_other_said;
        if is_other_said {
            record.profile = None;
        }
        let is_other_spec = old.spec != pod.spec;
        let mut is_resized = false;
        if is_other_spec || old.held != pod.held {
            // Gates that were lifted, node selectors that a quota manager set, a resize in place. What
            // was counted is taken back as it was counted.
            let footprint =
                std::mem::replace(&mut record.footprint, Arc::new(PodRequests::of(pod)));
            is_resized = was_there && footprint != record.footprint;
            if let Some(counted) = record.counted.take() {
                if let Some(node) = self.nodes.get_mut(&counted) {
                    node.usage.remove(&footprint);
                }
                self.neighbours.remove(&uid);
            }
        }
        let old_node = record.place.as_ref().map(|place| Arc::clone(&place.node));
        if let Some(node) = &pod.node {
            let is_known = record
                .place
                .as_ref()
                .is_some_and(|place| place.node == *node && place.hold == Hold::Bound);
            if !is_known {
                let before = record.place.take();
                let elsewhere = before.as_ref().filter(|place| place.node != *node);
                if let Some(there) = elsewhere.and_then(|one| self.on_node.get_mut(&one.node)) {
                    there.remove(&uid);
                }
                if elsewhere.is_some() {
                    // Somebody else has bound it: what was decided for it is nobody's.
                    self.devices.forget(&uid);
                }
                let of_plan = before.filter(|place| place.node == *node);
                let gpus = of_plan.map_or_else(GpuParts::new, |place| place.gpus);
                record.place = Some(Place { node: Arc::clone(node), gpus, hold: Hold::Bound });
                self.on_node.entry(Arc::clone(node)).or_default().insert(Arc::clone(&uid));
            }
        }
        if is_other_spec {
            self.forget_wish(&uid);
        }
        self.note_claims(&uid, &old);
        self.find_group(&uid);
        self.place_in_queue(&uid);
        if is_news {
            self.wake(&uid);
        }
        self.refresh(&uid);
        let is_there = self.pods.get(&uid).is_some_and(PodRecord::occupies);
        if is_resized && is_there {
            // It may have given something back.
            self.something_changed();
        }
        if pod.meta.deleted.is_some() && pod.node.is_none() {
            self.member_goes(&uid);
        }
        if was_there && !is_there {
            self.has_left(&uid, old_node);
            if let Some(member) = self.pods.get(&uid).and_then(|record| record.member.clone()) {
                self.report_departure(&member.group, &member.spec);
            }
        }
    }

    pub(super) fn drop_pod(&mut self, uid: &Arc<str>) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        let member = record.member.clone();
        let old_node = record.place.as_ref().map(|place| Arc::clone(&place.node));
        let name = record.pod.meta.name.clone();
        self.member_goes(uid);
        let Some(record) = self.pods.get_mut(uid) else { return };
        record.place = None;
        self.let_go(uid);
        self.refresh(uid);
        self.leave_group(uid);
        self.queue.remove(&Unit::Pod(Arc::clone(uid)));
        self.waiting.remove(&Unit::Pod(Arc::clone(uid)));
        self.drop_promise(&Unit::Pod(Arc::clone(uid)));
        self.forget_wish(uid);
        self.forget_claims(uid);
        self.doubtful.remove(uid);
        self.undos.forget(uid);
        self.pods.remove(uid);
        // Also where it was only to be bound.
        if let Some(there) = old_node.as_ref().and_then(|node| self.on_node.get_mut(node)) {
            there.remove(uid);
        }
        if self.by_name.get(&name) == Some(uid) {
            self.by_name.remove(&name);
        }
        if old_node.is_some() {
            self.has_left(uid, old_node);
        }
        if let Some(member) = member {
            self.report_departure(&member.group, &member.spec);
        }
    }

    /// A pod goes to which a place is promised: nobody has to leave for it, and its gang is decided on
    /// anew.
    fn member_goes(&mut self, uid: &Arc<str>) {
        let unit = self.unit_of(uid);
        if !self.promises.get(&unit).is_some_and(|promise| promise.is_to(uid)) {
            return;
        }
        self.drop_promise(&unit);
        match unit {
            Unit::Pod(_) => self.queue.remove(&unit),
            Unit::Group(_) => self.queue.set(&unit, State::Ready),
        }
    }

    /// A pod has left its place: others may have it.
    fn has_left(&mut self, uid: &Arc<str>, node: Option<Arc<str>>) {
        if let Some(node) = node {
            self.holders_changed(&node);
        }
        self.victim_left(uid);
        self.something_changed();
    }

    /// The footprint of a pod; equal ones are one.
    fn footprint(&mut self, pod: &Pod) -> Arc<PodRequests> {
        let footprint = PodRequests::of(pod);
        if let Some(known) = self.footprints.get(&footprint) {
            return Arc::clone(known);
        }
        let footprint = Arc::new(footprint);
        // Pods with volumes have one each: those would only fill the table.
        if footprint.claims.is_empty() {
            self.footprints.insert(Arc::clone(&footprint));
        }
        footprint
    }

    /// Pods that wait and name one of these claims.
    pub(super) fn pods_waiting_for(&self, claims: &BTreeSet<ObjectName>) -> Vec<Arc<str>> {
        let uids = claims.iter().filter_map(|name| self.by_claim.get(name)).flatten();
        uids.cloned().collect()
    }

    /// Keeps by which pods a claim is used.
    fn note_claims(&mut self, uid: &Arc<str>, old: &Pod) {
        let Some(record) = self.pods.get(uid) else { return };
        let is_first = !record.has_noted_claims;
        if !is_first && old.claims == record.pod.claims && old.spec.claims == record.pod.spec.claims
        {
            return;
        }
        let namespace = &record.pod.meta.name.namespace;
        let names: Vec<_> =
            record.claim_names().map(|name| ObjectName::new(Arc::clone(namespace), name)).collect();
        for name in names {
            self.by_claim.entry(name).or_default().insert(Arc::clone(uid));
        }
        if let Some(record) = self.pods.get_mut(uid) {
            record.has_noted_claims = true;
        }
    }

    /// A pod is gone: it uses no claim any more.
    fn forget_claims(&mut self, uid: &Arc<str>) {
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
