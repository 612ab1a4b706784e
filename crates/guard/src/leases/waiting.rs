//! A thread that waits for a lease, or for room under its cap. Each wait has a bound.

use core::sync::atomic::Ordering;

use octavo_guard_abi::lease_page::{LeasePage, LeaseWord};

use super::doorbell::Doorbell;
use crate::platform::sys::futex::{self, WaitScope};
use crate::platform::sys::task;

/// Longest sleep of a waiting thread before it looks at the page again, in milliseconds.
const MAX_SLEEP_MS: u32 = 20;

/// How long the first thread waits for a lease at least, although the page says that none is needed. An agent that has just
/// woken moves that time on.
const MIN_WAIT_MS: u64 = 1_000;

/// Sleep of a thread that waits for room, in microseconds. The GPU wakes no thread when it reaches a mark.
const ROOM_SLEEP_US: u64 = 50;

/// Looks at the marks before the first sleep.
const ROOM_SPINS: u32 = 200;

/// Looks at the marks, about 100 milliseconds, after which a thread goes on without room.
const MAX_ROOM_LOOKS: u32 = ROOM_SPINS + 1_000;

/// A thread that waits, counted on its page.
pub(super) struct Waiting {
    pub(super) page: &'static LeasePage,
    since_ms: u64,
    /// Looks for room.
    looks: u32,
    is_counted: bool,
}

impl Waiting {
    pub(super) fn begin(page: &'static LeasePage) -> Self {
        Self { page, since_ms: task::milliseconds(), looks: 0, is_counted: false }
    }

    /// Counts the thread as one that waits. Returns whether it is the first.
    fn count(&mut self) -> bool {
        if self.is_counted {
            return false;
        }
        self.is_counted = true;
        self.page.waiting.fetch_add(1, Ordering::SeqCst) == 0
    }

    /// Whether the thread has waited for longer than the page says that the agent may take.
    pub(super) fn is_over(&self, opens_at_ms: u64) -> bool {
        let now = task::milliseconds();
        self.is_counted && now >= opens_at_ms && now.saturating_sub(self.since_ms) >= MIN_WAIT_MS
    }

    /// Waits for another lease.
    pub(super) fn for_change(&mut self, doorbell: &Doorbell, word: LeaseWord) {
        if self.count() {
            doorbell.ring();
        }
        futex::wait(&self.page.lease, word.0, MAX_SLEEP_MS, WaitScope::Machine);
    }

    /// Waits for the process's memory to be back on the GPU, while the word is that of a suspended page.
    pub(super) fn for_memory(&mut self, doorbell: &Doorbell, suspended: u32) {
        if self.count() {
            doorbell.ring();
        }
        futex::wait(&self.page.suspended, suspended, MAX_SLEEP_MS, WaitScope::Machine);
    }

    /// Waits for the GPU to reach a mark.
    pub(super) fn for_room(&mut self) {
        self.looks += 1;
        if self.looks < ROOM_SPINS {
            core::hint::spin_loop();
            return;
        }
        self.count();
        futex::sleep_microseconds(ROOM_SLEEP_US);
    }

    /// Whether the thread has waited for room for long enough. What is in flight may need its launch to end: a kernel that
    /// waits for another one, or a stream that this thread opens later.
    pub(super) fn has_waited_for_room(&self) -> bool {
        self.looks >= MAX_ROOM_LOOKS
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_counted {
            self.page.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
