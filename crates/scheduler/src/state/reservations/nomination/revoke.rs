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
        let Some(nomination) = self.reservations.nominations.remove(key) else { return };
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
        let Some(mut older) = self.reservations.nominations.remove(key) else { return };
        self.take_over(&mut older, nodes, newer);
        self.release_nomination(key, &older);
        self.enqueue(key);
        self.queue.set_state(key, State::Ready);
    }

    /// Moves the pods that leave these nodes to a newer nomination. Victims were evicted for the older
    /// one, so they must leave by its deadline.
    fn take_over(
        &self,
        older: &mut Nomination,
        nodes: &BTreeSet<&NodeName>,
        newer: &mut Nomination,
    ) {
        let is_needed = |uid: &PodUid| {
            let place = self.cache.pod(uid).and_then(|record| record.place.as_ref());
            place.is_some_and(|place| nodes.contains(&place.node))
        };
        let victims: Vec<_> = older.victims.extract_if(.., |uid| is_needed(uid)).collect();
        if !victims.is_empty() {
            newer.deadline = newer.deadline.max(older.deadline);
        }
        newer.victims.extend(victims);
        newer.borrowers.extend(older.borrowers.extract_if(.., |uid| is_needed(uid)));
        newer.departed.append(&mut older.departed);
    }

    /// Takes the places of a dropped nomination back.
    pub(super) fn release_nomination(&mut self, key: &QueueKey, nomination: &Nomination) {
        self.cache.release_devices(&nomination.devices);
        for uid in &nomination.members {
            if self.cache.is_nominated(uid) {
                self.release_place(uid);
            }
        }
        if let QueueKey::Pod(uid) = key
            && self.cache.pod(uid).is_some_and(|record| record.place.is_none())
        {
            // The API server clears it when the pod is bound.
            self.set_nominated_node(uid, None);
        }
        self.release_victims(key, nomination);
    }

    /// Ends what a nomination that is no longer in force asks of others: the pods that have not left
    /// its places count again, as do claims of those that have.
    pub(super) fn release_victims(&mut self, key: &QueueKey, nomination: &Nomination) {
        self.cache.keep_victims(nomination.leaving());
        self.drop_successor_places_of(key);
        for node in self.cache.nodes_with_claim_holders() {
            self.refresh_claim_holders(&node);
        }
        self.cache.victims_changed();
    }

    /// Drops an older nomination of the same entry, except for members of the newer one, which takes
    /// over the pods that leave its nodes.
    pub(super) fn replace_nomination(
        &mut self,
        key: &QueueKey,
        nodes: &BTreeSet<&NodeName>,
        newer: &mut Nomination,
    ) {
        let Some(mut older) = self.reservations.nominations.remove(key) else { return };
        self.take_over(&mut older, nodes, newer);
        self.cache.release_devices(&older.devices);
        for uid in older.members.iter().filter(|uid| !newer.members.contains(uid)) {
            if self.cache.is_nominated(uid) {
                self.release_place(uid);
            }
        }
        self.cache.keep_victims(older.leaving().filter(|uid| !newer.victims.contains(*uid)));
    }

    /// Drops the nominations on a deleted node.
    pub(in crate::state) fn drop_nominations_on(&mut self, node: &str) {
        self.revoke_nominations(node, |_, _| true);
    }

    /// Drops the nominations on a node that no longer takes their pods. It may be cordoned, tainted
    /// (as lost nodes are), or have other labels.
    pub(in crate::state) fn drop_infeasible_nominations_on(&mut self, node: &str) {
        self.revoke_nominations(node, |scheduler, uid| {
            scheduler.cache.check_node_rules(uid, node).is_err()
        });
    }

    /// Drops the nominations with a pod on a node for which `must_go` holds.
    fn revoke_nominations(&mut self, node: &str, must_go: impl Fn(&Self, &PodUid) -> bool) {
        let residents = self.cache.pods_on(node);
        let revoked: BTreeSet<_> = residents
            .filter(|uid| self.cache.is_nominated(uid) && must_go(self, uid))
            .map(|uid| self.cache.queue_key_of(uid))
            .collect();
        for key in &revoked {
            self.revoke_nomination(key);
        }
    }

    /// Drops nominations whose victims did not leave in time. These are no victims any more: their
    /// deletion has begun and does not end.
    pub(super) fn drop_expired_nominations(&mut self) {
        let is_expired = |nomination: &Nomination| nomination.deadline <= self.cache.now();
        let expired =
            self.reservations.nominations.iter().filter(|(_, nomination)| is_expired(nomination));
        for key in expired.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let victims = self
                .reservations
                .nominations
                .get(&key)
                .map(|nomination| nomination.victims.clone());
            for uid in victims.into_iter().flatten() {
                let record = self.cache.pod(&uid);
                if record.is_some_and(|record| record.pod.meta.deleted.is_some()) {
                    self.cache.protect_until(&uid, u64::MAX);
                }
            }
            let late = self.reservations.nominations.get(&key).and_then(|nomination| {
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
        let at = self.cache.now().saturating_add(EVICTION_RETRY_DELAY_MS);
        self.cache.protect_until(uid, at);
        self.cache.keep_victims([uid].into_iter());
        self.operations.retry_eviction_at(at, uid);
        for nomination in self.reservations.nominations.values_mut() {
            nomination.borrowers.remove(uid);
        }
        let nominations = self.reservations.nominations.iter();
        let broken = nominations.filter(|(_, nomination)| nomination.victims.contains(uid));
        for key in broken.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.revoke_nomination(&key);
        }
    }

    /// Allows pods to be victims again after their delay. Returns the next deadline.
    pub(in crate::state) fn retry_evictions(&mut self) -> Option<u64> {
        loop {
            let uid = match self.operations.next_eviction_retry(self.cache.now()) {
                Ok(uid) => uid,
                Err(next) => return next,
            };
            self.cache.forget_profile(&uid);
            self.cache.refresh_pod(&uid);
            self.cache.victims_changed();
        }
    }
}
