//! Tests of a node's GPUs.

use octavo_health::signal::{Outcome, Report, Signal};
use octavo_health::unit::Unit;

use super::NodeHealth;

impl NodeHealth {
    /// Ends the tests: their results are what the driver said last.
    pub(super) fn test(&mut self, now: u64) {
        for test in &self.decisions.tests {
            let known = self.record.gpus.values().find(|known| known.id == test.device);
            let has_passed = known.is_some_and(|known| known.seen.is_good());
            let began = self.record.domain.devices.get(&test.device).map(|it| it.track.since);
            let passed = now.saturating_sub(began.unwrap_or(now));
            // Links may still be trained.
            if !has_passed && passed < test.seconds {
                continue;
            }
            let outcome = if has_passed { Outcome::Passed } else { Outcome::Failed };
            let report = Report::Outcome { attempt: test.attempt, outcome };
            self.signals.push(Signal { at: now, unit: Unit::Device(test.device), report });
        }
    }
}
