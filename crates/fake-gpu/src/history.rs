//! History: the last time segments in which a process had a constant share of the GPU.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::{SEGMENTS, Slot};

impl Slot {
    /// Records that from `at` on the process shares the GPU with `sharers` processes, itself
    /// included. Requires the GPU's lock.
    pub(crate) fn remember(&self, at: u64, sharers: u64) {
        let served = self.served.load(Relaxed);
        let written = self.segments_written.load(Relaxed);
        let last = written.checked_sub(1).map(|index| self.segment(index));
        let goes_on = last.is_some_and(|(began, before, among)| {
            among == sharers && began + (served - before).saturating_mul(among) == at
        });
        if goes_on {
            return;
        }
        let segment = &self.segments[ring(written)];
        segment.at.store(at, Relaxed);
        segment.served.store(served, Relaxed);
        segment.sharers.store(sharers, Relaxed);
        self.segments_written.store(written + 1, Release);
    }

    /// When the work up to `mark` was done. Work older than the history counts as done at its
    /// beginning; without a history it counts as done now. Requires the GPU's lock.
    pub(crate) fn time_of(&self, mark: u64, now: u64) -> u64 {
        let written = self.segments_written.load(Acquire);
        let oldest = written.saturating_sub(u64::try_from(SEGMENTS).unwrap_or(0));
        for index in (oldest..written).rev() {
            let (at, served, sharers) = self.segment(index);
            if served < mark {
                return at + (mark - served).saturating_mul(sharers);
            }
        }
        if oldest < written { self.segment(oldest).0 } else { now }
    }

    fn segment(&self, index: u64) -> (u64, u64, u64) {
        let segment = &self.segments[ring(index)];
        let [at, served, sharers] =
            [&segment.at, &segment.served, &segment.sharers].map(|value| value.load(Relaxed));
        (at, served, sharers)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "less than the ring's length")]
fn ring(index: u64) -> usize {
    (index % SEGMENTS as u64) as usize
}
