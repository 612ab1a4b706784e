//! What a job has computed, and what of it survives an interruption.
//!
//! All times are in milliseconds. The job computes for `every`, stops for `write` while it writes a
//! checkpoint, and so on. An interruption loses what was computed since the last checkpoint.

use super::study::{Checkpoints, Length};

/// The progress of a job.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    checkpoints: Checkpoints,
    length: Length,
    /// Computed and kept, until the last restart.
    kept: u64,
    /// Ran since the last restart, writes included.
    ran: u64,
}

impl Progress {
    pub(super) fn new(checkpoints: Checkpoints, length: Length) -> Self {
        Self { checkpoints, length, kept: 0, ran: 0 }
    }

    /// How long the job must still run without an interruption.
    pub(super) fn remaining(&self, now: u64) -> u64 {
        match self.length {
            Length::Elapsed(span) => span.millis().saturating_sub(now),
            Length::Computing(span) => {
                let left = span.millis().saturating_sub(self.kept);
                // No checkpoint is written at the end.
                let writes = left.saturating_sub(1).checked_div(self.checkpoints.every.millis());
                let run = left + writes.unwrap_or(0) * self.checkpoints.write.millis();
                run.saturating_sub(self.ran)
            }
        }
    }

    /// The job has run for so long.
    pub(super) fn run(&mut self, millis: u64) {
        self.ran += millis;
    }

    /// All that was computed and not lost.
    pub(super) fn computed(&self) -> u64 {
        self.kept + self.since_restart()
    }

    /// The job is interrupted. Returns the computing time that is lost.
    pub(super) fn interrupt(&mut self, keeps_all: bool) -> u64 {
        let computed = self.since_restart();
        let every = self.checkpoints.every.millis();
        let lost = if keeps_all { 0 } else { self.ran.checked_rem(self.cycle()).unwrap_or(0) };
        // A failure during a write loses the whole interval before it.
        let lost = if every == 0 { 0 } else { lost.min(every).min(computed) };
        self.kept += computed - lost;
        self.ran = 0;
        lost
    }

    /// Computing time since the last restart.
    fn since_restart(&self) -> u64 {
        let every = self.checkpoints.every.millis();
        if every == 0 {
            return self.ran;
        }
        self.ran / self.cycle() * every + (self.ran % self.cycle()).min(every)
    }

    fn cycle(&self) -> u64 {
        let Checkpoints { every, write } = self.checkpoints;
        if every.millis() == 0 { 0 } else { every.millis() + write.millis() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::span::Span;

    fn progress(every: u64, write: u64, length: u64) -> Progress {
        let checkpoints = Checkpoints { every: Span::seconds(every), write: Span::seconds(write) };
        Progress::new(checkpoints, Length::Computing(Span::seconds(length)))
    }

    #[test]
    fn an_interruption_loses_work_since_the_last_checkpoint() {
        for (ran, kept, lost) in [(0, 0, 0), (9, 0, 9), (11, 0, 10), (12, 10, 0), (17, 10, 5)] {
            let mut progress = progress(10, 2, 100);
            progress.run(ran * 1000);
            assert_eq!(progress.interrupt(false), lost * 1000, "{ran}");
            assert_eq!(progress.computed(), kept * 1000, "{ran}");
        }
    }

    #[test]
    fn all_work_is_kept_when_nothing_is_lost() {
        let mut progress = progress(10, 2, 100);
        progress.run(17_000);
        assert_eq!(progress.interrupt(true), 0);
        assert_eq!(progress.computed(), 15_000);
    }

    #[test]
    fn without_checkpoints_no_work_is_lost() {
        let mut progress = progress(0, 0, 100);
        progress.run(30_000);
        assert_eq!((progress.interrupt(false), progress.computed()), (0, 30_000));
        assert_eq!(progress.remaining(0), 70_000);
    }

    #[test]
    fn the_end_comes_after_all_computing_and_all_writes_before_it() {
        let mut progress = progress(10, 2, 30);
        assert_eq!(progress.remaining(0), 34_000, "two writes");
        progress.run(13_000);
        assert_eq!(progress.remaining(0), 21_000);
        progress.interrupt(false);
        assert_eq!(progress.remaining(0), 22_000, "one write");
        progress.run(22_000);
        assert_eq!((progress.remaining(0), progress.computed()), (0, 30_000));
    }

    #[test]
    fn an_elapsed_length_ends_by_the_clock() {
        let length = Length::Elapsed(Span::seconds(60));
        let progress = Progress::new(Checkpoints::default(), length);
        assert_eq!(progress.remaining(45_000), 15_000);
        assert_eq!(progress.remaining(61_000), 0);
    }
}
