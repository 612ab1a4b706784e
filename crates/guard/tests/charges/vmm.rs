//! Virtual memory management.

use std::os::fd::{FromRawFd, OwnedFd};

use crate::container::{self, Other};
use crate::cuda::{Cuda, FIRST_GPU, GIB, HOST, MIB, OUT_OF_MEMORY, ok};
use crate::{call, inside, role};

impl Cuda {
    pub(crate) fn export(&self, handle: u64) -> i32 {
        let mut fd = -1;
        let code = call!(self, cuMemExportToShareableHandle(
            &raw mut fd => *mut i32, handle => u64, 1 => u32, 0 => u64));
        ok(code, fd).unwrap()
    }

    pub(crate) fn import(&self, fd: i32) -> Result<u64, u32> {
        let mut handle = 0;
        let fd = usize::try_from(fd).unwrap();
        let code = call!(self, cuMemImportFromShareableHandle(
            &raw mut handle => *mut u64, fd => usize, 1 => u32));
        ok(code, handle)
    }

    fn retain(&self, address: u64) -> Result<u64, u32> {
        let mut handle = 0;
        let code =
            call!(self, cuMemRetainAllocationHandle(&raw mut handle => *mut u64, address => u64));
        ok(code, handle)
    }

    /// Charged bytes, which must equal those of the GPU.
    pub(crate) fn both(&self) -> u64 {
        assert_eq!(self.counted(), self.used());
        self.used()
    }
}

#[test]
fn memory_is_counted_when_it_is_made_up_to_the_limit() {
    let cuda = inside!(4 * GIB);
    assert_eq!(cuda.create(4 * GIB, FIRST_GPU), Err(OUT_OF_MEMORY));
    let handle = cuda.create(3 * GIB, FIRST_GPU).unwrap();
    assert_eq!(cuda.both(), 3 * GIB);
    assert_eq!(cuda.create(GIB, FIRST_GPU), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.allocate(GIB), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.release(handle), 0);
    assert_eq!(cuda.both(), 0);
}

#[test]
fn a_release_after_a_map_gives_nothing_back() {
    let cuda = inside!(4 * GIB);
    let address = cuda.reserve(2 * GIB);
    let handle = cuda.create(2 * GIB, FIRST_GPU).unwrap();
    assert_eq!(cuda.map(address, 2 * GIB, handle), 0);
    assert_eq!(cuda.release(handle), 0);
    assert_eq!(cuda.both(), 2 * GIB);
    assert_eq!(cuda.create(2 * GIB, FIRST_GPU), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.unmap(address, 2 * GIB), 0);
    assert_eq!(cuda.both(), 0);
}

#[test]
fn a_handle_that_is_kept_holds_memory_that_is_unmapped() {
    let cuda = inside!(4 * GIB);
    let address = cuda.reserve(GIB);
    let handle = cuda.create(GIB, FIRST_GPU).unwrap();
    assert_eq!(cuda.map(address, GIB, handle), 0);
    assert_eq!(cuda.unmap(address, GIB), 0);
    assert_eq!(cuda.both(), GIB);
    assert_eq!(cuda.release(handle), 0);
    assert_eq!(cuda.both(), 0);
}

#[test]
fn each_retained_handle_has_to_be_released() {
    let cuda = inside!(4 * GIB);
    let address = cuda.reserve(GIB);
    let handle = cuda.create(GIB, FIRST_GPU).unwrap();
    assert_eq!(cuda.map(address, GIB, handle), 0);
    assert_eq!(cuda.release(handle), 0);
    // From its start and from within.
    let first = cuda.retain(address).unwrap();
    let second = cuda.retain(address + 6 * MIB).unwrap();
    assert_eq!(cuda.unmap(address, GIB), 0);
    assert_eq!(cuda.both(), GIB);
    assert_eq!(cuda.release(first), 0);
    assert_eq!(cuda.both(), GIB);
    assert_eq!(cuda.release(second), 0);
    assert_eq!(cuda.both(), 0);
    assert_ne!(cuda.release(second), 0);
    assert_ne!(cuda.retain(address).map(drop), Ok(()));
    assert_eq!(cuda.both(), 0);
}

#[test]
fn mappings_end_together_or_by_parts() {
    let cuda = inside!(4 * GIB);
    let address = cuda.reserve(8 * MIB);
    for part in 0..4 {
        let handle = cuda.create(2 * MIB, FIRST_GPU).unwrap();
        assert_eq!(cuda.map(address + part * 2 * MIB, 2 * MIB, handle), 0);
        assert_eq!(cuda.release(handle), 0);
    }
    assert_eq!(cuda.both(), 8 * MIB);
    assert_eq!(cuda.unmap(address + 2 * MIB, 4 * MIB), 0);
    assert_eq!(cuda.both(), 4 * MIB);
    // Nothing is mapped there any more, and nothing changes.
    assert_ne!(cuda.unmap(address + 2 * MIB, 4 * MIB), 0);
    assert_ne!(cuda.unmap(address, 8 * MIB), 0);
    assert_eq!(cuda.both(), 4 * MIB);
    assert_eq!(cuda.unmap(address, 2 * MIB), 0);
    assert_eq!(cuda.unmap(address + 6 * MIB, 2 * MIB), 0);
    assert_eq!(cuda.both(), 0);
}

