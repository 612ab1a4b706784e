//! Plain memory: what the driver takes for it, in granules and in slabs of small pieces.

use std::thread;

use crate::container::refused;
use crate::cuda::{CONTEXT, Cuda, GIB, MIB, OUT_OF_MEMORY};
use crate::{call, inside};

const KIB: u64 = 1 << 10;
/// What the driver takes at a time.
const GRANULE: u64 = 2 * MIB;

impl Cuda {
    /// What is counted is what the GPU has in use.
    fn check(&self, step: &str) {
        assert_eq!(self.counted(), self.used(), "{step}");
    }
}

#[test]
fn what_the_driver_takes_for_any_size_is_counted() {
    let cuda = inside!(8 * GIB);
    for bytes in [1, 511, 64 * KIB, MIB - 1, MIB, MIB + 1, MIB + MIB / 10, GRANULE, GRANULE + 1] {
        let all: Vec<u64> = (0..300).map(|_| cuda.allocate(bytes).unwrap()).collect();
        cuda.check(&format!("{bytes}"));
        // Pieces that are left keep their slabs.
        let (kept, freed): (Vec<_>, Vec<_>) =
            all.into_iter().enumerate().partition(|(number, _)| number % 32 == 0);
        for (_, address) in freed {
            assert_eq!(cuda.free(address), 0);
        }
        cuda.check(&format!("some of {bytes}"));
        for (_, address) in kept {
            assert_eq!(cuda.free(address), 0);
        }
        assert_eq!((cuda.counted(), cuda.used()), (0, 0), "{bytes}");
    }
}

#[test]
fn a_share_does_not_get_twice_its_limit_in_odd_sizes() {
    let cuda = inside!(2 * GIB);
    let mut count = 0;
    while cuda.allocate(MIB + 100 * KIB).is_ok() {
        count += 1;
    }
    assert_eq!(count, (2 * GIB - CONTEXT) / GRANULE);
    assert!(cuda.chip_used() <= 2 * GIB);
}

#[test]
fn a_piece_fits_in_a_slab_that_is_there_where_no_slab_fits_any_more() {
    let cuda = inside!(GIB);
    let first = cuda.allocate(512).unwrap();
    while cuda.allocate(GRANULE).is_ok() {}
    let (counted, before) = (cuda.counted(), refused(&cuda.folder));
    assert!(CONTEXT + counted + GRANULE > GIB);
    let second = cuda.allocate(MIB).unwrap();
    assert_eq!((cuda.counted(), refused(&cuda.folder)), (counted, before), "nothing is refused");
    // A new slab would be needed.
    assert_eq!(cuda.allocate(MIB), Err(OUT_OF_MEMORY));
    assert_eq!((cuda.counted(), refused(&cuda.folder)), (counted, before + 1));
    cuda.check("full");
    assert_eq!((cuda.free(first), cuda.free(second)), (0, 0));
    assert_eq!(cuda.counted(), counted - GRANULE);
    cuda.check("freed");
}

#[test]
fn slabs_end_with_their_context() {
    let cuda = inside!(4 * GIB);
    let mut other = 0_usize;
    assert_eq!(call!(cuda, cuCtxCreate_v2(&raw mut other => *mut usize, 0 => u32, 0 => i32)), 0);
    for _ in 0..50 {
        cuda.allocate(100 * KIB).unwrap();
    }
    cuda.check("of another context");
    assert_eq!(call!(cuda, cuCtxDestroy_v2(other => usize)), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn pieces_that_are_freed_in_stream_order_are_counted_until_then() {
    let cuda = inside!(4 * GIB);
    let stream = cuda.stream();
    let all: Vec<u64> = (0..100).map(|_| cuda.allocate(100 * KIB).unwrap()).collect();
    for address in all {
        assert_eq!(cuda.free_async(address, stream), 0);
    }
    assert_eq!(cuda.synchronize(), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn threads_that_allocate_pieces_are_counted_exactly() {
    let cuda = inside!(8 * GIB);
    let mut context = 0_usize;
    assert_eq!(call!(cuda, cuCtxGetCurrent(&raw mut context => *mut usize)), 0);
    thread::scope(|scope| {
        for seed in 0..4_u64 {
            let cuda = &cuda;
            scope.spawn(move || {
                assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
                let (mut random, mut held) = (seed, Vec::new());
                for _ in 0..400 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if random >> 62 == 0 && !held.is_empty() {
                        let index = usize::try_from(random >> 33).unwrap() % held.len();
                        assert_eq!(cuda.free(held.swap_remove(index)), 0);
                    } else {
                        held.push(cuda.allocate(1 + (random >> 33) % (2 * MIB)).unwrap());
                    }
                }
                for address in held {
                    assert_eq!(cuda.free(address), 0);
                }
            });
        }
    });
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn pieces_whose_free_is_pending_are_waited_for() {
    let cuda = inside!(GIB);
    let stream = cuda.stream();
    let mut all = Vec::new();
    while let Ok(address) = cuda.allocate(MIB) {
        all.push(address);
    }
    for address in all {
        assert_eq!(cuda.free_async(address, stream), 0);
    }
    assert!(cuda.allocate(256 * MIB).is_ok());
}
