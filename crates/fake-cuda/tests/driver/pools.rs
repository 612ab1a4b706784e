//! Stream-ordered memory.

use std::os::fd::{AsRawFd as _, FromRawFd as _};

use crate::call;
use crate::node::{CONTEXT, Cuda, GIB, INVALID_VALUE, MIB, Node, OUT_OF_MEMORY};

const THRESHOLD: u32 = 4;
const RESERVED: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED: u32 = 7;
const USED_HIGH: u32 = 8;

impl Cuda {
    fn default_pool(&self) -> usize {
        let mut pool = 0_usize;
        let code = call!(self, cuDeviceGetDefaultMemPool(&raw mut pool => *mut usize, 0 => i32));
        assert_eq!(code, 0);
        pool
    }

    fn pool(&self, max: u64) -> usize {
        self.pool_of_kind(0, max)
    }

    fn pool_of_kind(&self, handles: u64, max: u64) -> usize {
        // Pinned, with that handle type; on device 0; no Windows attributes; the maximum size.
        let mut props = [0_u64; 11];
        (props[0], props[1], props[3]) = (handles << 32 | 1, 1, max);
        let mut pool = 0_usize;
        let code =
            call!(self, cuMemPoolCreate(&raw mut pool => *mut usize, props.as_ptr() => *const u64));
        assert_eq!(code, 0);
        pool
    }

    fn pool_value(&self, pool: usize, attribute: u32) -> u64 {
        let mut value = 0_u64;
        let code = call!(self, cuMemPoolGetAttribute(
            pool => usize, attribute => u32, &raw mut value => *mut u64));
        assert_eq!(code, 0);
        value
    }

    fn set_pool_value(&self, pool: usize, attribute: u32, value: u64) -> u32 {
        call!(self, cuMemPoolSetAttribute(
            pool => usize, attribute => u32, &raw const value => *const u64))
    }

    fn allocate_async(&self, size: u64, stream: usize) -> Result<u64, u32> {
        let mut address = 0;
        match call!(self, cuMemAllocAsync(
            &raw mut address => *mut u64, size => u64, stream => usize))
        {
            0 => Ok(address),
            code => Err(code),
        }
    }

    fn allocate_from(&self, pool: usize, size: u64) -> Result<u64, u32> {
        let mut address = 0;
        match call!(self, cuMemAllocFromPoolAsync(
            &raw mut address => *mut u64, size => u64, pool => usize, 0 => usize))
        {
            0 => Ok(address),
            code => Err(code),
        }
    }

    fn free_async(&self, address: u64, stream: usize) -> u32 {
        call!(self, cuMemFreeAsync(address => u64, stream => usize))
    }
}

#[test]
fn a_pool_keeps_memory_until_a_synchronisation_finds_too_much() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let (pool, stream) = (cuda.default_pool(), cuda.stream());
    let address = cuda.allocate_async(100 * MIB, stream).unwrap();
    assert_eq!(cuda.used(), CONTEXT + 100 * MIB);
    assert_eq!([USED, RESERVED].map(|number| cuda.pool_value(pool, number)), [100 * MIB; 2]);
    assert_eq!(cuda.free_async(address, stream), 0);
    assert_eq!(cuda.used(), CONTEXT + 100 * MIB, "it is the pool's still");
    let again = cuda.allocate_async(60 * MIB, stream).unwrap();
    assert_eq!((again, cuda.used()), (address, CONTEXT + 100 * MIB), "and is used again");
    assert_eq!(cuda.free_async(again, stream), 0);
    assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), 0);
    assert_eq!((cuda.used(), cuda.pool_value(pool, RESERVED)), (CONTEXT, 0));
    assert_eq!(cuda.pool_value(pool, RESERVED_HIGH), 100 * MIB);
    assert_eq!(cuda.set_pool_value(pool, USED_HIGH, 0), 0);
    assert_eq!(cuda.pool_value(pool, USED_HIGH), 0);
}

#[test]
fn a_threshold_keeps_memory_and_trimming_does_not() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let (pool, stream) = (cuda.default_pool(), cuda.stream());
    assert_eq!(cuda.set_pool_value(pool, THRESHOLD, u64::MAX), 0);
    let addresses = [64, 64].map(|mib| cuda.allocate_async(mib * MIB, stream).unwrap());
    for address in addresses {
        assert_eq!(cuda.free_async(address, stream), 0);
    }
    assert_eq!(cuda.synchronize(), 0);
    assert_eq!(cuda.used(), CONTEXT + 128 * MIB);
    assert_eq!(call!(cuda, cuMemPoolTrimTo(pool => usize, 64 * MIB => u64)), 0);
    assert_eq!(cuda.used(), CONTEXT + 64 * MIB);
    assert_eq!(call!(cuda, cuMemPoolTrimTo(pool => usize, 0 => u64)), 0);
    assert_eq!(cuda.used(), CONTEXT);
}