#[test]
fn memory_that_is_mapped_twice_stays_until_both_are_gone() {
    let cuda = inside!(4 * GIB);
    let addresses = [cuda.reserve(GIB), cuda.reserve(GIB)];
    let handle = cuda.create(GIB, FIRST_GPU).unwrap();
    for address in addresses {
        assert_eq!(cuda.map(address, GIB, handle), 0);
    }
    assert_eq!(cuda.release(handle), 0);
    assert_eq!(cuda.unmap(addresses[0], GIB), 0);
    assert_eq!(cuda.both(), GIB);
    // A failed mapping holds nothing.
    assert_ne!(cuda.map(addresses[0], GIB, handle), 0);
    assert_eq!(cuda.unmap(addresses[1], GIB), 0);
    assert_eq!(cuda.both(), 0);
}

#[test]
fn segments_that_grow_and_shrink_are_counted_to_the_byte() {
    let cuda = inside!(GIB);
    let address = cuda.reserve(GIB);
    let grow = |part: u64| {
        let handle = cuda.create(20 * MIB, FIRST_GPU)?;
        assert_eq!(cuda.map(address + part * 20 * MIB, 20 * MIB, handle), 0);
        assert_eq!(cuda.release(handle), 0);
        Ok(())
    };
    // 724 MiB beside the context.
    for _ in 0..3 {
        for part in 0..36 {
            assert_eq!(grow(part), Ok(()));
        }
        assert_eq!(grow(36), Err(OUT_OF_MEMORY));
        assert_eq!(cuda.both(), 720 * MIB);
        assert_eq!(cuda.unmap(address, 720 * MIB), 0);
        assert_eq!(cuda.both(), 0);
    }
}

#[test]
fn memory_of_the_host_is_not_counted() {
    let cuda = inside!(GIB);
    let handle = cuda.create(8 * GIB, HOST).unwrap();
    let address = cuda.reserve(8 * GIB);
    assert_eq!(cuda.map(address, 8 * GIB, handle), 0);
    assert_eq!(cuda.both(), 0);
    assert_eq!(cuda.release(handle), 0);
    assert_eq!(cuda.unmap(address, 8 * GIB), 0);
    assert_eq!(cuda.both(), 0);
}

#[test]
fn memory_of_another_gpu_without_a_share_is_not_counted() {
    let cuda = inside!(GIB);
    let handle = cuda.create(8 * GIB, crate::cuda::Location { kind: 1, id: 3 }).unwrap();
    assert_eq!(cuda.counted(), 0);
    assert_eq!(cuda.release(handle), 0);
    assert_eq!(cuda.counted(), 0);
}

#[test]
fn a_process_that_imports_its_own_memory_has_it_once_and_as_long() {
    let cuda = inside!(4 * GIB);
    let handle = cuda.create(2 * GIB, FIRST_GPU).unwrap();
    let fd = cuda.export(handle);
    let again = cuda.import(fd).unwrap();
    assert_eq!(cuda.both(), 2 * GIB);
    assert_eq!(cuda.release(handle), 0);
    assert_eq!(cuda.both(), 2 * GIB);
    let address = cuda.reserve(2 * GIB);
    assert_eq!(cuda.map(address, 2 * GIB, again), 0);
    assert_eq!(cuda.release(again), 0);
    assert_eq!(cuda.create(2 * GIB, FIRST_GPU), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.unmap(address, 2 * GIB), 0);
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

#[test]
fn imported_memory_counts_for_its_owner() {
    let cuda = inside!(4 * GIB);
    let handle = cuda.create(2 * GIB, FIRST_GPU).unwrap();
    let fd = cuda.export(handle);
    let path = format!("/proc/{}/fd/{fd}", std::process::id());
    let other = Other::start(&cuda, "vmm::imports_memory", &[("PATH_OF_MEMORY", path)]);
    // Charge of the other process itself.
    assert_eq!(other.ready_line, "0");
    assert_eq!(cuda.counted(), 2 * GIB + crate::cuda::CONTEXT);
    drop(other);
    assert_eq!(cuda.release(handle), 0);
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

#[test]
fn imports_memory() {
    let cuda = role!();
    let before = cuda.counted();
    let path = std::env::var("PATH_OF_MEMORY").unwrap();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let handle = cuda.import(std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap();
    let address = cuda.reserve(2 * GIB);
    assert_eq!(cuda.map(address, 2 * GIB, handle), 0);
    assert_eq!(cuda.release(handle), 0);
    container::ready(&(cuda.counted() - before).to_string());
    assert_eq!(cuda.unmap(address, 2 * GIB), 0);
    assert_eq!(cuda.counted(), before);
}

#[test]
fn threads_that_map_and_release_at_once_leave_nothing_behind() {
    let cuda = inside!(4 * GIB);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let address = cuda.reserve(64 * MIB);
                for _ in 0..300 {
                    let Ok(handle) = cuda.create(64 * MIB, FIRST_GPU) else { continue };
                    assert_eq!(cuda.map(address, 64 * MIB, handle), 0);
                    assert_eq!(cuda.release(handle), 0);
                    assert!(cuda.counted() >= 64 * MIB);
                    assert_eq!(cuda.unmap(address, 64 * MIB), 0);
                }
            });
        }
    });
    assert_eq!(cuda.both(), 0);
}
