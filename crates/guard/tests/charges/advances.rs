//! Charges for what the driver may take in a call refuse other threads nothing that fits.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::cuda::{CONTEXT, Cuda, GIB, MIB};
use crate::freed::eventually;
use crate::{call, inside};

/// Number of threads beside the one that is watched.
const THREADS: usize = 4;

/// What they do until it ends.
const TURNS: u32 = 400;

impl Cuda {
    /// Refusals of an allocation that fits exactly, while other threads repeat something.
    fn refusals_beside(&self, bytes: u64, repeat: impl Fn() + Sync) -> u32 {
        let (is_over, turns) = (AtomicBool::new(false), AtomicU32::new(0));
        let (mut context, mut refused) = (0_usize, 0);
        assert_eq!(call!(self, cuCtxGetCurrent(&raw mut context => *mut usize)), 0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    assert_eq!(call!(self, cuCtxSetCurrent(context => usize)), 0);
                    // As on a GPU, and longer than a charge is tried.
                    let delay: libloading::Symbol<'_, unsafe extern "C" fn(u32)> =
                        self.function("octavoDelay\0");
                    unsafe { delay(500) };
                    while !is_over.load(Ordering::Relaxed) {
                        repeat();
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let is_done = eventually(|| {
                match self.allocate(bytes) {
                    Ok(address) => assert_eq!(self.free(address), 0),
                    Err(_) => refused += 1,
                }
                turns.load(Ordering::Relaxed) >= TURNS
            });
            is_over.store(true, Ordering::Relaxed);
            assert!(is_done);
        });
        refused
    }
}

#[test]
fn pieces_of_slabs_refuse_other_threads_nothing() {
    const SLAB: u64 = 2 * MIB;
    let cuda = inside!(GIB);
    // The slab is there all the time.
    cuda.allocate(512).unwrap();
    let refused = cuda.refusals_beside(GIB - CONTEXT - SLAB, || {
        assert_eq!(cuda.allocate(512).map(|address| cuda.free(address)), Ok(0));
    });
    assert_eq!(refused, 0);
    assert_eq!((cuda.counted(), cuda.used()), (SLAB, SLAB));
}

#[test]
fn what_fits_into_a_pool_refuses_other_threads_nothing() {
    const POOL: u64 = 32 * MIB;
    let cuda = inside!(GIB);
    // The pool is there all the time.
    let first = cuda.allocate_async(512, None, 0).unwrap();
    let refused = cuda.refusals_beside(GIB - CONTEXT - POOL, || {
        let address = cuda.allocate_async(MIB, None, 0);
        assert_eq!(address.map(|address| cuda.free_async(address, 0)), Ok(0));
    });
    assert_eq!(refused, 0);
    assert_eq!((cuda.counted(), cuda.used()), (POOL, POOL));
    assert_eq!(cuda.free_async(first, 0), 0);
}
