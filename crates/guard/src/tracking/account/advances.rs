//! Advances: charges for what the driver may take in a call, most of which it does not take.
//!
//! An advance must not refuse another thread what fits without it. A thread may be refused while calls with an advance are under way.
//! Then it waits for their end and tries again, and calls that begin meanwhile wait for it. Both wait for a limited time: a call of the
//! driver may take long, and wait for the program.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::cuda::Status;
use crate::platform::sys::futex::{self, WaitScope};

/// Maximum number of waits of a millisecond.
const MAX_WAITS: u32 = 20;

/// Calls with an advance. Zero bytes are none.
#[derive(Debug)]
pub(crate) struct Advances {
    begun: AtomicU32,
    ended: AtomicU32,
    /// Threads that wait for the end of all.
    waiting: AtomicU32,
}

/// A call with an advance, from before the charge to after its release.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    advances: &'a Advances,
    /// Calls that had ended before it began.
    ended: u32,
}

impl Advances {
    /// Begins a call with an advance.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        for _ in 0..MAX_WAITS {
            let waiting = self.waiting.load(Ordering::SeqCst);
            if waiting == 0 {
                break;
            }
            futex::wait(&self.waiting, waiting, 1, WaitScope::Process);
        }
        self.begin_now()
    }

    /// Begins a call whose advance is charged already.
    pub(crate) fn begin_now(&self) -> UnderWay<'_> {
        let ended = self.ended.load(Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        UnderWay { advances: self, ended }
    }

    /// Tries to charge something, and once more without advances if some may have been in the way.
    pub(crate) fn retry<T>(&self, attempt: impl Fn() -> Result<T, Status>) -> Result<T, Status> {
        let ended = self.ended.load(Ordering::SeqCst);
        let result = attempt();
        let had_none = self.begun.load(Ordering::SeqCst) == ended;
        if had_none || !matches!(result, Err(Status::OUT_OF_MEMORY)) {
            return result;
        }
        self.retry_without(attempt)
    }

    #[cold]
    fn retry_without<T>(&self, attempt: impl Fn() -> Result<T, Status>) -> Result<T, Status> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        for _ in 0..MAX_WAITS {
            let ended = self.ended.load(Ordering::SeqCst);
            if self.begun.load(Ordering::SeqCst) == ended {
                break;
            }
            futex::wait(&self.ended, ended, 1, WaitScope::Process);
        }
        let result = attempt();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        futex::wake(&self.waiting, u32::MAX >> 1);
        result
    }
}

impl UnderWay<'_> {
    /// Ends it, without an advance. Returns whether no other was under way meanwhile.
    pub(crate) fn was_alone(self) -> bool {
        let (advances, ended) = (self.advances, self.ended);
        drop(self);
        advances.begun.load(Ordering::SeqCst) == ended.wrapping_add(1)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let advances = self.advances;
        advances.ended.fetch_add(1, Ordering::SeqCst);
        if advances.waiting.load(Ordering::SeqCst) > 0 {
            futex::wake(&advances.ended, u32::MAX >> 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    fn none() -> Advances {
        let zero = || AtomicU32::new(0);
        Advances { begun: zero(), ended: zero(), waiting: zero() }
    }

    #[test]
    fn what_was_refused_beside_an_advance_is_tried_again_after_it() {
        let (advances, is_charged) = (none(), AtomicBool::new(true));
        let attempt = || {
            let is_full = is_charged.load(Ordering::SeqCst);
            if is_full { Err(Status::OUT_OF_MEMORY) } else { Ok(()) }
        };
        assert_eq!(advances.retry(attempt), Err(Status::OUT_OF_MEMORY), "without an advance");
        let under_way = advances.begin();
        thread::scope(|scope| {
            let refused = scope.spawn(|| advances.retry(attempt));
            while advances.waiting.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            is_charged.store(false, Ordering::SeqCst);
            drop(under_way);
            assert_eq!(refused.join().expect("no panic"), Ok(()));
        });
        // One that ended between the attempt and the check.
        let _other = advances.begin();
        assert_eq!(advances.retry(attempt), Ok(()));
    }

    #[test]
    fn a_call_knows_whether_it_was_alone() {
        let advances = none();
        assert!(advances.begin().was_alone());
        let (first, second) = (advances.begin(), advances.begin());
        assert!(!second.was_alone());
        assert!(!first.was_alone(), "the other has ended before it");
        assert!(advances.begin().was_alone());
    }

    #[test]
    fn no_wait_is_for_ever() {
        let advances = none();
        let _under_way = advances.begin();
        let refuse = || Err::<(), _>(Status::OUT_OF_MEMORY);
        assert_eq!(advances.retry(refuse), Err(Status::OUT_OF_MEMORY));
        advances.waiting.fetch_add(1, Ordering::SeqCst);
        drop(advances.begin());
    }
}
