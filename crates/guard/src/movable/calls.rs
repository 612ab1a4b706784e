//! Threads in functions of the driver. Memory moves while none is there, and while it is away none gets there.
//!
//! A thread counts itself first and looks whether memory is away then. The thread that moves memory closes first and looks at the
//! count then. So at least one of them sees the other.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::platform::sys::futex::{self, WaitScope};
use crate::platform::sys::task;
use crate::process::{self, Process};

/// Calls go on: all memory is on the GPU.
const OPEN: u32 = 0;
/// Memory is about to move: calls and work are awaited.
const CLOSING: u32 = 1;
/// No call goes on: memory moves, or is on the host.
const CLOSED: u32 = 2;

/// How long calls, and then work, may take to end before memory moves, in milliseconds.
pub(super) const END_MS: u64 = 5_000;

/// How long a thread waits for memory that is about to move, in milliseconds. Work of the GPU may wait for a call of this thread, and
/// a driver that has no events of contexts does not say so.
const GIVE_UP_MS: u64 = 10_000;

/// Longest sleep of a waiting thread, in milliseconds.
const MAX_SLEEP_MS: u32 = 20;

/// Sleep of the thread that awaits the end of calls, in microseconds.
const SLEEP_US: u64 = 200;

/// Whether calls are counted: any share of this process wants its memory to be movable.
static ARE_COUNTED: AtomicBool = AtomicBool::new(false);

/// Counts calls from now on, or no more.
pub(super) fn count(are_counted: bool) {
    ARE_COUNTED.store(are_counted, Ordering::Relaxed);
}

/// Whether calls are counted.
#[inline]
pub(super) fn are_counted() -> bool {
    ARE_COUNTED.load(Ordering::Relaxed)
}

/// The calls of a process. Zero bytes are none, with all memory on the GPU.
#[derive(Debug)]
pub(super) struct Calls {
    entered: AtomicU32,
    /// One of the values above.
    phase: AtomicU32,
}

/// A thread in a function of the driver, until drop.
#[derive(Debug)]
pub(crate) struct Entered(&'static Calls);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.entered.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits while memory is away, and counts this thread as one in the driver. `None` where that does not matter.
#[inline]
pub(crate) fn enter() -> Option<Entered> {
    if are_counted() { enter_counted() } else { None }
}

#[inline(never)]
fn enter_counted() -> Option<Entered> {
    let process = process::get().ok()?;
    let calls = &process.movable.calls;
    let mut since = None;
    loop {
        calls.entered.fetch_add(1, Ordering::SeqCst);
        let entered = Entered(calls);
        let phase = calls.phase.load(Ordering::SeqCst);
        if phase == OPEN {
            return Some(entered);
        }
        drop(entered);
        let began = *since.get_or_insert_with(task::milliseconds);
        calls.wait(process, phase, began);
    }
}

impl Calls {
    fn wait(&self, process: &Process, phase: u32, since: u64) {
        if phase == CLOSED {
            // It shows the agent that this thread wants to go on.
            for share in process.shares.all() {
                share.leases.wait_while_suspended();
            }
        } else if task::milliseconds().saturating_sub(since) >= GIVE_UP_MS {
            let _ = self.phase.compare_exchange(CLOSING, OPEN, Ordering::SeqCst, Ordering::Relaxed);
        }
        futex::wait(&self.phase, phase, MAX_SLEEP_MS, WaitScope::Process);
    }

    /// Lets no thread into the driver any more, and waits until none is there. Returns whether that is so. Memory of another share may
    /// be away already.
    pub(super) fn close(&self) -> bool {
        if self.phase.load(Ordering::SeqCst) == CLOSED {
            return true;
        }
        self.phase.store(CLOSING, Ordering::SeqCst);
        let since = task::milliseconds();
        // One that only looks counts itself for a moment.
        while self.entered.load(Ordering::SeqCst) > 0 {
            if task::milliseconds().saturating_sub(since) >= END_MS {
                self.open();
                return false;
            }
            futex::sleep_microseconds(SLEEP_US);
        }
        true
    }

    /// Keeps it closed for as long as memory is away. Returns whether no thread has given up waiting meanwhile.
    pub(super) fn stay_closed(&self) -> bool {
        let kept = self.phase.compare_exchange(CLOSING, CLOSED, Ordering::SeqCst, Ordering::SeqCst);
        kept.is_ok() || kept == Err(CLOSED)
    }

    /// Lets threads into the driver again.
    pub(super) fn open(&self) {
        if self.phase.swap(OPEN, Ordering::SeqCst) == OPEN {
            return;
        }
        futex::wake(&self.phase, u32::MAX >> 1);
    }

    /// Waits for a moment, while an allocation is being moved.
    pub(super) fn pause() {
        futex::sleep_milliseconds(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> Calls {
        Calls { entered: AtomicU32::new(0), phase: AtomicU32::new(OPEN) }
    }

    #[test]
    fn it_closes_once_no_thread_is_there() {
        let calls = calls();
        assert!(calls.close() && calls.stay_closed());
        assert!(calls.close() && calls.stay_closed(), "memory of another share");
        calls.open();
        assert_eq!(calls.phase.load(Ordering::SeqCst), OPEN);
    }

    #[test]
    fn a_thread_that_gives_up_keeps_it_open() {
        let calls = calls();
        assert!(calls.close());
        // As a thread does that has waited for too long.
        calls.open();
        assert!(!calls.stay_closed());
    }
}
