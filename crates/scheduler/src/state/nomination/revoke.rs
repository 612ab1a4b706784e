//! Ends of nominations without binding. A nomination is dropped if
//!
//! - a victim cannot be evicted, or does not leave in time,
//! - a node is lost or no longer takes the pods,
//! - one of its pods is deleted, or bound by another scheduler,
//! - an entry of higher priority needs the place, or
//! - this scheduler no longer leads.

use std::collections::BTreeSet;

use octavo_kube_io::objects::{NodeName, PodUid};

use super::Nomination;
use crate::bind::{Failure, FailureKind};
use crate::state::Scheduler;
use crate::state::queue::{QueueKey, State};

/// Milliseconds after a failed eviction before the pod can be evicted again.
pub(in crate::state) const EVICTION_RETRY_DELAY_MS: u64 = 30_000;

impl Scheduler {
    /// Drops a nomination: victims that have not left yet stay.
    pub(in crate::state) fn drop_nomination(&mut self, key: &QueueKey) {
        let Some(nomination) = self.nominations.remove(key) else { return };
        self.release_nomination(key, &nomination);
    }

    /// Drops a nomination and decides its entry again.
    pub(in crate::state) fn revoke_nomination(&mut self, key: &QueueKey) {
        self.drop_nomination(key);
        self.enqueue(key);
        self.queue.set_state(key, State::Ready);
    }

    /// Drops the nomination of an entry whose pods are victims of a newer nomination. The newer one
    /// waits for the victims that leave the nodes it needs.
    pub(super) fn displace_nomination(
        &mut self,
        key: &QueueKey,
        nodes: &BTreeSet<&NodeName>,
        newer: &mut Nomination,
    ) {
        let Some(mut older) = self.nominations.remove(key) else { return };
        let is_needed = |uid: &PodUid| {
            let place = self.pods.get(uid).and_then(|record| record.place.as_ref());
            place.is_some_and(|place| nodes.contains(&place.node))
        };
        let (needed, other) = older.victims.into_iter().partition(is_needed);
        newer.victims.extend::<BTreeSet<_>>(needed);
        newer.departed.append(&mut older.departed);
        older.victims = other;
        self.release_nomination(key, &older);
        self.enqueue(key);
        self.queue.set_state(key, State::Ready);
    }

    /// Takes the places of a dropped nomination back.
    pub(super) fn release_nomination(&mut self, key: &QueueKey, nomination: &Nomination) {
        for uid in &nomination.members {
            if self.is_nominated(uid) {
                self.release_place(uid);
            }
        }
        self.keep_victims(nomination.victims.iter());
        if let QueueKey::Pod(uid) = key
            && self.pods.get(uid).is_some_and(|record| record.place.is_none())
        {
            // The API server clears it when the pod is bound.
            self.set_nominated_node(uid, None);
        }
        self.drop_successor_places_of(key);
        let nodes: Vec<_> = self.claim_holders.keys().cloned().collect();
        for node in nodes {
            self.refresh_claim_holders(&node);
        }
        self.victims_changed();
    }

    /// Drops an older nomination, except for members and victims of the newer one.
    pub(super) fn replace_nomination(&mut self, key: &QueueKey, newer: &Nomination) {
        let Some(older) = self.nominations.remove(key) else { return };
        for uid in older.members.iter().filter(|uid| !newer.members.contains(uid)) {
            if self.is_nominated(uid) {
                self.release_place(uid);
            }
        }
        self.keep_victims(older.victims.iter().filter(|uid| !newer.victims.contains(*uid)));
    }

    /// Counts pods again that need not leave any more.
    pub(super) fn keep_victims<'a>(&mut self, victims: impl Iterator<Item = &'a PodUid>) {
        for uid in victims {
            if let Some(record) = self.pods.get_mut(uid) {
                record.is_leaving = false;
                self.refresh_pod(uid);
            }
        }
    }

    /// Drops the nominations on a deleted node.
    pub(in crate::state) fn drop_nominations_on(&mut self, node: &str) {
        self.revoke_nominations(node, |_, _| true);
    }

    /// Drops the nominations on a node that no longer takes their pods. It may be cordoned, tainted
    /// (as lost nodes are), or have other labels.
    pub(in crate::state) fn drop_infeasible_nominations_on(&mut self, node: &str) {
        self.revoke_nominations(node, |scheduler, uid| {
            scheduler.check_node_rules(uid, node).is_err()
        });
    }

    /// Drops the nominations with a pod on a node for which `must_go` holds.
    fn revoke_nominations(&mut self, node: &str, must_go: impl Fn(&Self, &PodUid) -> bool) {
        let residents = self.on_node.get(node).into_iter().flatten();
        let revoked: BTreeSet<_> = residents
            .filter(|uid| self.is_nominated(uid) && must_go(self, uid))
            .map(|uid| self.queue_key_of(uid))
            .collect();
        for key in &revoked {
            self.revoke_nomination(key);
        }
    }

    /// Drops nominations whose victims did not leave in time. These are no victims any more: their
    /// deletion has begun and does not end.
    pub(super) fn drop_expired_nominations(&mut self) {
        let is_expired = |nomination: &Nomination| nomination.deadline <= self.now;
        let expired = self.nominations.iter().filter(|(_, nomination)| is_expired(nomination));
        for key in expired.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let victims = self.nominations.get(&key).map(|nomination| nomination.victims.clone());
            for uid in victims.into_iter().flatten() {
                if let Some(record) = self.pods.get_mut(&uid)
                    && record.pod.meta.deleted.is_some()
                {
                    record.eviction_retry_at = u64::MAX;
                    record.profile = None;
                }
            }
            let late = self.nominations.get(&key).and_then(|nomination| {
                nomination.volumes.as_ref().and(nomination.members.first().cloned())
            });
            if let Some(uid) = late {
                self.volumes_failed(&key, &uid, "the volumes were not bound in ten minutes");
                continue;
            }
            tracing::info!(entry = ?key, "victims did not leave in time; the nomination is dropped");
            self.revoke_nomination(&key);
        }
    }

    /// Handles a failed eviction: the nominations of this victim are dropped.
    pub(in crate::state) fn eviction_failed(&mut self, uid: &PodUid, failure: &Failure) {
        if failure.kind == FailureKind::PodGone {
            // The watch delivers the deletion.
            return;
        }
        if let Some(record) = self.pods.get_mut(uid) {
            record.eviction_retry_at = self.now.saturating_add(EVICTION_RETRY_DELAY_MS);
            record.profile = None;
            record.is_leaving = false;
            self.eviction_retries.insert((record.eviction_retry_at, uid.clone()));
        }
        self.refresh_pod(uid);
        let nominations = self.nominations.iter();
        let broken = nominations.filter(|(_, nomination)| nomination.victims.contains(uid));
        for key in broken.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.revoke_nomination(&key);
        }
    }

    /// Allows pods to be victims again after their delay. Returns the next deadline.
    pub(in crate::state) fn retry_evictions(&mut self) -> Option<u64> {
        loop {
            let (at, uid) = self.eviction_retries.first()?.clone();
            if at > self.now {
                return Some(at);
            }
            self.eviction_retries.remove(&(at, uid.clone()));
            self.forget_profile(&uid);
            self.refresh_pod(&uid);
            self.victims_changed();
        }
    }
}
