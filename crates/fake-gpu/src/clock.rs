//! Time. The work of a process is served in order, and processes with work share the GPU evenly.
//!
//! The share of each changes only when another process starts or stops having work. So work is
//! accounted for lazily: [`Locked::advance`] replays the time since the last call. A process that
//! has work adds more without the lock.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

use crate::ENDLESS;
use crate::file::{self, LockByte};
use crate::gpu::{Clock, backlog, wall_clock};
use crate::layout::Slot;
use crate::lock::Locked;
use crate::process_handle::ProcessHandle;

/// Longest sleep of a waiter before it checks again: other processes may come and go.
const MAX_SLEEP: Duration = Duration::from_millis(2);

impl ProcessHandle {
    /// Submits work of `nanos` nanoseconds. Returns a mark for its end, see
    /// [`poll_done`](Self::poll_done).
    pub fn submit(&self, nanos: u64) -> u64 {
        let slot = self.slot();
        if nanos == 0 {
            return slot.submitted.load(Relaxed);
        }
        let submitted = slot.submitted.load(Relaxed);
        if self.now() < self.busy_from.load(Relaxed).wrapping_add(submitted) {
            return slot.submitted.fetch_add(nanos, AcqRel) + nanos;
        }
        let locked = self.lock();
        let now = self.now();
        locked.advance(now);
        let mark = slot.submitted.fetch_add(nanos, AcqRel) + nanos;
        // The earliest end is now plus the backlog, if no other process had work. Later submissions
        // move it on.
        self.busy_from.store(now.wrapping_sub(slot.served.load(Relaxed)), Relaxed);
        mark
    }

    /// The mark of all work submitted so far.
    pub fn submitted(&self) -> u64 {
        self.slot().submitted.load(Acquire)
    }

    /// Whether the work up to `mark` is known to be done. Reads one number only.
    pub fn is_known_done(&self, mark: u64) -> bool {
        self.slot().served.load(Acquire) >= mark
    }

    /// Whether the work up to `mark` is done. If not, a virtual clock advances by a microsecond, so
    /// that time passes in a polling loop.
    pub fn poll_done(&self, mark: u64) -> bool {
        if self.is_known_done(mark) {
            return true;
        }
        let locked = self.lock();
        if self.clock() == Clock::Virtual {
            locked.move_clock(self.now() + 1000);
        }
        locked.advance(self.now());
        drop(locked);
        self.is_known_done(mark)
    }

    /// Waits until the work up to `mark` is done or `is_cancelled` returns true; it is called every
    /// few milliseconds. Returns whether the work is done.
    pub fn wait(&self, mark: u64, is_cancelled: &mut dyn FnMut() -> bool) -> bool {
        loop {
            if self.is_known_done(mark) {
                return true;
            }
            let left = self.advance_for(mark);
            if left.is_zero() {
                continue;
            }
            if is_cancelled() {
                return false;
            }
            std::thread::sleep(left.min(MAX_SLEEP));
        }
    }

    /// When the work up to `mark` was done, in nanoseconds of the GPU's clock; `None` if it is not.
    pub fn done_at(&self, mark: u64) -> Option<u64> {
        let locked = self.lock();
        locked.advance(self.now());
        self.is_known_done(mark).then(|| self.slot().time_of(mark, self.now()))
    }

    /// Accounts for finished work. Returns how long the work up to `mark` takes at least; zero if
    /// the clock has moved to its end.
    fn advance_for(&self, mark: u64) -> Duration {
        let locked = self.lock();
        let is_endless = mark.saturating_sub(self.slot().served.load(Relaxed)) >= ENDLESS / 2;
        match self.clock() {
            Clock::Virtual if is_endless => MAX_SLEEP,
            Clock::Virtual => {
                locked.advance_to_mark(mark);
                Duration::ZERO
            }
            Clock::Host => {
                locked.advance(wall_clock());
                let left = mark.saturating_sub(self.slot().served.load(Relaxed));
                Duration::from_nanos(left)
            }
        }
    }
}

impl Locked<'_> {
    /// Accounts for all work up to a point in time.
    pub(crate) fn advance(&self, to: u64) {
        self.serve(to, None);
    }

    /// Moves the virtual clock to the end of this process's work up to `mark`.
    fn advance_to_mark(&self, mark: u64) {
        self.serve(u64::MAX, Some(mark));
        self.move_clock(self.0.map().header.served_until.load(Relaxed));
    }

    fn move_clock(&self, to: u64) {
        self.0.map().header.now.fetch_max(to, AcqRel);
    }

    /// Resets the accounting of a GPU without users: the host's clock restarts at boot.
    pub(crate) fn restart_clock(&self) {
        let map = self.0.map();
        let used = map.header.slots_used.load(Acquire) as usize;
        let mut others = map.slots.iter().enumerate().take(used);
        let is_alone = !others
            .any(|(index, slot)| index != self.0.slot_index() && slot.state.load(Acquire) != 0);
        if is_alone && self.0.clock() == Clock::Host {
            map.header.served_until.store(wall_clock(), Relaxed);
        }
    }

    /// Serves work up to a point in time, or until this process's work up to `mark` is done.
    fn serve(&self, to: u64, mark: Option<u64>) {
        let header = &self.0.map().header;
        let mut at = header.served_until.load(Relaxed);
        let own = self.0.slot();
        let left_to_mark = || mark.map(|mark| mark.saturating_sub(own.served.load(Relaxed)));
        while at < to && left_to_mark() != Some(0) {
            let busy: Vec<&Slot> = self.busy_slots();
            let sharers = u64::try_from(busy.len()).unwrap_or(u64::MAX);
            let Some(least) = busy.iter().map(|slot| backlog(slot)).min() else {
                // There is no work until then.
                at = if to == u64::MAX { at } else { to };
                break;
            };
            let least = left_to_mark().map_or(least, |left| left.min(least));
            // A remainder below one nanosecond per process stays for the next call.
            let gain = least.min((to - at) / sharers);
            if gain == 0 {
                break;
            }
            for slot in busy {
                slot.remember(at, sharers);
                slot.served.fetch_add(gain, AcqRel);
            }
            let time = gain.saturating_mul(sharers);
            header.busy.fetch_add(time, Relaxed);
            at = at.saturating_add(time);
        }
        header.served_until.store(at, Relaxed);
    }

    /// Slots of living processes with work. Work of dead processes ends with them.
    fn busy_slots(&self) -> Vec<&Slot> {
        let map = self.0.map();
        let used = map.header.slots_used.load(Acquire) as usize;
        let slots = map.slots.iter().enumerate().take(used);
        let busy = slots.filter(|(index, slot)| {
            slot.state.load(Acquire) != 0
                && backlog(slot) > 0
                && (*index == self.0.slot_index()
                    || file::is_held(self.0.file(), LockByte::Slot(*index)))
        });
        busy.map(|(_, slot)| slot).collect()
    }
}
