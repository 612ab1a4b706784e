//! Time. The work of a process is served in order, and processes with work take turns ([`crate::turns`]).
//!
//! A process counts as one context. Time is accounted for lazily: [`Locked::advance`] replays it since the last call. A process
//! that has work adds more without the lock.

use std::cell::RefCell;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use crate::ENDLESS;
use crate::contexts::{SLICE, SWITCH};
use crate::file::{self, LockByte};
use crate::gpu::{Clock, wall_clock};
use crate::lock::Locked;
use crate::process_handle::ProcessHandle;
use crate::turns::{Queues, Running, Turns};

/// Longest sleep of a waiter before it checks again: other processes may come and go.
const MAX_SLEEP: Duration = Duration::from_millis(2);

impl ProcessHandle {
    /// Submits a kernel of `nanos` nanoseconds. Returns a mark for its end, see
    /// [`poll_done`](Self::poll_done).
    pub fn submit(&self, nanos: u64) -> u64 {
        let slot = self.slot();
        if nanos == 0 {
            return slot.submitted.load(Relaxed);
        }
        let mut busy_from = self.busy_from.lock().unwrap_or_else(PoisonError::into_inner);
        let submitted = slot.submitted.load(Relaxed);
        let mark = submitted + nanos;
        let push = || {
            self.queue().push(mark);
            slot.submitted.store(mark, Release);
            mark
        };
        if self.now() < busy_from.wrapping_add(submitted) {
            return push();
        }
        let locked = self.lock();
        let now = self.now();
        locked.advance(now);
        push();
        let served = locked.begin(now, self.slot_index());
        // The earliest end is now plus the work that is left, if no other process had any. Later submissions move it on.
        *busy_from = now.wrapping_sub(slot.done.load(Relaxed) + served);
        mark
    }

    /// The mark of all work submitted so far.
    pub fn submitted(&self) -> u64 {
        self.slot().submitted.load(Acquire)
    }

    /// The mark to wait for before more kernels are submitted; `None` if there is room for them.
    pub fn mark_before_room(&self) -> Option<u64> {
        self.queue().mark_before_room()
    }

    /// Whether the work up to `mark` is known to be done. Reads one number only.
    pub fn is_known_done(&self, mark: u64) -> bool {
        self.slot().done.load(Acquire) >= mark
    }

    /// Whether the work up to `mark` is done. If not, a virtual clock advances by a microsecond, so
    /// that time passes in a polling loop.
    pub fn poll_done(&self, mark: u64) -> bool {
        self.poll_done_in(self.slot_index(), mark)
    }

    pub(crate) fn poll_done_in(&self, slot: usize, mark: u64) -> bool {
        if self.is_done_in(slot, mark) {
            return true;
        }
        let locked = self.lock();
        if self.clock() == Clock::Virtual {
            locked.move_clock(self.now() + 1000);
        }
        locked.advance(self.now());
        drop(locked);
        self.is_done_in(slot, mark)
    }

    fn is_done_in(&self, slot: usize, mark: u64) -> bool {
        self.map().slots[slot].done.load(Acquire) >= mark
    }

    /// Waits until the work up to `mark` is done or `is_cancelled` returns true; it is called every
    /// few milliseconds. Returns whether the work is done.
    pub fn wait(&self, mark: u64, is_cancelled: &mut dyn FnMut() -> bool) -> bool {
        self.wait_in(self.slot_index(), mark, is_cancelled)
    }

    pub(crate) fn wait_in(
        &self,
        slot: usize,
        mark: u64,
        is_cancelled: &mut dyn FnMut() -> bool,
    ) -> bool {
        loop {
            if self.is_done_in(slot, mark) {
                return true;
            }
            let left = self.advance_for(slot, mark);
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
        let is_done = self.is_known_done(mark);
        is_done.then(|| self.queue().time_of(mark).unwrap_or_else(|| self.now()))
    }

    /// Accounts for finished work. Returns how long the work up to `mark` takes at least; zero if
    /// the clock has moved to its end.
    fn advance_for(&self, slot: usize, mark: u64) -> Duration {
        let locked = self.lock();
        let left = || mark.saturating_sub(self.map().slots[slot].done.load(Relaxed));
        match self.clock() {
            Clock::Virtual if left() >= ENDLESS / 2 => MAX_SLEEP,
            Clock::Virtual if locked.advance_to_mark(slot, mark) => Duration::ZERO,
            // The other process has ended.
            Clock::Virtual => MAX_SLEEP,
            Clock::Host => {
                let now = wall_clock();
                locked.advance(now);
                let served = locked.begin(now, slot);
                Duration::from_nanos(left().saturating_sub(served))
            }
        }
    }
}

impl Locked<'_> {
    /// Accounts for all work up to a point in time.
    pub(crate) fn advance(&self, to: u64) {
        let (mut turns, mut queues) = self.turns();
        turns.advance(&mut queues, to);
        self.store(&turns, to);
    }

