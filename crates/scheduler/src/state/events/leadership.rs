//! Leadership changes: what ends when another scheduler leads, and what is reported again when this
//! one does. Also relists, which a new leader needs.

use crate::state::Scheduler;
use crate::state::queue::QueueKey;
use crate::state::reporter::pending_reason::Reason;

impl Scheduler {
    /// Another scheduler leads: nominations end. Operations in flight end with their results.
    pub fn on_leadership_lost(&mut self) {
        let keys: Vec<_> = self.reservations.nominated_entries();
        for key in keys {
            self.revoke_nomination(&key);
            self.reporter.forget_pending(&key);
        }
        self.operations.note_leadership_gap();
        // Results of these rollbacks are ignored, so their pods must not wait for them.
        for uid in self.operations.abandon_rollbacks() {
            self.make_ready_if_gated(&uid);
        }
        // The operations stay in flight: nothing new is decided before they end.
    }

    /// This scheduler leads, or its last reports may be lost: reports all pending entries again.
    /// Reports of another leader may be outdated.
    pub fn on_leadership_acquired(&mut self) {
        self.rebuild_engine_if_stale();
        for key in &self.reporter.reported_entries() {
            let Some(pending) = self.reporter.pending(key) else { continue };
            let status_text = pending.status_text.clone();
            // The gang's status reports it.
            if pending.reason == Reason::Gathering {
                continue;
            }
            for uid in self.cache.pods_of(key) {
                if self.cache.is_pending(&uid) || matches!(key, QueueKey::Pod(_)) {
                    self.report_pod_pending(&uid, &status_text);
                }
            }
        }
        let groups: Vec<_> = self.cache.gangs().keys().cloned().collect();
        for group in groups {
            self.reporter.report_group(&group);
        }
        self.reporter.report_all(self.cache.policies().reports().into_values());
    }

    /// The time at which lists of pods and claims must have started to resolve indeterminate binds.
    pub fn relist_needed_since(&self) -> Option<u64> {
        self.operations.indeterminate_relist_since()
    }
}
