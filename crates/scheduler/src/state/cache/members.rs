//! Members of gangs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{ObjectName, PodUid};

use super::Cache;
use super::pod::{PlaceState, PodRecord};
use crate::groups::{GroupName, GroupSpec, Member, MemberState, Membership, MissingMembers};
use crate::state::queue::QueueKey;

/// How the gang of a pod has changed.
#[derive(Debug, Default)]
pub(in crate::state) struct MembershipChange {
    /// Whether anything about its membership has changed, its own state included.
    pub(in crate::state) has_changed: bool,
    /// The gangs before and now, if they differ.
    pub(in crate::state) groups: Option<(Option<GroupName>, Option<GroupName>)>,
}

impl Cache {
    /// Known gangs with their members.
    pub(in crate::state) fn gangs(&self) -> &BTreeMap<GroupName, BTreeSet<PodUid>> {
        &self.members
    }

    /// Members of a gang.
    pub(in crate::state) fn members(&self, group: &GroupName) -> impl Iterator<Item = &PodUid> {
        self.members.get(group).into_iter().flatten()
    }

    /// The gang of an object.
    pub(in crate::state) fn group_named(&self, name: &ObjectName) -> Option<&GroupName> {
        self.members.keys().find(|group| group.object == *name)
    }

    /// Finds the gang of a pod again, after a change of the pod or of gangs. Joining and leaving are
    /// separate, because nominations end between them.
    pub(in crate::state) fn update_membership(&mut self, uid: &PodUid) -> MembershipChange {
        let Some(record) = self.pods.get_mut(uid) else { return MembershipChange::default() };
        if record.pod.spec.scheduler != self.config.scheduler_name {
            return MembershipChange::default();
        }
        let (member, fault, named_group) = match self.groups.membership(&record.pod) {
            Membership::Alone => (None, None, None),
            Membership::Member(member) => {
                let group = member.group.clone();
                (Some(member), None, Some(group))
            }
            Membership::Unresolved(not_yet) => (None, Some(not_yet.error), not_yet.group),
        };
        let group_of = |member: &Option<Member>| member.as_ref().map(|member| member.group.clone());
        let (old, new) = (group_of(&record.member), group_of(&member));
        let member_state = (MemberState::of(&record.pod), record.pod.spec.gates.is_empty());
        let has_changed = record.member != member
            || record.group_fault != fault
            || record.member_state != Some(member_state);
        if record.member != member {
            record.profile = None;
        }
        record.member = member;
        record.group_fault = fault;
        record.named_group = named_group;
        record.member_state = Some(member_state);
        MembershipChange { has_changed, groups: (old != new).then_some((old, new)) }
    }

    /// Adds a pod to its gang.
    pub(in crate::state) fn join_group(&mut self, uid: &PodUid, group: &GroupName) {
        self.members.entry(group.clone()).or_default().insert(uid.clone());
    }

    /// Removes a pod from a gang. Returns whether the gang has no members any more.
    pub(in crate::state) fn leave_group(&mut self, uid: &PodUid, group: &GroupName) -> bool {
        let Some(members) = self.members.get_mut(group) else { return false };
        members.remove(uid);
        let is_empty = members.is_empty();
        if is_empty {
            self.members.remove(group);
            self.below_minimum.remove(group);
            self.looked_back.remove(group);
        }
        is_empty
    }

    /// Whether a gang has members that wait for places.
    pub(in crate::state) fn has_pending_members(&self, group: &GroupName) -> bool {
        let members = self.members.get(group).into_iter().flatten();
        let mut records = members.filter_map(|uid| self.pods.get(uid));
        records.any(|record| record.is_pending_for(&self.config.scheduler_name))
    }

    /// The pods of an entry.
    pub(in crate::state) fn pods_of(&self, key: &QueueKey) -> Vec<PodUid> {
        match key {
            QueueKey::Pod(uid) => vec![uid.clone()],
            QueueKey::Group(group) => {
                self.members.get(group).into_iter().flatten().cloned().collect()
            }
        }
    }

    /// Members that count toward the gang.
    pub(in crate::state) fn present_members(&self, group: &GroupName) -> Vec<PodUid> {
        let members = self.members.get(group).into_iter().flatten();
        let counts = |uid: &&PodUid| {
            let record = self.pods.get(*uid);
            record.is_some_and(|record| MemberState::of(&record.pod) == MemberState::Present)
        };
        members.filter(counts).cloned().collect()
    }

