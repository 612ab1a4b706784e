//! Membership of pods in gangs, and entries of the queue.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use octavo_kube_io::objects::PodUid;

use super::Scheduler;
use super::queue::{QueueKey, QueuePosition, State};
use crate::groups::{GroupName, MemberState, Membership};

impl Scheduler {
    /// Updates the gang of a pod.
    pub(super) fn update_membership(&mut self, uid: &PodUid) {
        let Some(record) = self.pods.get(uid) else { return };
        if record.pod.spec.scheduler != self.config.scheduler_name {
            return;
        }
        let membership = self.groups.membership(&record.pod);
        let old = record.member.as_ref().map(|member| member.group.clone());
        let (member, fault, named_group) = match membership {
            Membership::Alone => (None, None, None),
            Membership::Member(member) => {
                let group = member.group.clone();
                (Some(member), None, Some(group))
            }
            Membership::Unresolved(not_yet) => (None, Some(not_yet.error), not_yet.group),
        };
        let new = member.as_ref().map(|member| member.group.clone());
        let mut has_changed = false;
        if let Some(record) = self.pods.get_mut(uid) {
            let member_state = (MemberState::of(&record.pod), record.pod.spec.gates.is_empty());
            has_changed = record.member != member
                || record.group_fault != fault
                || record.member_state != Some(member_state);
            if record.member != member {
                record.profile = None;
            }
            record.member = member;
            record.group_fault = fault;
            record.named_group = named_group;
            record.member_state = Some(member_state);
        }
        if old != new {
            // A nomination belongs to the pod alone, or to its former gang.
            self.drop_nomination(&QueueKey::Pod(uid.clone()));
            if let Some(old) = old {
                self.remove_from_group(uid, &old);
                self.wake_group(&old);
            }
            if let Some(new) = &new {
                self.members.entry(new.clone()).or_default().insert(uid.clone());
                // The new member has no condition yet, so the gang's reason is reported again.
                self.pending.remove(&QueueKey::Group(new.clone()));
            }
        }
        if has_changed {
            // A pod that comes, goes or ends may complete the gang.
            self.wake(uid);
        }
    }

    pub(super) fn leave_group(&mut self, uid: &PodUid) {
        let group = self.pods.get(uid).and_then(|record| record.member.as_ref());
        if let Some(group) = group.map(|member| member.group.clone()) {
            self.remove_from_group(uid, &group);
            self.wake_group(&group);
        }
    }

    fn remove_from_group(&mut self, uid: &PodUid, group: &GroupName) {
        let Some(members) = self.members.get_mut(group) else { return };
        members.remove(uid);
        if members.is_empty() {
            self.members.remove(group);
            self.gang_phases.remove(group);
            let key = QueueKey::Group(group.clone());
            self.queue.remove(&key);
            self.pending.remove(&key);
            self.drop_nomination(&key);
        }
    }

    /// Updates pods whose gangs have a new spec.
    pub(super) fn groups_changed(&mut self, groups: &[GroupName]) {
        if groups.is_empty() {
            return;
        }
        let whole: BTreeSet<GroupName> = groups.iter().map(GroupName::whole).collect();
        let concerned = self.pods.values().filter(|record| {
            record.named_group.as_ref().is_some_and(|group| whole.contains(&group.whole()))
        });
        let uids: Vec<_> = concerned.map(|record| record.pod.uid()).collect();
        for uid in uids {
            self.update_membership(&uid);
            self.update_queue(&uid);
            self.refresh_pod(&uid);
        }
    }

    /// Adds a pod or its gang to the queue, or removes it.
    pub(super) fn update_queue(&mut self, uid: &PodUid) {
        let Some(record) = self.pods.get(uid) else { return };
        let is_waiting = record.is_pending_for(&self.config.scheduler_name);
        let alone = QueueKey::Pod(uid.clone());
        if let Some(member) = &record.member {
            self.outdated_entries.entry(member.group.clone()).or_default();
            self.queue.remove(&alone);
            self.pending.remove(&alone);
            return;
        }
        let is_nominated = self.nominations.contains_key(&alone);
        if is_waiting || is_nominated {
            self.enqueue_pod(uid);
        } else {
            self.queue.remove(&alone);
            self.pending.remove(&alone);
        }
    }