    /// Moves the virtual clock to the end of a process's work up to `mark`. Returns false if it is not to be reached.
    fn advance_to_mark(&self, slot: usize, mark: u64) -> bool {
        let (mut turns, mut queues) = self.turns();
        let mut at = self.0.map().header.served_until.load(Relaxed);
        while !self.0.is_done_in(slot, mark) {
            let Some(ended) = turns.step(&mut queues) else { break };
            at = ended;
        }
        self.store(&turns, at);
        self.move_clock(at);
        self.0.is_done_in(slot, mark)
    }

    fn move_clock(&self, to: u64) {
        self.0.map().header.now.fetch_max(to, AcqRel);
    }

    /// Begins work if the GPU is idle. Returns for how long the first kernel of a process has run.
    fn begin(&self, now: u64, slot: usize) -> u64 {
        let (turns, queues) = self.turns();
        self.store(&turns, now);
        let own = turns.running.filter(|running| running.context == slot);
        own.map_or(0, |running| {
            let first = queues.first(running.context).unwrap_or(0);
            first.saturating_sub(running.ends.saturating_sub(now))
        })
    }

    /// Lets the next one have its turn, if the running kernel was that of a slot, whose process has died. The slot is clear.
    pub(crate) fn stop(&self, slot: usize) {
        let header = &self.0.map().header;
        if header.running.load(Relaxed) as usize == slot + 1 {
            self.store(&self.turns().0, header.served_until.load(Relaxed));
        }
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

    /// Whose turn it is, as the file has it. The work of a process that has died ends when it is noticed.
    fn turns(&self) -> (Turns, SharedQueues<'_>) {
        let header = &self.0.map().header;
        let used = header.slots_used.load(Acquire) as usize;
        let queues = SharedQueues { process: self.0, lives: RefCell::new(vec![None; used]) };
        let context = (header.running.load(Relaxed) as usize).checked_sub(1);
        let running = context.map(|context| Running {
            context,
            begins: header.begins.load(Relaxed),
            ends: header.ends.load(Relaxed),
            slice_ends: header.slice_ends.load(Relaxed),
        });
        let is_alive = |running: &Running| queues.first(running.context).is_some();
        let mut turns = Turns { slice: SLICE, switch: SWITCH, running: running.filter(is_alive) };
        let at = header.served_until.load(Relaxed);
        match context {
            Some(last) if turns.running.is_none() => turns.begin_next(&queues, last, at),
            _ => turns.begin_any_if_idle(&queues, at),
        }
        (turns, queues)
    }

    fn store(&self, turns: &Turns, until: u64) {
        let header = &self.0.map().header;
        let number = turns.running.map_or(0, |running| running.context + 1);
        header.running.store(u32::try_from(number).unwrap_or(0), Relaxed);
        if let Some(Running { begins, ends, slice_ends, .. }) = turns.running {
            header.begins.store(begins, Relaxed);
            header.ends.store(ends, Relaxed);
            header.slice_ends.store(slice_ends, Relaxed);
        }
        header.served_until.fetch_max(until, Relaxed);
    }
}

/// The queues of living processes, in the file of the GPU.
struct SharedQueues<'a> {
    process: &'a ProcessHandle,
    /// Which processes live, once asked.
    lives: RefCell<Vec<Option<bool>>>,
}

impl SharedQueues<'_> {
    fn lives(&self, slot: usize) -> bool {
        let ask = || {
            slot == self.process.slot_index()
                || (self.process.map().slots[slot].state.load(Acquire) != 0
                    && file::is_held(self.process.file(), LockByte::Slot(slot)))
        };
        *self.lives.borrow_mut()[slot].get_or_insert_with(ask)
    }

    /// Work of the first kernel of a slot.
    fn left(&self, slot: usize) -> Option<u64> {
        let map = self.process.map();
        let mark = map.queues[slot].first()?;
        Some(mark.saturating_sub(map.slots[slot].done.load(Relaxed)).max(1))
    }
}

impl Queues for SharedQueues<'_> {
    fn count(&self) -> usize {
        self.lives.borrow().len()
    }

    /// A kernel that never ends is served by slices, so that other processes go on, as on GPUs that can interrupt one.
    fn first(&self, context: usize) -> Option<u64> {
        let left = self.left(context).filter(|_| self.lives(context))?;
        Some(if left >= ENDLESS / 2 { SLICE } else { left })
    }

    fn end_first(&mut self, context: usize, at: u64) {
        if self.left(context).is_none_or(|left| left >= ENDLESS / 2) {
            return;
        }
        let (queue, slot) =
            (&self.process.map().queues[context], &self.process.map().slots[context]);
        if let Some(mark) = queue.first() {
            queue.end_first(at);
            slot.done.store(mark, Release);
        }
    }

    fn serve(&mut self, context: usize, nanos: u64) {
        let map = self.process.map();
        map.slots[context].served.fetch_add(nanos, Relaxed);
        map.header.busy.fetch_add(nanos, Relaxed);
    }
}
