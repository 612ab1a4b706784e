//! Time: work is served in the order in which a process submits it, and processes that have some
//! share the chip evenly.
//!
//! The part of each changes when another begins or ends to have work, and only then, so work is
//! accounted for when somebody looks: [`Locked::advance`] replays the time since the last advance_for. A
//! process that has work already adds more without the lock.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

use crate::ENDLESS;
use crate::file::{self, LockByte};
use crate::gpu::{Clock, backlog, wall_clock};
use crate::layout::Slot;
use crate::lock::Locked;
use crate::process_handle::ProcessHandle;

/// How long a waiter sleeps at most before it looks again: others may come and go.
const MAX_SLEEP: Duration = Duration::from_millis(2);

impl ProcessHandle {
    /// Submits work of that many nanoseconds. The answer stands for its end: see
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
        // The earliest end is now and the backlog, were the chip for this process alone. All that
        // is submitted later moves it on.
        self.busy_from.store(now.wrapping_sub(slot.served.load(Relaxed)), Relaxed);
        mark
    }

    /// The end of all work submitted so far.
    pub fn submitted(&self) -> u64 {
        self.slot().submitted.load(Acquire)
    }

    /// Whether the work up to `mark` is known to be done; looks at nothing but a number.
    pub fn is_known_done(&self, mark: u64) -> bool {
        self.slot().served.load(Acquire) >= mark
    }

    /// Whether the work up to `mark` is done by now. A virtual clock moves on by a microsecond if
    /// it is not, as a caller that asks again and again would make time pass.
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

    /// Waits until the work up to `mark` is done, or `is_cancelled` says so; it is asked every few
    /// milliseconds. Whether the work is done.
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

    /// When the work up to `mark` was done, if it is: nanoseconds of the chip's clock.
    pub fn done_at(&self, mark: u64) -> Option<u64> {
        let locked = self.lock();
        locked.advance(self.now());
        self.is_known_done(mark).then(|| self.slot().time_of(mark, self.now()))
    }

    /// Accounts for what is done; how long the work up to `mark` takes at least, zero when the
    /// clock has been moved to its end.
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
    /// Accounts for all work up to a moment.
    pub(crate) fn advance(&self, to: u64) {
        self.serve(to, None);
    }

    /// Moves the virtual clock on to the end of this process's work up to `mark`.
    fn advance_to_mark(&self, mark: u64) {
        self.serve(u64::MAX, Some(mark));
        self.move_clock(self.0.map().header.served_until.load(Relaxed));
    }

    fn move_clock(&self, to: u64) {
        self.0.map().header.now.fetch_max(to, AcqRel);
    }

    /// A chip that nobody uses yet has no past: the host's clock may have begun anew with a boot.
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

    /// Serves work up to a moment, or until this process's work up to `mark` is done.
    fn serve(&self, to: u64, mark: Option<u64>) {
        let header = &self.0.map().header;
        let mut at = header.served_until.load(Relaxed);
        let own = self.0.slot();
        let left_to_mark = || mark.map(|mark| mark.saturating_sub(own.served.load(Relaxed)));
        while at < to && left_to_mark() != Some(0) {
            let busy: Vec<&Slot> = self.busy_slots();
            let sharers = u64::try_from(busy.len()).unwrap_or(u64::MAX);
            let Some(least) = busy.iter().map(|slot| backlog(slot)).min() else {
                // Nothing to do until then.
                at = if to == u64::MAX { at } else { to };
                break;
            };
            let least = left_to_mark().map_or(least, |left| left.min(least));
            // What is left of a part's nanosecond stays for the next advance_for.
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

    /// Living processes with work. The dead ones' work ends with them.
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
