//! Virtual memory management.

use crate::call;
use crate::node::{CONTEXT, Cuda, GIB, INVALID_VALUE, MIB, Node, OUT_OF_MEMORY};

impl Cuda {
    /// Memory that can be exported as a file descriptor.
    pub(crate) fn create(&self, size: u64) -> Result<usize, u32> {
        self.create_for(1, size)
    }

    /// Pinned memory on device 0 that can be exported by these types of handles.
    pub(crate) fn create_for(&self, handle_types: u32, size: u64) -> Result<usize, u32> {
        let prop: [u32; 8] = [1, handle_types, 1, 0, 0, 0, 0, 0];
        let mut handle = 0_usize;
        match call!(self, cuMemCreate(
            &raw mut handle => *mut usize, size => u64, prop.as_ptr() => *const u32, 0 => u64))
        {
            0 => Ok(handle),
            code => Err(code),
        }
    }

    pub(crate) fn reserve(&self, size: u64) -> u64 {
        let mut address = 0_u64;
        let code = call!(self, cuMemAddressReserve(
            &raw mut address => *mut u64, size => u64, 0 => usize, 0 => u64, 0 => u64));
        assert_eq!(code, 0);
        address
    }

    pub(crate) fn map(&self, address: u64, size: u64, handle: usize) -> u32 {
        call!(self, cuMemMap(
            address => u64, size => u64, 0 => usize, handle => usize, 0 => u64))
    }

    pub(crate) fn allow(&self, address: u64, size: u64) -> u32 {
        let access: [u32; 3] = [1, 0, 3];
        call!(self, cuMemSetAccess(
            address => u64, size => u64, access.as_ptr() => *const u32, 1 => usize))
    }

    pub(crate) fn unmap(&self, address: u64, size: u64) -> u32 {
        call!(self, cuMemUnmap(address => u64, size => u64))
    }

    pub(crate) fn release(&self, handle: usize) -> u32 {
        call!(self, cuMemRelease(handle => usize))
    }
}

#[test]
fn memory_lives_until_its_last_handle_and_mapping_are_gone() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let handle = cuda.create(GIB).unwrap();
    assert_eq!(cuda.used(), CONTEXT + GIB);
    let address = cuda.reserve(2 * GIB);
    assert_eq!(cuda.used(), CONTEXT + GIB, "addresses are no memory");
    assert_eq!(cuda.map(address, GIB, handle), 0);
    assert_eq!(cuda.release(handle), 0);
    assert_eq!(cuda.used(), CONTEXT + GIB, "it is mapped still");
    let mut again = 0_usize;
    let code = call!(cuda, cuMemRetainAllocationHandle(
        &raw mut again => *mut usize, address + MIB => u64));
    assert_eq!((code, again), (0, handle));
    assert_eq!(cuda.unmap(address, GIB), 0);
    assert_eq!(cuda.used(), CONTEXT + GIB, "there is a handle still");
    assert_eq!(cuda.release(again), 0);
    assert_eq!(cuda.used(), CONTEXT);
    assert_eq!(cuda.release(handle), INVALID_VALUE);
    assert_eq!(call!(cuda, cuMemAddressFree(address => u64, 2 * GIB => u64)), 0);
}

#[test]
fn mapped_memory_can_be_used_once_access_is_given() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let handle = cuda.create(4 * MIB).unwrap();
    let address = cuda.reserve(8 * MIB);
    assert_eq!(cuda.upload(address, b"no"), INVALID_VALUE);
    assert_eq!(cuda.map(address + 4 * MIB, 4 * MIB, handle), 0);
    assert_eq!(cuda.upload(address + 4 * MIB, b"no"), INVALID_VALUE);
    assert_eq!(cuda.allow(address + 4 * MIB, 4 * MIB), 0);
    assert_eq!(cuda.upload(address + 4 * MIB, b"yes"), 0);
    assert_eq!(cuda.unmap(address + 4 * MIB, 4 * MIB), 0);
    // Memory mapped twice is the same memory.
    assert_eq!(cuda.map(address, 4 * MIB, handle), 0);
    assert_eq!(cuda.allow(address, 4 * MIB), 0);
    assert_eq!(cuda.download(address, 3).unwrap(), b"yes");
}

