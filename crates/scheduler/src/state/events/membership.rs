//! Membership of pods in gangs, and entries of the queue.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use octavo_kube_io::objects::PodUid;

use crate::groups::GroupName;
use crate::state::Scheduler;
use crate::state::cache::members::MembershipChange;
use crate::state::queue::{QueueKey, QueuePosition, State};

impl Scheduler {
    /// Updates the gang of a pod.
    pub(in crate::state) fn update_membership(&mut self, uid: &PodUid) {
        let MembershipChange { has_changed, groups } = self.cache.update_membership(uid);
        if let Some((old, new)) = groups {
            // A nomination belongs to the pod alone, or to its former gang.
            self.drop_nomination(&QueueKey::Pod(uid.clone()));
            if let Some(old) = old {
                self.remove_from_group(uid, &old);
                self.wake_group(&old);
            }
            if let Some(new) = &new {
                self.cache.join_group(uid, new);
                // The new member has no condition yet, so the gang's reason is reported again.
                self.reporter.forget_pending(&QueueKey::Group(new.clone()));
            }
        }
        if has_changed {
            // A pod that comes, goes or ends may complete the gang.
            self.wake(uid);
        }
    }

    pub(in crate::state) fn leave_group(&mut self, uid: &PodUid) {
        let group = self.cache.pod(uid).and_then(|record| record.member.as_ref());
        if let Some(group) = group.map(|member| member.group.clone()) {
            self.remove_from_group(uid, &group);
            self.wake_group(&group);
        }
    }

    fn remove_from_group(&mut self, uid: &PodUid, group: &GroupName) {
        // The other members may be too few now.
        self.queue.outdate(group, None);
        if self.cache.leave_group(uid, group) {
            self.cache.end_full_run(group, self.reservations.is_restarting(group));
            let key = QueueKey::Group(group.clone());
            self.queue.remove(&key);
            self.reporter.forget_gang(group);
            self.drop_nomination(&key);
        }
    }

    /// Updates pods whose gangs have a new spec.
    pub(in crate::state) fn groups_changed(&mut self, groups: &[GroupName]) {
        if groups.is_empty() {
            return;
        }
        let whole: BTreeSet<GroupName> = groups.iter().map(GroupName::whole).collect();
        self.forget_restarts(|group| whole.contains(&group.whole()));
        self.cache.forget_full_runs(|group| whole.contains(&group.whole()));
        let concerned = self.cache.pods().values().filter(|record| {
            record.named_group.as_ref().is_some_and(|group| whole.contains(&group.whole()))
        });
        let uids: Vec<_> = concerned.map(|record| record.pod.uid()).collect();
        for uid in uids {
            self.update_membership(&uid);
            self.update_queue(&uid);
            self.cache.refresh_pod(&uid);
        }
    }

    /// Adds a pod or its gang to the queue, or removes it.
    pub(in crate::state) fn update_queue(&mut self, uid: &PodUid) {
        let Some(record) = self.cache.pod(uid) else { return };
        let is_waiting = record.is_pending_for(&self.cache.config().scheduler_name);
        let alone = QueueKey::Pod(uid.clone());
        if let Some(member) = &record.member {
            self.queue.outdate(&member.group, None);
            self.queue.remove(&alone);
            self.reporter.forget_pending(&alone);
            return;
        }
        let is_nominated = self.reservations.is_nominated(&alone);
        if is_waiting || is_nominated {
            self.enqueue_pod(uid);
        } else {
            self.queue.remove(&alone);
            self.reporter.forget_pending(&alone);
        }
    }

    /// Adds gangs whose pods have changed to the queue, or removes them. Their members are read once,
    /// however many of them have changed.
    pub(in crate::state) fn requeue_changed_gangs(&mut self) {
        for (group, backoff_until) in self.queue.take_outdated() {
            let key = QueueKey::Group(group.clone());
            self.cache.track_minimum(&group);
            if self.cache.has_pending_members(&group) {
                self.enqueue_group(&group);
                let is_nominated = self.queue.state(&key) == Some(State::Nominated);
                if let Some(at) = backoff_until.filter(|_| !is_nominated) {
                    self.queue.set_state(&key, State::BackoffUntil(at));
                }
            } else if !self.reservations.is_nominated(&key) {
                // Nominated members wait for their victims.
                self.queue.remove(&key);
                self.reporter.forget_pending(&key);
            }
        }
    }

    /// Adds a single pod to the queue.
    pub(in crate::state) fn enqueue_pod(&mut self, uid: &PodUid) {
        let Some(record) = self.cache.pod(uid) else { return };
        let alone = QueueKey::Pod(uid.clone());
        let position = QueuePosition {
            is_nominated: Reverse(self.reservations.is_nominated(&alone)),
            priority: Reverse(record.pod.spec.priority),
            created: record.pod.meta.created,
            name: record.pod.meta.name.to_string().into(),
            key: alone,
        };
        self.queue.insert(position);
    }

    /// Adds a gang with pending members to the queue.
    pub(in crate::state) fn enqueue_group(&mut self, group: &GroupName) {
        let members = self.cache.members(group);
        let pending = members
            .filter_map(|uid| self.cache.pod(uid))
            .filter(|record| record.is_pending_for(&self.cache.config().scheduler_name));
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
            is_nominated: Reverse(self.reservations.is_nominated(&key)),
            priority: Reverse(priority),
            created,
            name: group.to_string().into(),
            key,
        };
        self.queue.insert(position);
    }

    /// Makes a gang ready that was gated or unschedulable.
    pub(in crate::state) fn wake_group(&mut self, group: &GroupName) {
        let key = QueueKey::Group(group.clone());
        self.wake_entry(&key);
    }

    /// Makes the entry of a pod ready if it was gated or unschedulable.
    pub(in crate::state) fn wake(&mut self, uid: &PodUid) {
        let Some(record) = self.cache.pod(uid) else { return };
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
}
