//! Memory allocations.

use crate::call;
use crate::node::{CONTEXT, GIB, INVALID_VALUE, MIB, Node, OUT_OF_MEMORY};

#[test]
fn memory_is_what_the_machine_has_less_what_the_driver_keeps() {
    let node = Node::new("dgx-h100");
    let cuda = node.ready();
    assert_eq!(cuda.info(), ((81559 - 551) * MIB - CONTEXT, (81559 - 551) * MIB));
    let mut total = 0_u64;
    assert_eq!(call!(cuda, cuDeviceTotalMem_v2(&raw mut total => *mut u64, 0 => i32)), 0);
    assert_eq!(total, (81559 - 551) * MIB);
}

#[test]
fn twenty_gibibytes_cost_the_host_nothing_and_the_device_all_of_it() {
    let node = Node::new("dgx-h100");
    let cuda = node.ready();
    let before = cuda.used();
    let address = cuda.allocate(20 * GIB).unwrap();
    assert_eq!(cuda.used() - before, 20 * GIB);
    assert_eq!(cuda.upload(address + 19 * GIB, b"far away"), 0);
    assert_eq!(cuda.download(address + 19 * GIB, 8).unwrap(), b"far away");
    assert_eq!(cuda.free(address), 0);
    assert_eq!(cuda.used(), before);
    assert_eq!(cuda.free(address), INVALID_VALUE, "it is free already");
}

#[test]
fn more_than_there_is_cannot_be_had_and_hurts_nothing() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let (free, _) = cuda.info();
    assert_eq!(cuda.allocate(free + 1), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.allocate(u64::MAX), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.allocate(0), Err(INVALID_VALUE));
    let all = cuda.allocate(free / (2 * MIB) * (2 * MIB)).unwrap();
    assert_eq!(cuda.allocate(2 * MIB), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.free(all), 0);
    assert_eq!(cuda.info().0, free);
}

#[test]
fn small_allocations_share_granules_and_give_them_back() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let before = cuda.used();
    let small: Vec<u64> = (0..4096).map(|_| cuda.allocate(100).unwrap()).collect();
    assert_eq!(cuda.used() - before, 2 * MIB);
    let one_more = cuda.allocate(512).unwrap();
    assert_eq!(cuda.used() - before, 4 * MIB);
    for address in small.into_iter().chain([one_more]) {
        assert_eq!(cuda.free(address), 0);
    }
    assert_eq!(cuda.used(), before);
}

#[test]
fn reallocated_memory_reads_as_zero() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let first = cuda.allocate(8 * MIB).unwrap();
    assert_eq!(cuda.upload(first, &[7; 64]), 0);
    assert_eq!(cuda.free(first), 0);
    let second = cuda.allocate(8 * MIB).unwrap();
    assert_eq!(second, first, "the place is used again");
    assert_eq!(cuda.download(second, 64).unwrap(), [0; 64]);
}

#[test]
fn arrays_take_what_they_say() {
    #[repr(C)]
    struct Descriptor {
        width: usize,
        height: usize,
        format: u32,
        channels: u32,
    }
    let node = Node::new("t4");
    let cuda = node.ready();
    let before = cuda.used();
    let descriptor = Descriptor { width: 4096, height: 4096, format: 0x20, channels: 4 };
    let mut array = 0_usize;
    let code = call!(cuda, cuArrayCreate_v2(
        &raw mut array => *mut usize, &raw const descriptor => *const Descriptor));
    assert_eq!(code, 0);
    assert_eq!(cuda.used() - before, 256 * MIB);
    let mut requirements = [0_u64; 4];
    let code = call!(cuda, cuArrayGetMemoryRequirements(
        requirements.as_mut_ptr() => *mut u64, array => usize, 0 => i32));
    assert_eq!((code, requirements[0]), (0, 256 * MIB));
    assert_eq!(call!(cuda, cuArrayDestroy(array => usize)), 0);
    assert_eq!(cuda.used(), before);
    let huge = Descriptor { width: 1 << 20, height: 1 << 20, format: 0x20, channels: 4 };
    let code = call!(cuda, cuArrayCreate_v2(
        &raw mut array => *mut usize, &raw const huge => *const Descriptor));
    assert_eq!(code, OUT_OF_MEMORY);
}

#[test]
fn mipmaps_take_all_their_levels_memory() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let before = cuda.used();
    // Width, height, depth; format and channels in one word; flags.
    let descriptor = [2048_u64, 2048, 0, 0x20 | 1 << 32, 0];
    let (mut mipmap, mut level) = (0_usize, 0_usize);
    let code = call!(cuda, cuMipmappedArrayCreate(
        &raw mut mipmap => *mut usize, descriptor.as_ptr() => *const u64, 12 => u32));
    assert_eq!(code, 0);
    // 16 MiB, and a third of that for the smaller levels.
    assert_eq!(cuda.used() - before, 22 * MIB);
    let code = call!(cuda, cuMipmappedArrayGetLevel(
        &raw mut level => *mut usize, mipmap => usize, 3 => u32));
    assert_eq!(code, 0);
    assert_eq!(call!(cuda, cuArrayDestroy(level => usize)), 400, "it is part of the whole");
    assert_eq!(call!(cuda, cuMipmappedArrayDestroy(mipmap => usize)), 0);
    assert_eq!(cuda.used(), before);
}

#[test]
fn managed_memory_is_on_the_device_only_after_it_was_moved_there() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let before = cuda.used();
    let mut address = 0_u64;
    let code = call!(cuda, cuMemAllocManaged(
        &raw mut address => *mut u64, 64 * GIB => u64, 1 => u32));
    assert_eq!((code, cuda.used()), (0, before), "more than the device has");
    let moved = |to: i32| {
        call!(cuda, cuMemPrefetchAsync(
        address => u64, 4 * GIB => u64, to => i32, 0 => usize))
    };
    assert_eq!((moved(0), cuda.used() - before), (0, 4 * GIB));
    assert_eq!((moved(-1), cuda.used()), (0, before));
    assert_eq!(moved(0), 0);
    assert_eq!((cuda.free(address), cuda.used()), (0, before));
}

#[test]
fn pointers_tell_what_they_are() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let address = cuda.allocate(3 * MIB).unwrap();
    let attribute = |number: u32, address: u64| {
        let mut value = 0_u64;
        let code = call!(cuda, cuPointerGetAttribute(
            &raw mut value => *mut u64, number => u32, address => u64));
        (code, value)
    };
    assert_eq!(attribute(2, address + 5), (0, 2));
    assert_eq!(attribute(11, address + 5), (0, address));
    assert_eq!(attribute(12, address + 5), (0, 3 * MIB));
    assert_eq!(attribute(2, 64).0, INVALID_VALUE);
    let (mut start, mut size) = (0, 0);
    let code = call!(cuda, cuMemGetAddressRange_v2(
        &raw mut start => *mut u64, &raw mut size => *mut u64, address + MIB => u64));
    assert_eq!((code, start, size), (0, address, 3 * MIB));
}

#[test]
fn the_oldest_calls_give_addresses_of_32_bits() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let before = cuda.used();
    let mut address = 0_u32;
    let code = call!(cuda, cuMemAlloc(&raw mut address => *mut u32, 5 << 20 => u32));
    if cfg!(target_arch = "x86_64") {
        assert_eq!((code, cuda.used() - before), (0, 6 * MIB));
        assert_eq!(call!(cuda, cuMemFree(address => u32)), 0);
    } else {
        assert_eq!(code, OUT_OF_MEMORY, "this processor has no way to ask for such addresses");
    }
    assert_eq!(cuda.used(), before);
}
