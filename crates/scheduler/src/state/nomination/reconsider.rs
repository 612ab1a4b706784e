//! Nominated entries that no longer need their victims to leave.

use octavo_kube_io::objects::PodUid;

use super::Nomination;
use crate::state::Scheduler;
use crate::state::pod::Place;
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
    /// Decides nominated entries again after a change, without victims. Those that fit are bound.
    pub(in crate::state) fn reconsider_nominations(&mut self) {
        let outdated = self
            .nominations
            .iter()
            .filter(|(_, nomination)| nomination.is_outdated(self.cluster_revision, self.now));
        for key in outdated.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.reconsider(&key);
        }
    }

    /// Takes a nomination back, decides its entry, and restores the nomination unless that succeeds.
    fn reconsider(&mut self, key: &QueueKey) {
        let Some(mut nomination) = self.nominations.remove(key) else { return };
        let mut places: Vec<_> = Vec::new();
        for uid in nomination.members.iter().filter(|uid| self.is_nominated(uid)) {
            if let Some(place) = self.pods.get(uid).and_then(|record| record.place.clone()) {
                places.push((uid.clone(), place));
            }
        }
        for (uid, _) in &places {
            self.set_place(uid, None);
        }
        // They have not left yet, so their places are not free.
        self.keep_victims(nomination.victims.iter());
        // Cached refusals hold for the nomination's world only, and those of the attempt for its own.
        self.refusals.clear();
        let explanation = self.decision_log.last(key).cloned();
        let is_placed = match key {
            QueueKey::Pod(uid) => self.schedule_pod(uid, key, false).is_ok(),
            QueueKey::Group(group) => self.schedule_group(group, key, false).is_ok(),
        };
        self.refusals.clear();
        if is_placed {
            self.release_nomination(key, &nomination);
            return;
        }
        if let Some(explanation) = explanation {
            self.decision_log.record(key, explanation);
        }
        self.restore_places(places, &nomination);
        nomination.revision = self.cluster_revision;
        nomination.decided_at = self.now;
        self.nominations.insert(key.clone(), nomination);
    }

    /// Restores the places of a nomination's pods, with its victims leaving.
    fn restore_places(&mut self, places: Vec<(PodUid, Place)>, nomination: &Nomination) {
        for uid in &nomination.victims {
            if let Some(record) = self.pods.get_mut(uid) {
                record.is_leaving = true;
                self.refresh_pod(uid);
            }
        }
        for (uid, place) in places {
            self.set_place(&uid, Some(place));
        }
    }
}
