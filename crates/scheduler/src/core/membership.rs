//! Gangs of pods, and who waits in the queue.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::Core;
use super::queue::{Rank, State, Unit};
use crate::groups::{GroupName, MemberState, Membership};

impl Core {
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
            Membership::Unresolved(not_yet) => (None, Some(not_yet.error), not_yet.group),
        };
        let new = member.as_ref().map(|member| member.group.clone());
        let mut is_other = false;
        if let Some(record) = self.pods.get_mut(uid) {
            let standing = (MemberState::of(&record.pod), record.pod.spec.gates.is_empty());
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

    pub(super) fn leave_group(&mut self, uid: &Arc<str>) {
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
            record.is_some_and(|record| MemberState::of(&record.pod) == MemberState::Present)
        };
        members.filter(counts).cloned().collect()
    }
}