#[test]
fn small_allocations_of_a_pool_share_a_piece() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let pool = cuda.pool(0);
    let addresses: Vec<u64> = (0..1000).map(|_| cuda.allocate_from(pool, 1000).unwrap()).collect();
    assert_eq!(cuda.used(), CONTEXT + 32 * MIB);
    assert_eq!(cuda.pool_value(pool, USED), 1024 * 1000);
    assert_eq!(cuda.upload(addresses[999], &[5; 1000]), 0);
    assert_eq!(cuda.upload(addresses[999], &[5; 1001]), INVALID_VALUE);
    for address in addresses {
        // Either free function works.
        assert_eq!(cuda.free(address), 0);
    }
    assert_eq!(cuda.pool_value(pool, USED), 0);
}

#[test]
fn a_pool_has_no_more_than_it_may() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let pool = cuda.pool(GIB);
    let address = cuda.allocate_from(pool, 1000 * MIB).unwrap();
    assert_eq!(cuda.allocate_from(pool, 100 * MIB), Err(OUT_OF_MEMORY));
    assert!(cuda.allocate_from(pool, 24 * MIB).is_ok());
    assert_eq!(cuda.allocate_from(pool, 1), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.free_async(address, 0), 0);
    assert!(cuda.allocate_from(pool, 100 * MIB).is_ok());
}

#[test]
fn a_destroyed_pool_lives_on_in_what_was_allocated_from_it() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let pool = cuda.pool(0);
    let address = cuda.allocate_from(pool, 40 * MIB).unwrap();
    assert_eq!(call!(cuda, cuMemPoolDestroy(pool => usize)), 0);
    assert_eq!(cuda.allocate_from(pool, 1), Err(INVALID_VALUE));
    assert_eq!(cuda.used(), CONTEXT + 40 * MIB);
    assert_eq!(cuda.free(address), 0);
    assert_eq!(cuda.used(), CONTEXT);
    assert_eq!(call!(cuda, cuMemPoolDestroy(cuda.default_pool() => usize)), INVALID_VALUE);
}

#[test]
fn allocations_come_from_the_pool_that_was_set() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let pool = cuda.pool(64 * MIB);
    assert_eq!(call!(cuda, cuDeviceSetMemPool(0 => i32, pool => usize)), 0);
    let mut current = 0_usize;
    assert_eq!(call!(cuda, cuDeviceGetMemPool(&raw mut current => *mut usize, 0 => i32)), 0);
    assert_eq!(current, pool);
    assert_eq!(cuda.allocate_async(65 * MIB, 0), Err(OUT_OF_MEMORY));
    assert!(cuda.allocate_async(64 * MIB, 0).is_ok());
}

#[test]
fn a_pools_memory_is_anothers_as_long_as_that_one_has_it() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let pool = cuda.pool_of_kind(1, 0);
    let mut fd = -1;
    let export = |pool: usize, fd: &mut i32| {
        call!(cuda, cuMemPoolExportToShareableHandle(
            &raw mut *fd => *mut i32, pool => usize, 1 => u32, 0 => u64))
    };
    assert_eq!(export(cuda.pool(0), &mut fd), INVALID_VALUE, "it was not made for that");
    assert_eq!(export(pool, &mut fd), 0);
    let file = unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) };
    let address = cuda.allocate_from(pool, 40 * MIB).unwrap();
    let mut data = [0_u64; 8];
    let place = data.as_mut_ptr();
    assert_eq!(call!(cuda, cuMemPoolExportPointer(place => *mut u64, address => u64)), 0);

    let mut other = 0_usize;
    let code = call!(cuda, cuMemPoolImportFromShareableHandle(
        &raw mut other => *mut usize, file.as_raw_fd() => i32, 1 => u32, 0 => u64));
    assert_eq!(code, 0);
    assert_eq!(cuda.allocate_from(other, MIB), Err(INVALID_VALUE), "it is another's");
    let mut there = 0_u64;
    let import = |pool: usize, there: &mut u64| {
        call!(cuda, cuMemPoolImportPointer(
            &raw mut *there => *mut u64, pool => usize, data.as_ptr() => *const u64))
    };
    assert_eq!(import(pool, &mut there), INVALID_VALUE, "it is not imported");
    assert_eq!(import(other, &mut there), 0);
    assert_eq!(cuda.used(), CONTEXT + 40 * MIB);

    assert_eq!(cuda.free_async(address, 0), 0);
    assert_eq!(call!(cuda, cuMemPoolDestroy(pool => usize)), 0);
    assert_eq!(cuda.used(), CONTEXT + 40 * MIB, "somebody has it still");
    assert_eq!(cuda.free_async(there, 0), 0);
    assert_eq!(cuda.used(), CONTEXT);
    assert_eq!(call!(cuda, cuMemPoolDestroy(other => usize)), 0);
}
