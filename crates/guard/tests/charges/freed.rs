//! Plain memory freed in stream order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cuda::{Cuda, GIB, OUT_OF_MEMORY};
use crate::{call, inside};

/// A host function that blocks its stream until a flag is set.
extern "C" fn holds(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

impl Cuda {
    /// A stream that is blocked until the flag is set.
    fn held_stream(&self, flag: &'static AtomicBool) -> usize {
        let stream = self.stream();
        let code = call!(self, cuLaunchHostFunc(
            stream => usize, holds => extern "C" fn(&AtomicBool), flag => &AtomicBool));
        assert_eq!(code, 0);
        stream
    }
}

/// Waits for a condition, with a deadline.
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn async_free_does_not_wait_and_counts_until_the_stream_reaches_it() {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    let cuda = inside!(4 * GIB);
    let stream = cuda.held_stream(&GOES_ON);
    let address = cuda.allocate(GIB).unwrap();
    let mut context = 0_usize;
    assert_eq!(call!(cuda, cuCtxGetCurrent(&raw mut context => *mut usize)), 0);
    let is_freed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
            assert_eq!(cuda.free_async(address, stream), 0);
            is_freed.store(true, Ordering::Release);
        });
        let is_without_a_wait = eventually(|| is_freed.load(Ordering::Acquire));
        let counted = cuda.counted();
        GOES_ON.store(true, Ordering::Release);
        assert!(is_without_a_wait);
        assert_eq!(counted, GIB);
    });
    assert!(eventually(|| cuda.counted() == 0));
}

#[test]
fn an_allocation_waits_for_pending_frees() {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    let cuda = inside!(4 * GIB);
    let stream = cuda.held_stream(&GOES_ON);
    let address = cuda.allocate(3 * GIB).unwrap();
    assert_eq!(cuda.free_async(address, stream), 0);
    // The wait is limited.
    assert_eq!(cuda.allocate(3 * GIB), Err(OUT_OF_MEMORY));
    GOES_ON.store(true, Ordering::Release);
    assert!(cuda.allocate(3 * GIB).is_ok());
}

#[test]
fn a_context_end_releases_pending_frees_once() {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    let cuda = inside!(4 * GIB);
    let mut context = 0_usize;
    let code = call!(cuda, cuCtxCreate_v2(&raw mut context => *mut usize, 0 => u32, 0 => i32));
    assert_eq!(code, 0);
    let stream = cuda.held_stream(&GOES_ON);
    let address = cuda.allocate(GIB).unwrap();
    assert_eq!(cuda.free_async(address, stream), 0);
    GOES_ON.store(true, Ordering::Release);
    assert_eq!(call!(cuda, cuCtxDestroy_v2(context => usize)), 0);
    assert!(eventually(|| cuda.counted() == 0));
    assert_eq!(cuda.used(), 0);
}
