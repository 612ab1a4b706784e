//! Nominated entries that no longer need their victims to leave.

use octavo_kube_io::objects::{NodeName, PodUid};

use super::Nomination;
use crate::state::Scheduler;
use crate::state::cache::pod::Place;
use crate::state::cycle::decide::Attempt;
use crate::state::queue::QueueKey;

/// Milliseconds between two looks at a nomination.
const RECONSIDER_INTERVAL_MS: u64 = 1000;

impl Nomination {
    /// Whether the cluster has changed since the last look.
    fn is_outdated(&self, revision: u64, now: u64) -> bool {
        !self.victims.is_empty()
            && self.revision != revision
            && self.decided_at.saturating_add(RECONSIDER_INTERVAL_MS) <= now
    }
}

impl Scheduler {
    /// Decides a nominated entry again after a change, without victims. If it fits, it is bound. One
    /// entry at a time, because a gang takes long enough for new events to arrive.
    pub(in crate::state) fn reconsider_oldest_nomination(&mut self) {
        let outdated = self.reservations.nominations.iter().filter(|(_, nomination)| {
            nomination.is_outdated(self.cache.revision(), self.cache.now())
        });
        let oldest = outdated.min_by_key(|(_, nomination)| nomination.decided_at);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.reconsider(&key);
        }
    }

    /// Takes a nomination back, decides its entry, and restores the nomination unless that succeeds.
    fn reconsider(&mut self, key: &QueueKey) {
        let Some(mut nomination) = self.reservations.nominations.remove(key) else { return };
        let mut places: Vec<(PodUid, Place)> = Vec::new();
        for uid in nomination.members.iter().filter(|uid| self.cache.is_nominated(uid)) {
            if let Some(place) = self.cache.pod(uid).and_then(|record| record.place.clone()) {
                places.push((uid.clone(), place));
            }
        }
        self.cache.release_devices(&nomination.devices);
        for (uid, _) in &places {
            self.cache.set_place(uid, None);
        }
        // They have not left yet, so their places are not free.
        for uid in nomination.leaving() {
            self.cache.set_leaving(uid, false);
        }
        let result = match key {
            QueueKey::Pod(uid) => self.schedule_pod(uid, key, Attempt::Nominated),
            QueueKey::Group(group) => self.schedule_group(group, key, Attempt::Nominated),
        };
        if result.is_ok() {
            for (_, place) in &places {
                self.cache.room_changed(&place.node);
            }
            if self.reservations.nominations.contains_key(key) {
                // The new place waits for volumes.
                self.release_victims(key, &nomination);
            } else {
                self.release_nomination(key, &nomination);
            }
            return;
        }
        let on_nodes: Vec<(PodUid, NodeName)> =
            places.iter().map(|(uid, place)| (uid.clone(), place.node.clone())).collect();
        let needs_borrowed = !nomination.borrowers.is_empty()
            && self.would_fit_after(&on_nodes, &nomination.borrowers);
        for uid in nomination.leaving() {
            self.cache.set_leaving(uid, true);
        }
        for (uid, place) in places {
            self.cache.set_place(&uid, Some(place));
        }
        self.cache.reserve_devices(&nomination.devices);
        nomination.revision = self.cache.revision();
        nomination.decided_at = self.cache.now();
        self.reservations.nominations.insert(key.clone(), nomination);
        if needs_borrowed {
            // The place suffices beside the victims that still run.
            self.reclaim_loans(key);
        }
    }
}
