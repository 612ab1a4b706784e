//! A driver that fails.

use std::collections::BTreeMap;

use octavo_machine::State;

use crate::container::becomes;
use crate::cuda::{Cuda, FIRST_GPU, GIB, MIB, OUT_OF_MEMORY};
use crate::{call, inside};

impl Cuda {
    /// Makes exactly these calls fail from now on.
    pub(crate) fn failing(&self, calls: &[(&str, u32)]) {
        let failing_calls: BTreeMap<String, u32> =
            calls.iter().map(|(name, code)| ((*name).to_owned(), *code)).collect();
        becomes(&self.folder, &State { failing_calls, ..State::default() });
        // Frequent calls see it a moment later, or after any other call.
        let mut count = 0;
        assert_eq!(call!(self, cuDeviceGetCount(&raw mut count => *mut i32)), 0);
    }
}

#[test]
fn what_the_driver_refuses_is_not_counted() {
    let cuda = inside!(4 * GIB);
    let graph = cuda.graph();
    let (node, address) = cuda.add_allocation(graph, 0, 100 * MIB);
    cuda.add_free(graph, node, address);
    let exec = cuda.instantiate(graph, 0).unwrap();
    let pool = cuda.pool(FIRST_GPU).unwrap();
    cuda.failing(&[
        ("cuMemCreate", OUT_OF_MEMORY),
        ("cuMemAllocAsync", OUT_OF_MEMORY),
        ("cuMemAllocFromPoolAsync", 999),
        ("cuArrayCreate", OUT_OF_MEMORY),
        ("cuMipmappedArrayCreate", 1),
        ("cuCtxSetLimit", 1),
        ("cuGraphLaunch", 719),
        ("cuGraphUpload", OUT_OF_MEMORY),
    ]);
    for _ in 0..3 {
        assert_eq!(cuda.create(GIB, FIRST_GPU), Err(OUT_OF_MEMORY));
        assert_eq!(cuda.allocate_async(GIB, None, 0), Err(OUT_OF_MEMORY));
        assert_eq!(cuda.allocate_async(GIB, Some(pool), 0), Err(999));
        assert_eq!(cuda.array(4096, 4096), Err(OUT_OF_MEMORY));
        assert_eq!(cuda.mipmap([4096, 4096, 0], 4), Err(1));
        assert_eq!(cuda.set_limit(2, GIB), 1);
        assert_eq!(cuda.launch_graph(exec), 719);
        assert_eq!(call!(cuda, cuGraphUpload(exec => usize, 0 => usize)), OUT_OF_MEMORY);
    }
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    // More than four gibibytes were requested three times; the space is still free.
    cuda.failing(&[]);
    assert!(cuda.create(3 * GIB, FIRST_GPU).is_ok());
}

#[test]
fn memory_that_cannot_be_freed_stays_counted() {
    let cuda = inside!(4 * GIB);
    let address = cuda.reserve(GIB);
    let handle = cuda.create(GIB, FIRST_GPU).unwrap();
    assert_eq!(cuda.map(address, GIB, handle), 0);
    let array = cuda.array(4096, 4096).unwrap();
    let pool = cuda.pool(FIRST_GPU).unwrap();
    let pooled = cuda.allocate_async(100 * MIB, Some(pool), 0).unwrap();
    let all = cuda.counted();
    assert_eq!(all, cuda.used());
    cuda.failing(&[
        ("cuMemUnmap", 1),
        ("cuMemRelease", 1),
        ("cuMemMap", 1),
        ("cuArrayDestroy", 1),
        ("cuMemFreeAsync", 1),
        ("cuMemFree", 1),
        ("cuMemPoolDestroy", 1),
    ]);
    for _ in 0..3 {
        assert_eq!(cuda.unmap(address, GIB), 1);
        assert_eq!(cuda.release(handle), 1);
        assert_eq!(cuda.map(address, GIB, handle), 1);
        assert_eq!(cuda.destroy_array(array), 1);
        assert_eq!(cuda.free_async(pooled, 0), 1);
        assert_eq!(cuda.free(pooled), 1);
        assert_eq!(call!(cuda, cuMemPoolDestroy(pool => usize)), 1);
        assert_eq!((cuda.counted(), cuda.used()), (all, all));
    }
    cuda.failing(&[]);
    assert_eq!(cuda.release(handle), 0);
    assert_eq!((cuda.counted(), cuda.used()), (all, all));
    assert_eq!(cuda.unmap(address, GIB), 0);
    assert_eq!(cuda.destroy_array(array), 0);
    assert_eq!(cuda.free_async(pooled, 0), 0);
    assert_eq!(call!(cuda, cuMemPoolDestroy(pool => usize)), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}
