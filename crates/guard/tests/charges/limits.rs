//! Context limits.

use crate::cuda::{CONTEXT, Cuda, GIB, MIB, OUT_OF_MEMORY};
use crate::{call, inside};

const STACK: u32 = 0;
const PRINTF: u32 = 1;
const HEAP: u32 = 2;
const FETCH: u32 = 5;

/// Maximum resident threads of the simulated H100.
const THREADS: u64 = 132 * 2048;

impl Cuda {
    pub(crate) fn set_limit(&self, limit: u32, value: u64) -> u32 {
        call!(self, cuCtxSetLimit(limit => u32, value => u64))
    }

    fn limit(&self, limit: u32) -> u64 {
        let mut value = 0;
        assert_eq!(call!(self, cuCtxGetLimit(&raw mut value => *mut u64, limit => u32)), 0);
        value
    }
}

#[test]
fn stacks_count_for_all_resident_threads() {
    let cuda = inside!(4 * GIB);
    // 1,024 bytes each are part of the context; 16 KiB each are 4 GiB.
    assert_eq!(cuda.set_limit(STACK, 16 << 10), OUT_OF_MEMORY);
    assert_eq!(cuda.limit(STACK), 1024);
    assert_eq!(cuda.set_limit(STACK, 8 << 10), 0);
    assert_eq!(cuda.used(), THREADS * 7 * 1024);
    assert_eq!(cuda.counted(), cuda.used().next_multiple_of(2 * MIB));
    assert_eq!(cuda.allocate(2 * GIB), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.set_limit(STACK, 2 << 10), 0);
    assert_eq!(cuda.counted(), (THREADS * 1024).next_multiple_of(2 * MIB));
    assert_eq!(cuda.set_limit(STACK, 512), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn a_heap_that_does_not_fit_is_refused() {
    let cuda = inside!(GIB);
    assert_eq!(cuda.set_limit(HEAP, 8 * GIB), OUT_OF_MEMORY);
    assert_eq!(cuda.set_limit(PRINTF, 8 * GIB), OUT_OF_MEMORY);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    assert_eq!(cuda.set_limit(HEAP, 408 * MIB), 0);
    assert_eq!((cuda.counted(), cuda.used()), (400 * MIB, 400 * MIB));
    assert_eq!(cuda.set_limit(PRINTF, 401 * MIB), OUT_OF_MEMORY);
    assert_eq!(cuda.set_limit(PRINTF, 301 * MIB), 0);
    assert_eq!((cuda.counted(), cuda.used()), (700 * MIB, 700 * MIB));
    assert_eq!(cuda.set_limit(HEAP, 8 * MIB), 0);
    assert_eq!((cuda.counted(), cuda.used()), (300 * MIB, 300 * MIB));
}

#[test]
fn limits_that_take_no_memory_pass() {
    let cuda = inside!(GIB);
    assert_eq!(cuda.set_limit(FETCH, 64), 0);
    // The driver does not document the memory of pending launches, so their maximum is charged.
    assert_eq!(cuda.set_limit(4, 2048 + 1024), 0);
    assert_eq!((cuda.counted(), cuda.used()), (4 * MIB, 0));
    assert_eq!(cuda.set_limit(99, 1), 215);
}

#[test]
fn a_limit_goes_with_its_context() {
    let cuda = inside!(2 * GIB);
    let mut context = 0_usize;
    assert_eq!(call!(cuda, cuCtxCreate_v2(&raw mut context => *mut usize, 0 => u32, 0 => i32)), 0);
    assert_eq!(cuda.set_limit(HEAP, 508 * MIB), 0);
    assert_eq!((cuda.counted(), cuda.used()), (CONTEXT + 500 * MIB, CONTEXT + 500 * MIB));
    assert_eq!(call!(cuda, cuCtxDestroy_v2(context => usize)), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    // A new context starts with the defaults.
    assert_eq!(call!(cuda, cuCtxCreate_v2(&raw mut context => *mut usize, 0 => u32, 0 => i32)), 0);
    assert_eq!(cuda.set_limit(HEAP, 108 * MIB), 0);
    assert_eq!((cuda.counted(), cuda.used()), (CONTEXT + 100 * MIB, CONTEXT + 100 * MIB));
}

#[test]
fn a_share_that_has_too_much_may_go_on_with_what_it_has() {
    let cuda = inside!(2 * GIB);
    let pool = cuda.default_pool();
    cuda.keep_all(pool);
    let address = cuda.allocate_async(500 * MIB, None, 0).unwrap();
    assert_eq!(cuda.free_async(address, 0), 0);
    let little = cuda.allocate_async(100 * MIB, None, 0).unwrap();
    let graph = cuda.graph();
    let (node, inner) = cuda.add_allocation(graph, 0, 100 * MIB);
    cuda.add_free(graph, node, inner);
    let exec = cuda.instantiate(graph, 0).unwrap();
    assert_eq!(cuda.launch_graph(exec), 0);
    assert_eq!(cuda.set_limit(HEAP, 108 * MIB), 0);
    cuda.set_untracked(2 * GIB);
    assert_eq!(cuda.allocate(MIB), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.set_limit(HEAP, 110 * MIB), OUT_OF_MEMORY);
    // No more than the free memory.
    assert!(cuda.allocate_async(100 * MIB, None, 0).is_ok());
    assert_eq!(cuda.set_limit(HEAP, 8 * MIB), 0);
    assert_eq!(cuda.free_async(little, 0), 0);
    assert_eq!(cuda.counted(), cuda.used());
    cuda.set_untracked(0);
    assert!(cuda.allocate(MIB).is_ok());
}

#[test]
fn memory_of_a_green_context_is_the_primary_ones_and_outlives_it() {
    let cuda = inside!(4 * GIB);
    let green = || {
        let (mut green, mut context) = (0_usize, 0_usize);
        let code = call!(cuda, cuGreenCtxCreate(
            &raw mut green => *mut usize, 1 => usize, 0 => i32, 1 => u32));
        assert_eq!(code, 0);
        let code = call!(cuda, cuCtxFromGreenCtx(&raw mut context => *mut usize, green => usize));
        assert_eq!(code, 0);
        assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
        green
    };
    let mut primary = 0_usize;
    assert_eq!(call!(cuda, cuCtxGetCurrent(&raw mut primary => *mut usize)), 0);
    let context = green();
    let address = cuda.allocate(GIB).unwrap();
    assert_eq!(call!(cuda, cuGreenCtxDestroy(context => usize)), 0);
    assert_eq!((cuda.counted(), cuda.used()), (GIB, GIB));
    assert_eq!(call!(cuda, cuCtxSetCurrent(primary => usize)), 0);
    assert_eq!(cuda.free(address), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    // It ends with the primary context.
    let context = green();
    cuda.allocate(GIB).unwrap();
    assert_eq!(call!(cuda, cuGreenCtxDestroy(context => usize)), 0);
    assert_eq!(call!(cuda, cuDevicePrimaryCtxReset_v2(0 => i32)), 0);
    assert_eq!(cuda.chip_used(), 0);
    assert_eq!(crate::container::counted(&cuda.folder), 0);
}
