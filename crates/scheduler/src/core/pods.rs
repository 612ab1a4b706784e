//! Pods: records of them, who waits, and what each ought to have in the engine's picture.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::placement::GpuParts;
use octavo_kube_io::objects::{ObjectName, Pod};

use super::Core;
use super::picture::Want;
use super::pod::{Hold, Place, PodRecord};
use super::queue::{Rank, State, Unit};
use crate::groups::{GroupName, Membership, Standing};
use crate::predicates::Footprint;

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
        if is_other_spec {
            // Gates that were lifted, node selectors that a quota manager set, a resize in place. What
            // was counted is taken back as it was counted.
            let footprint = std::mem::replace(&mut record.footprint, Arc::new(Footprint::of(pod)));
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
        self.devices.forget(uid);
        self.refresh(uid);
        self.leave_group(uid);
        self.queue.remove(&Unit::Pod(Arc::clone(uid)));
        self.waiting.remove(&Unit::Pod(Arc::clone(uid)));
        self.drop_promise(&Unit::Pod(Arc::clone(uid)));
        self.forget_wish(uid);
        self.forget_claims(uid);
        self.doubtful.remove(uid);
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
    fn footprint(&mut self, pod: &Pod) -> Arc<Footprint> {
        let footprint = Footprint::of(pod);
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

    /// Finds the gang of a pod, and puts it in.
    pub(super) fn find_group(&mut self, uid: &Arc<str>) {
        let Some(record) = self.pods.get(uid) else { return };
        if record.pod.spec.scheduler != self.config.scheduler_name {
            return;
        }
        let membership = self.groups.membership(&record.pod);
        let old = record.member.as_ref().map(|member| member.group.clone());
        let (member, fault, claimed) = match membership {
            Membership::Alone => (None, None, None),
            Membership::Member(member) => {
                let group = member.group.clone();
                (Some(member), None, Some(group))
            }
            Membership::NotYet(not_yet) => (None, Some(not_yet.error), not_yet.group),
        };
        let new = member.as_ref().map(|member| member.group.clone());
        let mut is_other = false;
        if let Some(record) = self.pods.get_mut(uid) {
            let standing = (Standing::of(&record.pod), record.pod.spec.gates.is_empty());
            is_other = record.member != member
                || record.group_fault != fault
                || record.standing != Some(standing);
            if record.member != member {
                record.profile = None;
            }
            record.member = member;
            record.group_fault = fault;
            record.claimed = claimed;
            record.standing = Some(standing);
        }
        if old != new {
            if let Some(old) = old {
                self.take_out_of_group(uid, &old);
            }
            if let Some(new) = &new {
                self.members.entry(new.clone()).or_default().insert(Arc::clone(uid));
            }
        }
        if is_other {
            // Who comes, goes or ends may complete the gang.
            self.wake(uid);
        }
    }

    fn leave_group(&mut self, uid: &Arc<str>) {
        let group = self.pods.get(uid).and_then(|record| record.member.as_ref());
        if let Some(group) = group.map(|member| member.group.clone()) {
            self.take_out_of_group(uid, &group);
            self.wake_group(&group);
        }
    }

    fn take_out_of_group(&mut self, uid: &Arc<str>, group: &GroupName) {
        let Some(members) = self.members.get_mut(group) else { return };
        members.remove(uid);
        if members.is_empty() {
            self.members.remove(group);
            let unit = Unit::Group(group.clone());
            self.queue.remove(&unit);
            self.waiting.remove(&unit);
            self.drop_promise(&unit);
        }
    }

    /// Groups whose spec is another: their pods are asked anew.
    pub(super) fn groups_changed(&mut self, groups: &[GroupName]) {
        if groups.is_empty() {
            return;
        }
        let whole: BTreeSet<GroupName> = groups.iter().map(GroupName::whole).collect();
        let concerned = self.pods.values().filter(|record| {
            record.claimed.as_ref().is_some_and(|group| whole.contains(&group.whole()))
        });
        let uids: Vec<_> = concerned.map(|record| Arc::clone(&record.pod.meta.uid)).collect();
        for uid in uids {
            self.find_group(&uid);
            self.place_in_queue(&uid);
            self.refresh(&uid);
        }
    }

    /// Puts a pod, or its gang, into the queue or out of it.
    pub(super) fn place_in_queue(&mut self, uid: &Arc<str>) {
        let Some(record) = self.pods.get(uid) else { return };
        let is_waiting = record.waits_for(&self.config.scheduler_name);
        let alone = Unit::Pod(Arc::clone(uid));
        if let (Some(member), true) = (&record.member, is_waiting) {
            let group = member.group.clone();
            self.queue.remove(&alone);
            self.waiting.remove(&alone);
            self.queue_group(&group);
            return;
        }
        if let Some(member) = &record.member {
            let unit = Unit::Group(member.group.clone());
            let group = member.group.clone();
            self.queue.remove(&alone);
            // Members that places were promised to wait for others to leave.
            if !self.has_waiting_members(&group) && !self.promises.contains_key(&unit) {
                self.queue.remove(&unit);
                self.waiting.remove(&unit);
            }
            return;
        }
        let is_promised = self.promises.contains_key(&alone);
        if is_waiting || is_promised {
            self.queue_pod(uid);
        } else {
            self.queue.remove(&alone);
            self.waiting.remove(&alone);
        }
    }

    /// Puts a pod by itself into the queue.
    pub(super) fn queue_pod(&mut self, uid: &Arc<str>) {
        let Some(record) = self.pods.get(uid) else { return };
        let alone = Unit::Pod(Arc::clone(uid));
        let rank = Rank {
            is_promised: Reverse(self.promises.contains_key(&alone)),
            priority: Reverse(record.pod.spec.priority),
            created: record.pod.meta.created,
            name: record.pod.meta.name.to_string().into(),
            unit: alone,
        };
        self.queue.insert(rank);
    }

    /// Puts a gang with waiting members into the queue.
    pub(super) fn queue_group(&mut self, group: &GroupName) {
        let members = self.members.get(group).into_iter().flatten();
        let waiting = members
            .filter_map(|uid| self.pods.get(uid))
            .filter(|record| record.waits_for(&self.config.scheduler_name));
        let mut first: Option<(i64, i32)> = None;
        for record in waiting {
            let created = record.pod.meta.created;
            let own = record.member.as_ref().and_then(|member| member.spec.priority);
            let priority = own.unwrap_or(record.pod.spec.priority);
            let (least, most) = first.unwrap_or((created, priority));
            first = Some((least.min(created), most.max(priority)));
        }
        let unit = Unit::Group(group.clone());
        let Some((created, priority)) = first else { return };
        let rank = Rank {
            is_promised: Reverse(self.promises.contains_key(&unit)),
            priority: Reverse(priority),
            created,
            name: group.to_string().into(),
            unit,
        };
        self.queue.insert(rank);
    }

    pub(super) fn has_waiting_members(&self, group: &GroupName) -> bool {
        let members = self.members.get(group).into_iter().flatten();
        let mut records = members.filter_map(|uid| self.pods.get(uid));
        records.any(|record| record.waits_for(&self.config.scheduler_name))
    }

    /// Makes a unit ready that waited for a pod or a claim to be there.
    pub(super) fn wake_group(&mut self, group: &GroupName) {
        let unit = Unit::Group(group.clone());
        let state = self.queue.state(&unit);
        if matches!(state, Some(State::Missing | State::Refused(_))) {
            self.queue.set(&unit, State::Ready);
        }
    }

    /// Makes the unit of a pod ready.
    pub(super) fn wake(&mut self, uid: &Arc<str>) {
        let Some(record) = self.pods.get(uid) else { return };
        if let Some(member) = &record.member {
            let group = member.group.clone();
            self.wake_group(&group);
        } else {
            let unit = Unit::Pod(Arc::clone(uid));
            if matches!(self.queue.state(&unit), Some(State::Missing | State::Refused(_))) {
                self.queue.set(&unit, State::Ready);
            }
        }
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

    /// Pods of a unit.
    pub(super) fn uids_of(&self, unit: &Unit) -> Vec<Arc<str>> {
        match unit {
            Unit::Pod(uid) => vec![Arc::clone(uid)],
            Unit::Group(group) => self.members.get(group).into_iter().flatten().cloned().collect(),
        }
    }

    /// Members of a gang that count for it.
    pub(super) fn present(&self, group: &GroupName) -> Vec<Arc<str>> {
        let members = self.members.get(group).into_iter().flatten();
        let counts = |uid: &&Arc<str>| {
            let record = self.pods.get(*uid);
            record.is_some_and(|record| Standing::of(&record.pod) == Standing::Present)
        };
        members.filter(counts).cloned().collect()
    }

    /// Brings a pod's amounts on its node, and what it has in the picture, up to what is known.
    pub(super) fn refresh(&mut self, uid: &Arc<str>) {
        let Some(record) = self.pods.get(uid) else { return };
        let want = record.occupies().then(|| record.place.clone()).flatten();
        let node = want.as_ref().map(|place| Arc::clone(&place.node));
        if record.counted != node {
            let (footprint, pod) = (Arc::clone(&record.footprint), Arc::clone(&record.pod));
            if let Some(old) = &record.counted.clone() {
                if let Some(old) = self.nodes.get_mut(old) {
                    old.usage.remove(&footprint);
                }
                self.neighbours.remove(uid);
            }
            let mut counted = None;
            if let Some(node) = &node
                && let Some(new) = self.nodes.get_mut(node)
            {
                new.usage.add(&footprint);
                self.neighbours.add(&pod, node);
                counted = Some(Arc::clone(node));
            }
            if let Some(record) = self.pods.get_mut(uid) {
                record.counted = counted;
            }
        }
        if self.is_picture_old {
            return;
        }
        let want = want.and_then(|place| self.want(uid, &place));
        self.picture.set(uid, want);
    }

    /// What a pod in its place ought to have in the picture.
    fn want(&mut self, uid: &Arc<str>, place: &Place) -> Option<Want> {
        let gpus = self.gpus_of(uid, place);
        let shape = self.shape_of_placed(uid, &gpus)?;
        let workload = self.workload_of(uid)?;
        Some(Want { workload, shape, node: Arc::clone(&place.node), gpus })
    }

    /// Who of a node holds its devices may be others now: a claim of one pod is of two, or the other way
    /// round. Nodes without devices in use are passed by.
    pub(super) fn holders_changed(&mut self, node: &Arc<str>) {
        if self.devices.held(node).is_empty() {
            self.refresh_claims(node);
        } else {
            self.refresh_node(node);
        }
    }

    /// Looks at all who hold something of a node's devices.
    pub(super) fn refresh_node(&mut self, node: &Arc<str>) {
        let uids: Vec<_> = self.on_node.get(node).into_iter().flatten().cloned().collect();
        let assumed = self.devices.held(node).into_iter().flat_map(|held| held.pods);
        let all: BTreeSet<_> = uids.into_iter().chain(assumed).collect();
        // What claims hold by themselves goes first and comes last, so that who takes it over finds it
        // free.
        self.refresh_claims(node);
        for uid in all {
            self.refresh(&uid);
        }
        self.refresh_claims(node);
    }
}
