//! The kernels of a process, in the file of the GPU.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::{KERNELS, Kernel, Queue};

impl Queue {
    /// Kernels that have not ended.
    pub(crate) fn len(&self) -> u64 {
        self.launched.load(Acquire).saturating_sub(self.ended.load(Relaxed))
    }

    /// Adds a kernel up to a mark. Without room it is part of the last one. Only one thread of its process may do so at a time.
    pub(crate) fn push(&self, mark: u64) {
        let launched = self.launched.load(Relaxed);
        if self.len() >= KERNELS as u64 {
            self.kernel(launched - 1).mark.store(mark, Relaxed);
            return;
        }
        self.kernel(launched).mark.store(mark, Relaxed);
        self.launched.store(launched + 1, Release);
    }

    /// The mark that must be done before the ring has room for a thread of kernels again; `None` if it has.
    pub(crate) fn mark_before_room(&self) -> Option<u64> {
        const ROOM: u64 = 64;
        let launched = self.launched.load(Relaxed);
        let is_full = self.len() + ROOM > KERNELS as u64;
        is_full.then(|| self.kernel(launched - KERNELS as u64 / 2).mark.load(Relaxed))
    }

    /// The mark of the first kernel that has not ended. Requires the GPU's lock.
    pub(crate) fn first(&self) -> Option<u64> {
        let ended = self.ended.load(Relaxed);
        (self.launched.load(Acquire) > ended).then(|| self.kernel(ended).mark.load(Relaxed))
    }

    /// Ends the first kernel. Requires the GPU's lock.
    pub(crate) fn end_first(&self, at: u64) {
        let ended = self.ended.load(Relaxed);
        self.kernel(ended).ended_at.store(at, Relaxed);
        self.ended.store(ended + 1, Release);
    }

    /// When the work up to `mark` was done, which it is. Work older than the ring counts as done at its beginning. Requires the
    /// GPU's lock.
    pub(crate) fn time_of(&self, mark: u64) -> Option<u64> {
        let ended = self.ended.load(Relaxed);
        // Kernels that are launched meanwhile take the oldest places.
        let oldest = (self.launched.load(Acquire) + 1).saturating_sub(KERNELS as u64).min(ended);
        let (mut low, mut high) = (oldest, ended);
        while low < high {
            let middle = low.midpoint(high);
            if self.kernel(middle).mark.load(Relaxed) < mark {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < ended).then(|| self.kernel(low).ended_at.load(Relaxed))
    }

    #[expect(clippy::cast_possible_truncation, reason = "less than the ring's length")]
    fn kernel(&self, number: u64) -> &Kernel {
        &self.kernels[(number % KERNELS as u64) as usize]
    }
}
