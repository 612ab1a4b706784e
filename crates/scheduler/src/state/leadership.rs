//! Who leads: what is given up when another does, and what is told anew when this scheduler does again.

use std::collections::BTreeSet;

use super::Scheduler;
use super::pending_reason::Reason;
use super::queue::{QueueKey, State};

impl Scheduler {
    /// Somebody else leads: what was promised is no longer this scheduler's to keep. What is on its way
    /// ends by its outcome.
    pub fn on_leadership_lost(&mut self) {
        let keys: Vec<_> = self.nominations.keys().cloned().collect();
        for key in keys {
            self.drop_nomination(&key);
            self.queue.set_state(&key, State::Ready);
            self.pending.remove(&key);
        }
        self.note_leadership_gap();
        // Nobody is told of what is on its way any more: who waits for it is decided on anew.
        for uid in self.rollbacks.pods_in_flight() {
            self.make_ready_if_gated(&uid);
        }
        // They stay on their way: nothing new is decided before their end.
        self.rollbacks.clear();
    }

    /// This scheduler leads from now on, or what it told last may be lost: all that waits is told anew.
    /// What another has told meanwhile may not be so any more.
    pub fn on_leadership_acquired(&mut self) {
        self.rebuild_engine_if_stale();
        let delayed: BTreeSet<QueueKey> = self.delayed.iter().map(|(_, key)| key.clone()).collect();
        let keys: BTreeSet<QueueKey> = self.pending.keys().cloned().collect();
        for key in keys.difference(&delayed) {
            let Some(pending) = self.pending.get(key) else { continue };
            let statement = pending.statement.clone();
            // Of a gang that is not all there its status says so.
            if pending.reason == Reason::Gathering {
                continue;
            }
            for uid in self.pods_of(key) {
                let record = self.pods.get(&uid);
                let waits =
                    record.is_some_and(|record| record.is_pending_for(&self.config.scheduler_name));
                if waits || matches!(key, QueueKey::Pod(_)) {
                    self.report_pod_pending(&uid, &statement);
                }
            }
        }
        let groups: Vec<_> = self.members.keys().cloned().collect();
        for group in groups {
            self.report_group(&group);
        }
        self.reports.extend(self.policies.reports().into_values());
    }

    /// All that was written of pods and claims before `at` was told, by the clock of [`Scheduler::tick`]: lists
    /// that began then have been taken in.
    pub fn on_relist(&mut self, at: u64) {
        self.resolve_after_relist(at);
    }

    /// The time that lists of pods and claims must not be older than, for what cannot be known without them.
    pub fn relist_needed_since(&self) -> Option<u64> {
        self.indeterminate_relist_since()
    }
}
