//! The resets of a GPU, by the record of the simulated `nvidia-smi`, beside the attempts that its agent reports.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::chaos::judge::DeviceName;
use crate::chaos::violation::Broken;

/// Time in which an attempt that has begun may not be reported yet.
const ATTEMPT_LAGS: Duration = Duration::from_secs(30);

/// Resets and attempts since a GPU was last in service.
#[derive(Clone, Debug, Default)]
pub(super) struct Remedies {
    /// Resets at the last look; `None` before the first one.
    begun: Option<u64>,
    /// Resets until it was last in service, as the first look after it shows.
    before: Option<u64>,
    /// Numbers of attempts since then.
    attempts: BTreeSet<i64>,
    /// Since when there are more resets than attempts.
    excess_since: Option<Duration>,
}

impl Remedies {
    /// An attempt with a number is reported.
    pub(super) fn attempted(&mut self, attempt: i64) {
        self.attempts.insert(attempt);
    }

    /// Number of attempts.
    pub(super) fn attempts(&self) -> usize {
        self.attempts.len()
    }

    /// Takes the number of resets so far.
    pub(super) fn count(&mut self, begun: u64) {
        // Of another board it begins at zero.
        if self.before.is_none() || self.begun.is_some_and(|known| begun < known) {
            self.before = Some(begun);
        }
        self.begun = Some(begun);
    }

    /// Counts from the next look on. The report of a return may come before the look that shows the last reset. So a reset too many between
    /// two looks goes unseen there.
    pub(super) fn restart(&mut self) {
        self.before = None;
        self.attempts.clear();
        self.excess_since = None;
    }

    /// More resets than attempts, for longer than a report takes.
    pub(super) fn excess(&mut self, name: &DeviceName, at: Duration) -> Option<Broken> {
        let Some(broken) = self.excess_at_return(name) else {
            self.excess_since = None;
            return None;
        };
        let since = *self.excess_since.get_or_insert(at);
        (since + ATTEMPT_LAGS <= at).then(|| {
            // Once for each.
            self.restart();
            broken
        })
    }

    /// More resets than attempts, where all attempts are reported.
    pub(super) fn excess_at_return(&self, name: &DeviceName) -> Option<Broken> {
        let begun = self.begun.unwrap_or_default();
        let resets = begun.saturating_sub(self.before.unwrap_or(begun));
        let attempts = self.attempts.len() as u64;
        (resets > attempts).then(|| Broken::RemedyRepeated {
            device: name.clone(),
            resets,
            attempts,
        })
    }
}