#[test]
fn what_does_not_fit_is_refused() {
    let node = Node::new("t4");
    let cuda = node.ready();
    assert_eq!(cuda.create(64 * GIB), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.create(MIB), Err(INVALID_VALUE), "less than the granularity");
    let handle = cuda.create(4 * MIB).unwrap();
    let address = cuda.reserve(4 * MIB);
    assert_eq!(cuda.map(address, 6 * MIB, handle), INVALID_VALUE);
    assert_eq!(cuda.map(address + 4 * MIB, 2 * MIB, handle), INVALID_VALUE);
    assert_eq!(cuda.map(address, 4 * MIB, handle), 0);
    assert_eq!(cuda.map(address, 4 * MIB, handle), INVALID_VALUE, "something is mapped there");
    assert_eq!(cuda.unmap(address, 2 * MIB), INVALID_VALUE, "half of a mapping");
    let freed = call!(cuda, cuMemAddressFree(address => u64, 4 * MIB => u64));
    assert_eq!(freed, INVALID_VALUE);
    let mut granularity = 0_usize;
    let prop: [u32; 8] = [1, 1, 1, 0, 0, 0, 0, 0];
    let code = call!(cuda, cuMemGetAllocationGranularity(
        &raw mut granularity => *mut usize, prop.as_ptr() => *const u32, 0 => u32));
    assert_eq!((code, granularity), (0, 2 << 20));
}

#[test]
fn memory_of_the_host_takes_none_of_the_device() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let prop: [u32; 8] = [1, 1, 3, 0, 0, 0, 0, 0];
    let mut handle = 0_usize;
    let code = call!(cuda, cuMemCreate(
        &raw mut handle => *mut usize, 64 * GIB => u64, prop.as_ptr() => *const u32, 0 => u64));
    assert_eq!((code, cuda.used()), (0, CONTEXT));
}

#[test]
fn an_exported_handle_is_the_same_memory_in_another_process() {
    let node = Node::new("t4");
    // To the GPU, two copies of the library are two processes.
    let one = node.ready();
    let other = Node { folder: tempfile::tempdir().unwrap() };
    for file in ["libcuda.so.1", "machine.yaml"] {
        std::fs::copy(node.folder.path().join(file), other.folder.path().join(file)).unwrap();
    }
    std::os::unix::fs::symlink(node.folder.path().join("chip"), other.folder.path().join("chip"))
        .unwrap();
    let two = other.ready();
    let handle = one.create(4 * MIB).unwrap();
    let (address, mut fd) = (one.reserve(4 * MIB), -1);
    assert_eq!((one.map(address, 4 * MIB, handle), one.allow(address, 4 * MIB)), (0, 0));
    assert_eq!(one.upload(address, b"shared"), 0);
    let code = call!(one, cuMemExportToShareableHandle(
        &raw mut fd => *mut i32, handle => usize, 1 => u32, 0 => u64));
    assert_eq!(code, 0);
    let mut imported = 0_usize;
    let code = call!(two, cuMemImportFromShareableHandle(
        &raw mut imported => *mut usize, usize::try_from(fd).unwrap() => usize, 1 => u32));
    assert_eq!(code, 0);
    assert_eq!(two.used(), 2 * CONTEXT + 4 * MIB, "it is one memory");
    let there = two.reserve(4 * MIB);
    assert_eq!((two.map(there, 4 * MIB, imported), two.allow(there, 4 * MIB)), (0, 0));
    assert_eq!(two.download(there, 6).unwrap(), b"shared");
    assert_eq!((one.unmap(address, 4 * MIB), one.release(handle)), (0, 0));
    assert_eq!(two.used(), 2 * CONTEXT + 4 * MIB, "the other one has it still");
    assert_eq!((two.unmap(there, 4 * MIB), two.release(imported)), (0, 0));
    assert_eq!(two.used(), 2 * CONTEXT);
}
