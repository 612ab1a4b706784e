//! Stream-ordered memory.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cuda::{Cuda, FIRST_GPU, GIB, HOST, MIB, OUT_OF_MEMORY, Prop, ok};
use crate::{call, inside};

/// Minimum bytes that a pool of the simulated driver reserves at once.
const PIECE: u64 = 32 * MIB;

impl Cuda {
    fn reserved(&self, pool: usize) -> u64 {
        let mut value = 0;
        let code = call!(self, cuMemPoolGetAttribute(
            pool => usize, 5 => u32, &raw mut value => *mut u64));
        ok(code, value).unwrap()
    }
}

#[test]
fn what_the_pool_takes_is_counted_and_not_what_is_asked_for() {
    let cuda = inside!(4 * GIB);
    let address = cuda.allocate_async(512, None, 0).unwrap();
    assert_eq!((cuda.counted(), cuda.used()), (PIECE, PIECE));
    let more: Vec<u64> = (0..10).map(|_| cuda.allocate_async(MIB, None, 0).unwrap()).collect();
    assert_eq!((cuda.counted(), cuda.used()), (PIECE, PIECE));
    for address in more.into_iter().chain([address]) {
        assert_eq!(cuda.free_async(address, 0), 0);
    }
    // The pool still has it.
    assert_eq!((cuda.counted(), cuda.used()), (PIECE, PIECE));
    assert_eq!(cuda.synchronize(), 0);
    // Programs see it as free.
    assert_eq!(cuda.info().0, 4 * GIB - crate::cuda::CONTEXT);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn allocations_are_admitted_up_to_the_limit() {
    let cuda = inside!(2 * GIB);
    assert_eq!(cuda.allocate_async(2 * GIB, None, 0), Err(OUT_OF_MEMORY));
    let mut held = Vec::new();
    while let Ok(address) = cuda.allocate_async(100 * MIB, None, 0) {
        held.push(address);
        assert!(cuda.used() <= 2 * GIB - crate::cuda::CONTEXT);
        assert!(held.len() < 100);
    }
    assert_eq!(held.len(), 17);
    assert_eq!(cuda.counted(), cuda.used());
    assert_eq!(cuda.allocate(100 * MIB), Err(OUT_OF_MEMORY));
}

#[test]
fn memory_of_a_pool_of_ones_own_is_counted() {
    let cuda = inside!(2 * GIB);
    let pool = cuda.pool(FIRST_GPU).unwrap();
    assert_eq!(cuda.allocate_async(2 * GIB, Some(pool), 0), Err(OUT_OF_MEMORY));
    let address = cuda.allocate_async(GIB, Some(pool), 0).unwrap();
    assert_eq!((cuda.counted(), cuda.used()), (GIB, GIB));
    assert_eq!(cuda.allocate_async(GIB, Some(pool), 0), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.allocate_async(GIB, None, 0), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.free_async(address, 0), 0);
    assert_eq!(call!(cuda, cuMemPoolDestroy(pool => usize)), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn the_pool_that_a_gpu_is_given_is_the_one_that_is_counted() {
    let cuda = inside!(2 * GIB);
    let pool = cuda.pool(FIRST_GPU).unwrap();
    assert_eq!(call!(cuda, cuDeviceSetMemPool(0 => i32, pool => usize)), 0);
    let address = cuda.allocate_async(GIB, None, 0).unwrap();
    assert_eq!(cuda.reserved(pool), GIB);
    assert_eq!(cuda.counted(), GIB);
    // Also by the newer API.
    let (mut current, place) = (0_usize, FIRST_GPU);
    let code = call!(cuda, cuMemGetMemPool(
        &raw mut current => *mut usize, &raw const place => *const crate::cuda::Location, 1 => u32));
    assert_eq!((code, current), (0, pool));
    assert_eq!(cuda.free(address), 0);
    assert_eq!(cuda.trim(pool), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn what_a_pool_keeps_stays_counted() {
    let cuda = inside!(2 * GIB);
    let pool = cuda.pool(FIRST_GPU).unwrap();
    cuda.keep_all(pool);
    let address = cuda.allocate_async(GIB, Some(pool), 0).unwrap();
    assert_eq!(cuda.free_async(address, 0), 0);
    assert_eq!(cuda.synchronize(), 0);
    cuda.info();
    assert_eq!((cuda.counted(), cuda.used()), (GIB, GIB));
    assert_eq!(cuda.trim(pool), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn idle_pool_memory_is_trimmed_before_a_refusal() {
    let cuda = inside!(2 * GIB);
    let pools = [cuda.pool(FIRST_GPU).unwrap(), cuda.default_pool()];
    for pool in pools {
        cuda.keep_all(pool);
        let address = cuda.allocate_async(800 * MIB, Some(pool), 0).unwrap();
        assert_eq!(cuda.free_async(address, 0), 0);
    }
    assert_eq!(cuda.counted(), 1600 * MIB);
    let address = cuda.allocate(GIB).unwrap();
    assert_eq!(cuda.counted(), cuda.used());
    assert!(cuda.counted() <= 2 * GIB - crate::cuda::CONTEXT);
    assert_eq!(cuda.free(address), 0);
    let handle = cuda.create(1600 * MIB, FIRST_GPU).unwrap();
    assert_eq!((cuda.counted(), cuda.used()), (1600 * MIB, 1600 * MIB));
    assert_eq!(cuda.release(handle), 0);
}

#[test]
fn what_fits_into_a_pool_is_not_refused_at_the_limit() {
    let cuda = inside!(2 * GIB);
    let pool = cuda.default_pool();
    cuda.keep_all(pool);
    // One piece of the 1,748 MiB beside the context, which cannot be freed while a little of it is
    // in use.
    let whole = cuda.allocate_async(1500 * MIB, None, 0).unwrap();
    assert_eq!(cuda.free_async(whole, 0), 0);
    let little = cuda.allocate_async(100 * MIB, None, 0).unwrap();
    assert_eq!((cuda.counted(), cuda.used()), (1500 * MIB, 1500 * MIB));
    let much = cuda.allocate_async(1200 * MIB, None, 0).unwrap();
    assert_eq!((cuda.counted(), cuda.used()), (1500 * MIB, 1500 * MIB));
    assert_eq!(cuda.allocate_async(300 * MIB, None, 0), Err(OUT_OF_MEMORY));
    for address in [little, much] {
        assert_eq!(cuda.free_async(address, 0), 0);
    }
}

#[test]
fn what_only_seems_to_fit_into_a_pool_is_undone() {
    let cuda = inside!(2 * GIB);
    let pool = cuda.default_pool();
    cuda.keep_all(pool);
    let whole = cuda.allocate_async(1500 * MIB, None, 0).unwrap();
    assert_eq!(cuda.free_async(whole, 0), 0);
    // Every other 100 MiB is in use: there is enough idle memory, but not in one piece.
    let parts: Vec<u64> =
        (0..15).map(|_| cuda.allocate_async(100 * MIB, None, 0).unwrap()).collect();
    for address in parts.iter().step_by(2) {
        assert_eq!(cuda.free_async(*address, 0), 0);
    }
    assert_eq!((cuda.counted(), cuda.used()), (1500 * MIB, 1500 * MIB));
    assert_eq!(cuda.allocate_async(300 * MIB, None, 0), Err(OUT_OF_MEMORY));
    assert_eq!((cuda.counted(), cuda.used()), (1500 * MIB, 1500 * MIB));
    assert!(cuda.allocate_async(100 * MIB, None, 0).is_ok());
}

#[test]
fn a_pool_that_grows_by_more_than_there_is_does_not_grow() {
    let cuda = inside!(340 * MIB);
    // 40 MiB beside the context: one piece, but no second one.
    let address = cuda.allocate_async(20 * MIB, None, 0).unwrap();
    assert_eq!(cuda.allocate_async(20 * MIB, None, 0), Err(OUT_OF_MEMORY));
    assert_eq!((cuda.counted(), cuda.used()), (PIECE, PIECE));
    assert_eq!(cuda.free_async(address, 0), 0);
}

#[test]
fn memory_outlives_its_pool_and_stays_counted() {
    let cuda = inside!(2 * GIB);
    let pool = cuda.pool(FIRST_GPU).unwrap();
    cuda.keep_all(pool);
    let addresses = [0; 3].map(|_: u8| cuda.allocate_async(500 * MIB, Some(pool), 0).unwrap());
    assert_eq!(cuda.free_async(addresses[2], 0), 0);
    assert_eq!((cuda.counted(), cuda.used()), (1500 * MIB, 1500 * MIB));
    // Its idle memory ends with it.
    assert_eq!(call!(cuda, cuMemPoolDestroy(pool => usize)), 0);
    assert_eq!((cuda.counted(), cuda.used()), (1000 * MIB, 1000 * MIB));
    assert_eq!(cuda.free_async(addresses[0], 0), 0);
    assert!(cuda.counted() >= cuda.used());
    // With either function.
    assert_eq!(cuda.free(addresses[1]), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    assert_ne!(call!(cuda, cuMemPoolDestroy(cuda.default_pool() => usize)), 0);
}

#[test]
fn the_per_thread_stream_is_charged() {
    let cuda = inside!(2 * GIB);
    let pool = cuda.pool(FIRST_GPU).unwrap();
    let mut address = 0_u64;
    let place = &raw mut address;
    let own = |bytes: u64| {
        [
            call!(cuda, cuMemAllocAsync_ptsz(place => *mut u64, bytes => u64, 0 => usize)),
            call!(cuda, cuMemAllocFromPoolAsync_ptsz(place => *mut u64, bytes => u64, pool => usize, 0 => usize)),
        ]
    };
    assert_eq!(own(2 * GIB), [OUT_OF_MEMORY; 2]);
    assert_eq!(own(500 * MIB), [0; 2]);
    assert_eq!((cuda.counted(), cuda.used()), (1000 * MIB, 1000 * MIB));
    assert_eq!(call!(cuda, cuMemFreeAsync_ptsz(address => u64, 0 => usize)), 0);
    assert_eq!(cuda.trim(pool), 0);
    assert_eq!((cuda.counted(), cuda.used()), (500 * MIB, 500 * MIB));
}

#[test]
fn either_free_function_frees_plain_and_pool_memory() {
    let cuda = inside!(2 * GIB);
    let plain = cuda.allocate(500 * MIB).unwrap();
    let pooled = cuda.allocate_async(500 * MIB, None, 0).unwrap();
    assert_eq!(cuda.free_async(plain, 0), 0);
    assert_eq!(cuda.synchronize(), 0);
    assert_eq!((cuda.counted(), cuda.used()), (500 * MIB, 500 * MIB));
    assert_eq!(cuda.free(pooled), 0);
    assert_ne!(cuda.free(pooled), 0);
    assert_eq!(cuda.trim(cuda.default_pool()), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn limited_pools_and_host_pools_follow_the_driver() {
    let cuda = inside!(2 * GIB);
    let mut pool = 0_usize;
    let mut prop = Prop::at(FIRST_GPU);
    prop.max = 64 * MIB;
    let code =
        call!(cuda, cuMemPoolCreate(&raw mut pool => *mut usize, &raw const prop => *const Prop));
    assert_eq!(code, 0);
    assert_eq!(cuda.allocate_async(100 * MIB, Some(pool), 0), Err(OUT_OF_MEMORY));
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    // The simulated driver has no host pools.
    assert_ne!(cuda.pool(HOST).map(drop), Ok(()));
}

#[test]
fn threads_share_pools_without_losing_a_byte() {
    let cuda = inside!(2 * GIB);
    let own = cuda.pool(FIRST_GPU).unwrap();
    let pools = [None, Some(own)];
    let mut context = 0_usize;
    assert_eq!(call!(cuda, cuCtxGetCurrent(&raw mut context => *mut usize)), 0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (cuda, pool) = (&cuda, pools[usize::try_from(thread % 2).unwrap()]);
            scope.spawn(move || {
                assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
                let mut held = Vec::new();
                for step in 0..300 {
                    let bytes = (1 + (step * 7 + thread * 13) % 90) * MIB;
                    held.extend(cuda.allocate_async(bytes, pool, 0));
                    if held.len() > 6 {
                        assert_eq!(cuda.free_async(held.remove(0), 0), 0);
                    }
                    if step % 50 == 0 {
                        assert_eq!(cuda.synchronize(), 0);
                    }
                }
                for address in held {
                    assert_eq!(cuda.free_async(address, 0), 0);
                }
            });
        }
    });
    // After undone, unchecked and skipped charges, the charge equals the size of the pools.
    cuda.info();
    assert_eq!(cuda.counted(), cuda.used());
    assert_eq!(cuda.used(), cuda.reserved(own) + cuda.reserved(cuda.default_pool()));
    assert_eq!(cuda.trim(own), 0);
    assert_eq!(cuda.trim(cuda.default_pool()), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn the_pool_that_served_an_allocation_is_charged() {
    let cuda = inside!(4 * GIB);
    let pools = [cuda.pool(FIRST_GPU).unwrap(), cuda.pool(FIRST_GPU).unwrap()];
    let mut context = 0_usize;
    assert_eq!(call!(cuda, cuCtxGetCurrent(&raw mut context => *mut usize)), 0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for pool in pools {
                    assert_eq!(call!(cuda, cuDeviceSetMemPool(0 => i32, pool => usize)), 0);
                }
            }
        });
        for _ in 0..500 {
            let address = cuda.allocate_async(100 * MIB, None, 0).unwrap();
            let (counted, used) = (cuda.counted(), cuda.used());
            assert!(counted >= used, "{counted} counted, {used} used");
            assert_eq!(cuda.free_async(address, 0), 0);
            for pool in pools {
                assert_eq!(cuda.trim(pool), 0);
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // The pool that served before the first change.
    assert_eq!(cuda.trim(cuda.default_pool()), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}