    /// The queue entry of a pod.
    pub(in crate::state) fn queue_key_of(&self, uid: &PodUid) -> QueueKey {
        let member = self.pods.get(uid).and_then(|record| record.member.as_ref());
        member.map_or_else(
            || QueueKey::Pod(uid.clone()),
            |member| QueueKey::Group(member.group.clone()),
        )
    }

    /// The spec of a gang, from its first member.
    pub(in crate::state) fn spec_of(&self, group: &GroupName) -> Option<Arc<GroupSpec>> {
        let mut uids = self.members.get(group)?.iter();
        uids.find_map(|uid| Some(Arc::clone(&self.pods.get(uid)?.member.as_ref()?.spec)))
    }

    /// What a gang lacks before it is complete.
    pub(in crate::state) fn missing(
        &self,
        group: &GroupName,
        spec: &GroupSpec,
    ) -> Vec<MissingMembers> {
        self.missing_if(group, spec, |record| {
            // A gated pod does not count yet.
            let is_gated = record.pod.node.is_none() && !record.pod.spec.gates.is_empty();
            MemberState::of(&record.pod) == MemberState::Present && !is_gated
        })
    }

    /// What a gang lacks if of its present members only those count for which `counts` holds.
    pub(super) fn missing_if(
        &self,
        group: &GroupName,
        spec: &GroupSpec,
        counts: impl Fn(&PodRecord) -> bool,
    ) -> Vec<MissingMembers> {
        let mut have: BTreeMap<&str, u32> = BTreeMap::new();
        for uid in self.members.get(group).into_iter().flatten() {
            let Some(record) = self.pods.get(uid) else { continue };
            let Some(member) = &record.member else { continue };
            if MemberState::of(&record.pod) == MemberState::Done || counts(record) {
                *have.entry(&member.sub).or_default() += 1;
            }
        }
        spec.missing(|sub| have.get(sub).copied().unwrap_or(0))
    }

    /// Members that run, or whose binds are in flight.
    pub(in crate::state) fn running_members(&self, group: &GroupName) -> Vec<PodUid> {
        let is_running = |uid: &&PodUid| self.pods.get(*uid).is_some_and(is_running);
        self.members(group).filter(is_running).cloned().collect()
    }

    /// Records that a gang runs with its minimum, or since when with fewer members.
    pub(in crate::state) fn track_minimum(&mut self, group: &GroupName) {
        let spec = self.spec_of(group);
        let is_full = |spec: &GroupSpec| self.missing_if(group, spec, is_running).is_empty();
        let full = spec.clone().filter(|spec| is_full(spec));
        let is_below = spec.is_some() && full.is_none() && !self.running_members(group).is_empty();
        let is_first_look = (is_below || full.is_some()) && self.looked_back.insert(group.clone());
        if let Some(spec) = full {
            self.note_full_run(group, spec);
        } else if let Some(spec) = spec.filter(|_| is_below && is_first_look) {
            self.recall_full_run(group, &spec);
        }
        if is_below {
            self.below_minimum.entry(group.clone()).or_insert(self.now);
        } else {
            self.below_minimum.remove(group);
        }
    }

    /// Gangs that run with fewer members than their minimum, with the time in milliseconds since
    /// when.
    pub(in crate::state) fn gangs_below_minimum(&self) -> &BTreeMap<GroupName, u64> {
        &self.below_minimum
    }
}

/// Whether a pod runs, or its bind is in flight, and it has not been asked to leave.
pub(super) fn is_running(record: &PodRecord) -> bool {
    stays_at(record, |state| matches!(state, PlaceState::Bound | PlaceState::Assumed(_)))
}

/// The same of a pod whose bind is observed.
pub(super) fn is_bound(record: &PodRecord) -> bool {
    stays_at(record, |state| state == PlaceState::Bound)
}

/// The same of a pod whose bind is observed, in flight, or about to be submitted.
pub(super) fn is_placed(record: &PodRecord) -> bool {
    stays_at(record, |state| state != PlaceState::Nominated)
}

fn stays_at(record: &PodRecord, is_it: impl Fn(PlaceState) -> bool) -> bool {
    record.place.as_ref().is_some_and(|place| is_it(place.state))
        && record.pod.meta.deleted.is_none()
        && !record.pod.has_ended()
}
