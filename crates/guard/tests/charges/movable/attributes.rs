//! What programs ask about movable memory, set there, and export.

use octavo_guard_abi::lease_page::Lease;
use octavo_guard_abi::limits::{PAGES, STRICT};

use crate::agent::Agent;
use crate::cuda::{GIB, MIB};
use crate::{call, inside};

/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: u32 = 801;

#[test]
fn memory_looks_as_plain_memory_does() {
    let cuda = inside!(8 * GIB, 80 * GIB, PAGES | STRICT);
    let bytes = 3 * MIB + 5;
    let address = cuda.allocate(bytes).unwrap();
    assert!(!cuda.is_plain(address), "it has no IPC handle");
    let of_range = |address: u64| {
        let (mut start, mut size) = (0_u64, 0_u64);
        let code = call!(cuda, cuMemGetAddressRange_v2(
            &raw mut start => *mut u64, &raw mut size => *mut u64, address => u64));
        assert_eq!(code, 0);
        (start, size)
    };
    assert_eq!(of_range(address + MIB), (address, bytes));
    assert_eq!(cuda.attribute(1, address + 1), cuda.context() as u64);
    assert_eq!((cuda.attribute(11, address + 9), cuda.attribute(12, address)), (address, bytes));
    let (names, mut size, mut kind) = ([12_u32, 2], 0_u64, 0_u64);
    let places = [&raw mut size, &raw mut kind];
    let code = call!(cuda, cuPointerGetAttributes(
        2 => u32, names.as_ptr() => *const u32, places.as_ptr() => *const *mut u64, address => u64));
    assert_eq!((code, size, kind), (0, bytes, 2));
    let mut handle = 0_u64;
    // A mapping may be named by any address in it.
    for place in [address, address + MIB] {
        let code =
            call!(cuda, cuMemRetainAllocationHandle(&raw mut handle => *mut u64, place => u64));
        assert_eq!((code, cuda.unmap(place, 4 * MIB)), (1, 1));
    }
    let code =
        call!(cuda, cuMemSetAccess(address + MIB => u64, 4 * MIB => u64, 0 => usize, 0 => u64));
    assert_eq!(code, 1);
    let (mut rows, mut pitch) = (0_u64, 0_u64);
    let code = call!(cuda, cuMemAllocPitch_v2(&raw mut rows => *mut u64, &raw mut pitch => *mut u64,
        1000 => u64, 4096 => u64, 4 => u32));
    assert_eq!((code, pitch, of_range(rows)), (0, 1024, (rows, 4 * MIB)));
    assert_eq!(cuda.free_async(rows, 0), 0);
    assert_eq!((cuda.free(address), cuda.counted(), cuda.used()), (0, 0, 0));
}

#[test]
fn copies_are_synchronous_after_a_move_as_before() {
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    const SYNC: u32 = 6;
    let cuda = inside!(8 * GIB, 80 * GIB, PAGES | STRICT);
    let agent = Agent::with(&cuda, Lease::Free);
    let (filled, other) = (cuda.filled(3 * MIB, 1), cuda.filled(4 * MIB, 2));
    let set = |address: u64, is_sync: u32| {
        call!(cuda, cuPointerSetAttribute(
            &raw const is_sync => *const u32, SYNC => u32, address => u64))
    };
    let is_sync = || [&filled, &other].map(|filled| cuda.attribute(SYNC, filled.address + MIB) & 1);
    assert_eq!((set(filled.address + 5, 1), is_sync()), (0, [1, 0]));
    cuda.failing(&[("cuPointerSetAttribute", 304)]);
    assert_eq!(set(other.address, 1), 304);
    assert_eq!((agent.out(), agent.back()), (0, 304), "it does not come back as another one");
    cuda.failing(&[]);
    assert_eq!((agent.back(), is_sync()), (0, [1, 0]));
    assert_eq!((set(filled.address, 0), agent.out(), agent.back()), (0, 0, 0));
    assert_eq!(is_sync(), [0, 0]);
    cuda.all_unchanged(&[filled, other]);
}

#[test]
fn movable_memory_is_not_exported_to_devices() {
    let cuda = inside!(8 * GIB, 80 * GIB, PAGES | STRICT);
    let agent = Agent::with(&cuda, Lease::Free);
    let filled = cuda.filled(4 * MIB, 1);
    let export = |address: u64| {
        let mut descriptor = -1_i32;
        let code = call!(cuda, cuMemGetHandleForAddressRange(&raw mut descriptor => *mut i32,
            address => u64, 4096 => u64, 1 => u32, 0 => u64));
        assert_eq!(descriptor >= 0, code == 0);
        code
    };
    assert_eq!(export(filled.address + MIB), NOT_SUPPORTED);
    assert_eq!(agent.out(), 0);
    assert_eq!(export(filled.address), NOT_SUPPORTED);
    assert_eq!(agent.back(), 0);
    // Memory that stays is exported.
    let small = cuda.allocate(4096).unwrap();
    assert_eq!(export(small), 0);
}