    /// Adds gangs whose pods have changed to the queue, or removes them. Their members are read once,
    /// however many of them have changed.
    pub(super) fn requeue_changed_gangs(&mut self) {
        for (group, backoff_until) in std::mem::take(&mut self.outdated_entries) {
            let key = QueueKey::Group(group.clone());
            if self.has_pending_members(&group) {
                self.enqueue_group(&group);
                let is_nominated = self.queue.state(&key) == Some(State::Nominated);
                if let Some(at) = backoff_until.filter(|_| !is_nominated) {
                    self.queue.set_state(&key, State::BackoffUntil(at));
                }
            } else if !self.nominations.contains_key(&key) {
                // Nominated members wait for their victims.
                self.queue.remove(&key);
                self.pending.remove(&key);
            }
        }
    }

    /// Adds a single pod to the queue.
    pub(super) fn enqueue_pod(&mut self, uid: &PodUid) {
        let Some(record) = self.pods.get(uid) else { return };
        let alone = QueueKey::Pod(uid.clone());
        let position = QueuePosition {
            is_nominated: Reverse(self.nominations.contains_key(&alone)),
            priority: Reverse(record.pod.spec.priority),
            created: record.pod.meta.created,
            name: record.pod.meta.name.to_string().into(),
            key: alone,
        };
        self.queue.insert(position);
    }

    /// Adds a gang with pending members to the queue.
    pub(super) fn enqueue_group(&mut self, group: &GroupName) {
        let members = self.members.get(group).into_iter().flatten();
        let pending = members
            .filter_map(|uid| self.pods.get(uid))
            .filter(|record| record.is_pending_for(&self.config.scheduler_name));
        let mut first: Option<(i64, i32)> = None;
        for record in pending {
            let created = record.pod.meta.created;
            let group_priority = record.member.as_ref().and_then(|member| member.spec.priority);
            let priority = group_priority.unwrap_or(record.pod.spec.priority);
            let (least, most) = first.unwrap_or((created, priority));
            first = Some((least.min(created), most.max(priority)));
        }
        let key = QueueKey::Group(group.clone());
        let Some((created, priority)) = first else { return };
        let position = QueuePosition {
            is_nominated: Reverse(self.nominations.contains_key(&key)),
            priority: Reverse(priority),
            created,
            name: group.to_string().into(),
            key,
        };
        self.queue.insert(position);
    }

    pub(super) fn has_pending_members(&self, group: &GroupName) -> bool {
        let members = self.members.get(group).into_iter().flatten();
        let mut records = members.filter_map(|uid| self.pods.get(uid));
        records.any(|record| record.is_pending_for(&self.config.scheduler_name))
    }

    /// Makes a gang ready that was gated or unschedulable.
    pub(super) fn wake_group(&mut self, group: &GroupName) {
        let key = QueueKey::Group(group.clone());
        self.wake_entry(&key);
    }

    /// Makes the entry of a pod ready if it was gated or unschedulable.
    pub(super) fn wake(&mut self, uid: &PodUid) {
        let Some(record) = self.pods.get(uid) else { return };
        if let Some(member) = &record.member {
            let group = member.group.clone();
            self.wake_group(&group);
        } else {
            self.wake_entry(&QueueKey::Pod(uid.clone()));
        }
    }

    fn wake_entry(&mut self, key: &QueueKey) {
        if self.queue.state(key) == Some(State::Gated) || self.queue.is_refused(key) {
            self.queue.set_state(key, State::Ready);
        }
    }

    /// The pods of an entry.
    pub(super) fn pods_of(&self, key: &QueueKey) -> Vec<PodUid> {
        match key {
            QueueKey::Pod(uid) => vec![uid.clone()],
            QueueKey::Group(group) => {
                self.members.get(group).into_iter().flatten().cloned().collect()
            }
        }
    }

    /// Members that count toward the gang.
    pub(super) fn present_members(&self, group: &GroupName) -> Vec<PodUid> {
        let members = self.members.get(group).into_iter().flatten();
        let counts = |uid: &&PodUid| {
            let record = self.pods.get(*uid);
            record.is_some_and(|record| MemberState::of(&record.pod) == MemberState::Present)
        };
        members.filter(counts).cloned().collect()
    }
}
