//! Memory that is exported to other processes.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::container::Other;
use crate::cuda::{CONTEXT, Cuda, FIRST_GPU, GIB, MIB, OUT_OF_MEMORY};
use crate::{call, inside};

impl Cuda {
    /// Exports memory and closes the descriptor.
    fn export_for_a_moment(&self, handle: u64) {
        drop(unsafe { OwnedFd::from_raw_fd(self.export(handle)) });
    }

    /// Another process that has imported two gibibytes and mapped them.
    fn importing(&self, handle: u64) -> Other {
        let fd = unsafe { OwnedFd::from_raw_fd(self.export(handle)) };
        let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
        Other::start(self, "vmm::imports_memory", &[("PATH_OF_MEMORY", path)])
    }
}

#[test]
fn what_was_exported_is_not_held_when_no_process_has_it_any_more() {
    let cuda = inside!(4 * GIB);
    let address = cuda.reserve(GIB);
    for turn in 0..50 {
        let handle = cuda.create(GIB, FIRST_GPU).unwrap();
        cuda.export_for_a_moment(handle);
        // The last part of it is a handle or a mapping.
        if turn % 2 == 0 {
            assert_eq!(cuda.map(address, GIB, handle), 0);
        }
        assert_eq!((cuda.counted(), cuda.used()), (GIB, GIB));
        assert_eq!(cuda.release(handle), 0);
        if turn % 2 == 0 {
            assert_eq!((cuda.counted(), cuda.used()), (GIB, GIB));
            assert_eq!(cuda.unmap(address, GIB), 0);
        }
        assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    }
}

#[test]
fn several_that_were_exported_end_together() {
    let cuda = inside!(4 * GIB);
    let address = cuda.reserve(GIB);
    for part in 0..4 {
        let handle = cuda.create(GIB / 4, FIRST_GPU).unwrap();
        cuda.export_for_a_moment(handle);
        assert_eq!(cuda.map(address + part * (GIB / 4), GIB / 4, handle), 0);
        assert_eq!(cuda.release(handle), 0);
    }
    assert_eq!((cuda.counted(), cuda.used()), (GIB, GIB));
    assert_eq!(cuda.unmap(address, GIB), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn what_is_freed_beside_it_is_not_taken_for_what_another_process_has() {
    let cuda = inside!(8 * GIB);
    let address = cuda.reserve(4 * GIB);
    let plain = cuda.create(2 * GIB, FIRST_GPU).unwrap();
    let exported = cuda.create(2 * GIB, FIRST_GPU).unwrap();
    let other = cuda.importing(exported);
    for (place, handle) in [(address, plain), (address + 2 * GIB, exported)] {
        assert_eq!(cuda.map(place, 2 * GIB, handle), 0);
        assert_eq!(cuda.release(handle), 0);
    }
    assert_eq!(cuda.unmap(address, 4 * GIB), 0);
    assert_eq!((cuda.counted(), cuda.used()), (2 * GIB + CONTEXT, 2 * GIB + CONTEXT));
    drop(other);
}

#[test]
fn what_another_process_has_still_stays_counted() {
    let cuda = inside!(4 * GIB);
    let handle = cuda.create(2 * GIB, FIRST_GPU).unwrap();
    let other = cuda.importing(handle);
    assert_eq!(cuda.release(handle), 0);
    assert_eq!((cuda.counted(), cuda.used()), (2 * GIB + CONTEXT, 2 * GIB + CONTEXT));
    assert_eq!(cuda.create(2 * GIB, FIRST_GPU), Err(OUT_OF_MEMORY));
    // Nothing reports that it has freed it.
    drop(other);
    assert_eq!((cuda.counted() - CONTEXT, cuda.used()), (2 * GIB, 0));
}

#[test]
fn what_was_exported_stays_counted_under_whatever_descriptor() {
    let cuda = inside!(4 * GIB);
    let handle = cuda.create(2 * GIB, FIRST_GPU).unwrap();
    let fd = unsafe { OwnedFd::from_raw_fd(cuda.export(handle)) };
    let other = fd.try_clone().unwrap();
    drop(fd);
    let again = cuda.import(other.as_raw_fd()).unwrap();
    // Another export adds no hold.
    drop(unsafe { OwnedFd::from_raw_fd(cuda.export(handle)) });
    assert_eq!(cuda.both(), 2 * GIB);
    assert_eq!(cuda.release(handle), 0);
    assert_eq!(cuda.both(), 2 * GIB);
    assert_eq!(cuda.create(2 * GIB, FIRST_GPU), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.release(again), 0);
    // Nothing tells that the last descriptor is closed.
    drop(other);
    assert_eq!(cuda.counted(), 2 * GIB);
}

#[test]
fn what_was_exported_stays_counted_when_its_handle_is_of_other_memory() {
    let cuda = inside!(4 * GIB);
    let handle = cuda.create(2 * GIB, FIRST_GPU).unwrap();
    let other = cuda.importing(handle);
    assert_eq!(cuda.release(handle), 0);
    // The driver reuses handles after this many.
    let comes_again = (0..70_000).any(|_| {
        let other = cuda.create(2 * MIB, FIRST_GPU).unwrap();
        assert_eq!(cuda.release(other), 0);
        other == handle
    });
    assert!(comes_again);
    assert_eq!(cuda.counted(), 2 * GIB + CONTEXT);
    drop(other);
}

#[test]
fn what_cannot_be_exported_is_not_held() {
    let cuda = inside!(4 * GIB);
    let handle = cuda.create(2 * GIB, FIRST_GPU).unwrap();
    let mut fd = -1;
    // An invalid handle type.
    let code = call!(cuda, cuMemExportToShareableHandle(
        &raw mut fd => *mut i32, handle => u64, 2 => u32, 0 => u64));
    assert_ne!(code, 0);
    assert_eq!(cuda.release(handle), 0);
    assert_eq!(cuda.both(), 0);
}
