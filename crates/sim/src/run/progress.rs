//! Telling a person how far the runs are: a bar on standard error, on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::replay::{ReplayObserver, Run};

/// Steps of the bar for one run.
const STEPS_PER_RUN: usize = 1_000_000;

/// Observes a known number of runs.
pub trait Progress: ReplayObserver {
    /// So many runs begin.
    fn begin(&self, runs: usize);
    /// All runs are over; the bar disappears.
    fn end(&self);
}

impl Progress for crate::replay::NoObserver {
    fn begin(&self, _: usize) {}
    fn end(&self) {}
}

/// A bar for all runs.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A bar that is drawn only if standard error is a terminal and `is_quiet` is false.
    pub fn new(is_quiet: bool) -> Self {
        let target =
            if is_quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style =
            ProgressStyle::with_template("{bar:30} {percent:>3}% {msg} [{elapsed}, {eta} left]");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar }
    }
}

impl ReplayObserver for Bar {
    fn advanced(&self, more: usize, events: usize) {
        // Runs are of different length, and that of later ones is not known: each has as many steps.
        self.bar.inc((more * STEPS_PER_RUN / events.max(1)) as u64);
    }

    fn finished(&self, run: &Run) {
        let allocated = run.metrics.allocated_ratio * 100.0;
        self.bar.set_message(format!("{} {}: {allocated:.2} %", run.policy, run.seed));
    }
}

impl Progress for Bar {
    fn begin(&self, runs: usize) {
        self.bar.set_length((runs * STEPS_PER_RUN) as u64);
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}
