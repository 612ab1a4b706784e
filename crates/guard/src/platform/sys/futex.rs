//! Waiting for a word to change.

use core::sync::atomic::AtomicU32;

use super::{call, number};

const WAIT: usize = 0;
const WAKE: usize = 1;
/// Only between threads of one process.
const PRIVATE: usize = 128;

/// Scope of the waiting threads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitScope {
    /// Threads of this process.
    Process,
    /// All that map the word.
    Machine,
}

impl WaitScope {
    fn flag(self) -> usize {
        match self {
            Self::Process => PRIVATE,
            Self::Machine => 0,
        }
    }
}

/// Waits while the word has a value, for a limited time. May wake spuriously.
pub(crate) fn wait(word: &AtomicU32, value: u32, milliseconds: u32, scope: WaitScope) {
    wait_microseconds(word, value, u64::from(milliseconds) * 1000, scope);
}

fn wait_microseconds(word: &AtomicU32, value: u32, microseconds: u64, scope: WaitScope) {
    let time = [microseconds / 1_000_000, microseconds % 1_000_000 * 1000];
    let place = time.as_ptr() as usize;
    let arguments = [word.as_ptr() as usize, WAIT | scope.flag(), value as usize, place, 0, 0];
    // The caller checks the word again in any case.
    let _ = call(number::FUTEX, arguments);
}

/// Wakes up to `count` waiters.
pub(crate) fn wake(word: &AtomicU32, count: u32) {
    let arguments = [word.as_ptr() as usize, WAKE | PRIVATE, count as usize, 0, 0, 0];
    let _ = call(number::FUTEX, arguments);
}

/// Wakes all waiters, of all processes that map the word.
pub(crate) fn wake_all(word: &AtomicU32) {
    let arguments = [word.as_ptr() as usize, WAKE, i32::MAX as usize, 0, 0, 0];
    let _ = call(number::FUTEX, arguments);
}

/// Sleeps.
pub(crate) fn sleep_milliseconds(milliseconds: u32) {
    sleep_microseconds(u64::from(milliseconds) * 1000);
}

/// Sleeps for a short time.
pub(crate) fn sleep_microseconds(microseconds: u64) {
    let word = AtomicU32::new(0);
    wait_microseconds(&word, 0, microseconds, WaitScope::Process);
}
