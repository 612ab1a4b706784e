//! Locks of one word, free when the word is zero, so that zeroed memory holds free locks.
//!
//! None is held during a call to the driver: the driver may call back into the program.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::platform::sys::futex::{self, WaitScope};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const CONTENDED: u32 = 2;

/// Sleep of a waiter before it checks again, in milliseconds: a bound on a lost wake-up.
const MAX_SLEEP_MS: u32 = 1000;

/// A value that one thread at a time may use.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// JUSTIFICATION: the cell is what makes this a lock.
// SAFETY: the word admits one thread at a time to the value.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Locks it; blocks while another thread holds it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        if self.word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        MutexGuard(self)
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..100 {
            if self.word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            core::hint::spin_loop();
        }
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            futex::wait(&self.word, CONTENDED, MAX_SLEEP_MS, WaitScope::Process);
        }
    }
}

/// The value of a [`Mutex`], locked until drop.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T>(&'a Mutex<T>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // JUSTIFICATION: the cell is what makes this a lock.
        // SAFETY: this thread holds the lock while the guard lives.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // JUSTIFICATION: the cell is what makes this a lock.
        // SAFETY: this thread holds the lock while the guard lives; the guard itself is borrowed
        // mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.0.word.swap(FREE, Ordering::Release) == CONTENDED {
            futex::wake(&self.0.word, 1);
        }
    }
}

const NOT_DONE: u32 = 0;
const RUNNING: u32 = 1;
const DONE: u32 = 2;

/// Work that is done once.
#[derive(Debug)]
pub(crate) struct Once(AtomicU32);

impl Once {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(NOT_DONE))
    }

    /// Whether it is done.
    pub(crate) fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire) == DONE
    }

    /// Runs `work`, or waits until another thread has. `work` returns whether it is done for good;
    /// if not, the next call retries. `work` must not call `run` again.
    pub(crate) fn run(&self, work: impl FnOnce() -> bool) {
        loop {
            match self.0.compare_exchange(NOT_DONE, RUNNING, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    let end = if work() { DONE } else { NOT_DONE };
                    self.0.store(end, Ordering::Release);
                    futex::wake(&self.0, u32::MAX >> 1);
                    return;
                }
                Err(DONE) => return,
                Err(_) => futex::wait(&self.0, RUNNING, MAX_SLEEP_MS, WaitScope::Process),
            }
        }
    }

    /// Forgets the thread that was running it: after a fork only the forking thread exists.
    pub(crate) fn abandon(&self) {
        let _ = self.0.compare_exchange(RUNNING, NOT_DONE, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Makes it run again if it is done.
    pub(crate) fn reset(&self) {
        let _ = self.0.compare_exchange(DONE, NOT_DONE, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// A list that only grows, up to `N` elements; empty in zeroed memory.
#[derive(Debug)]
pub(crate) struct AppendList<T, const N: usize> {
    length: AtomicUsize,
    values: UnsafeCell<[MaybeUninit<T>; N]>,
}

// JUSTIFICATION: the cell is what makes this shared.
// SAFETY: elements below `length` are written before they are counted, and never again. The others
// are written under the contract of `push`.
unsafe impl<T: Send + Sync, const N: usize> Sync for AppendList<T, N> {}

impl<T, const N: usize> AppendList<T, N> {
    /// Its elements.
    pub(crate) fn values(&self) -> &[T] {
        let length = self.length.load(Ordering::Acquire);
        // JUSTIFICATION: only a part of the array is filled.
        // SAFETY: the first `length` elements are written, and do not change any more.
        unsafe { core::slice::from_raw_parts(self.values.get().cast(), length) }
    }

    /// Adds an element; returns it if the list is full.
    ///
    /// # Safety
    ///
    /// Only one thread at a time may add.
    pub(crate) unsafe fn push(&self, value: T) -> Result<(), T> {
        let length = self.length.load(Ordering::Relaxed);
        if length == N {
            return Err(value);
        }
        let place = self.values.get().cast::<T>().wrapping_add(length);
        // JUSTIFICATION: the element is not a value yet.
        // SAFETY: it lies within the array, is not read before it is counted, and no other thread
        // adds.
        unsafe { place.write(value) };
        self.length.store(length + 1, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns() {
        let sum = Mutex::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *sum.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*sum.lock(), 40_000);
    }

    #[test]
    fn what_is_done_once_is_tried_until_it_succeeds() {
        let once = Once::new();
        let mut runs = 0;
        for _ in 0..4 {
            once.run(|| {
                runs += 1;
                runs == 2
            });
        }
        assert_eq!(runs, 2);
        assert!(once.is_done());
    }
}
