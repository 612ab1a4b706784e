//! Who leads: what is given up when another does, and what is told anew when this scheduler does again.

use std::collections::BTreeSet;

use super::Core;
use super::queue::{State, Unit};

impl Core {
    /// Somebody else leads: what was promised is no longer this scheduler's to keep. What is on its way
    /// ends by its outcome.
    pub fn stand_down(&mut self) {
        let units: Vec<_> = self.promises.keys().cloned().collect();
        for unit in units {
            self.drop_promise(&unit);
            self.queue.set(&unit, State::Ready);
            self.waiting.remove(&unit);
        }
        self.others_may_have_led();
        // Nobody is told of what is on its way any more: who waits for it is decided on anew.
        for uid in self.undos.all_flying() {
            self.decide_again(&uid);
        }
        // They stay on their way: nothing new is decided before their end.
        self.undos.clear();
    }

    /// This scheduler leads from now on, or what it told last may be lost: all that waits is told anew.
    /// What another has told meanwhile may not be so any more.
    pub fn stand_up(&mut self) {
        self.bring_picture_up_to_date();
        let untold: BTreeSet<Unit> = self.untold.iter().map(|(_, unit)| unit.clone()).collect();
        let units: BTreeSet<Unit> = self.waiting.keys().cloned().collect();
        for unit in units.difference(&untold) {
            let Some(waiting) = self.waiting.get(unit) else { continue };
            let status_text = waiting.status_text.clone();
            // Of a gang that is not all there its status says so.
            if status_text.reason == "Gathering" {
                continue;
            }
            for uid in self.uids_of(unit) {
                let record = self.pods.get(&uid);
                let waits = record.is_some_and(|one| one.waits_for(&self.config.scheduler_name));
                if waits || matches!(unit, Unit::Pod(_)) {
                    self.say_pod_waits(&uid, &status_text);
                }
            }
        }
        let groups: Vec<_> = self.members.keys().cloned().collect();
        for group in groups {
            self.report_group(&group);
        }
        self.reports.extend(self.policies.reports().into_values());
    }
}
