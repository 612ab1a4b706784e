//! How many calls of the driver the guard adds to a call of a program.

use crate::cuda::{Cuda, FIRST_GPU, GIB, MIB, ok};
use crate::{call, inside};

impl Cuda {
    /// Calls of the driver by this thread so far.
    fn calls(&self) -> u64 {
        let calls: libloading::Symbol<'_, unsafe extern "C" fn() -> u64> =
            self.function("octavoCalls\0");
        unsafe { calls() }
    }

    /// Calls of the driver that the guard adds to one call.
    fn added<T>(&self, one_call: impl FnOnce() -> T) -> (u64, T) {
        let before = self.calls();
        let result = one_call();
        (self.calls() - before - 1, result)
    }
}

#[test]
fn stream_ordered_memory_costs_at_most_two_more_calls() {
    let cuda = inside!(4 * GIB);
    let own = cuda.pool(FIRST_GPU).unwrap();
    for pool in [None, Some(own)] {
        for stream in [0, cuda.stream()] {
            let first = cuda.allocate_async(MIB, pool, stream).unwrap();
            for _ in 0..10 {
                let (taken, address) = cuda.added(|| cuda.allocate_async(MIB, pool, stream));
                let (freed, code) = cuda.added(|| cuda.free_async(address.unwrap(), stream));
                assert_eq!(code, 0);
                assert!(taken + freed <= 2, "{taken} and {freed}, pool {pool:?}, stream {stream}");
            }
            assert_eq!(cuda.free_async(first, stream), 0);
        }
    }
}

#[test]
fn captures_cost_more_calls_only_while_they_last() {
    let cuda = inside!(4 * GIB);
    let stream = cuda.stream();
    let first = cuda.allocate_async(MIB, None, stream).unwrap();
    let (idle, second) = cuda.added(|| cuda.allocate_async(MIB, None, stream));
    for _ in 0..3 {
        assert_eq!(call!(cuda, cuStreamBeginCapture_v2(stream => usize, 2 => u32)), 0);
        let address = cuda.allocate_async(MIB, None, stream).unwrap();
        assert_eq!(cuda.free_async(address, stream), 0);
        // A capture is not under way twice.
        assert_ne!(call!(cuda, cuStreamBeginCapture_v2(stream => usize, 2 => u32)), 0);
        let mut graph = 0_usize;
        let code = call!(cuda, cuStreamEndCapture(stream => usize, &raw mut graph => *mut usize));
        assert_ne!(ok(code, graph).unwrap(), 0);
        assert_ne!(
            call!(cuda, cuStreamEndCapture(stream => usize, &raw mut graph => *mut usize)),
            0
        );
    }
    let (again, third) = cuda.added(|| cuda.allocate_async(MIB, None, stream));
    assert_eq!(again, idle);
    for address in [first, second.unwrap(), third.unwrap()] {
        assert_eq!(cuda.free_async(address, stream), 0);
    }
    assert_eq!(cuda.synchronize(), 0);
    cuda.info();
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}
