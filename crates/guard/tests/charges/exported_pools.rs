//! Pools whose memory is shared with other processes.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::container::Other;
use crate::cuda::{CONTEXT, Cuda, FIRST_GPU, GIB, ok};
use crate::{call, inside, role};

impl Cuda {
    fn export_pool(&self, pool: usize) -> Result<OwnedFd, u32> {
        let mut fd = -1;
        let code = call!(self, cuMemPoolExportToShareableHandle(
            &raw mut fd => *mut i32, pool => usize, 1 => u32, 0 => u64));
        ok(code, fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn import_pool(&self, fd: &impl AsRawFd) -> usize {
        let mut pool = 0;
        let code = call!(self, cuMemPoolImportFromShareableHandle(
            &raw mut pool => *mut usize, fd.as_raw_fd() => i32, 1 => u32, 0 => u64));
        ok(code, pool).unwrap()
    }

    fn export_pointer(&self, address: u64) -> [u64; 8] {
        let mut data = [0; 8];
        let code = call!(self, cuMemPoolExportPointer(
            &raw mut data => *mut [u64; 8], address => u64));
        ok(code, data).unwrap()
    }

    fn import_pointer(&self, pool: usize, data: [u64; 8]) -> u64 {
        let mut address = 0;
        let code = call!(self, cuMemPoolImportPointer(
            &raw mut address => *mut u64, pool => usize, &raw const data => *const [u64; 8]));
        ok(code, address).unwrap()
    }
}

#[test]
fn what_a_pool_had_that_was_exported_stays_counted() {
    let cuda = inside!(4 * GIB);
    let pool = cuda.pool(FIRST_GPU).unwrap();
    let fd = cuda.export_pool(pool).unwrap();
    let address = cuda.allocate_async(GIB, Some(pool), 0).unwrap();
    let data = cuda.export_pointer(address);
    let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let data = data.map(|word| word.to_string()).join(" ");
    let arguments = [("PATH_OF_POOL", path), ("POINTER_OF_POOL", data)];
    let other = Other::start(&cuda, "exported_pools::imports_a_pool", &arguments);
    assert_eq!(other.ready_line, "0", "it is counted once");
    assert_eq!(cuda.free_async(address, 0), 0);
    assert_eq!(cuda.trim(pool), 0);
    assert_eq!((cuda.counted(), cuda.used()), (GIB + CONTEXT, GIB + CONTEXT));
    // It is charged for its peak size, and not for the sum of its allocations.
    let address = cuda.allocate_async(2 * GIB, Some(pool), 0).unwrap();
    assert_eq!(cuda.free_async(address, 0), 0);
    assert_eq!(call!(cuda, cuMemPoolDestroy(pool => usize)), 0);
    assert_eq!(cuda.counted(), 2 * GIB + CONTEXT);
    drop(other);
    assert_eq!((cuda.counted() - CONTEXT, cuda.used()), (2 * GIB, 0));
}

#[test]
fn imports_a_pool() {
    let cuda = role!();
    let before = cuda.counted();
    let path = std::env::var("PATH_OF_POOL").unwrap();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let pool = cuda.import_pool(&file);
    let mut data = [0; 8];
    let text = std::env::var("POINTER_OF_POOL").unwrap();
    for (word, number) in data.iter_mut().zip(text.split(' ')) {
        *word = number.parse().unwrap();
    }
    let address = cuda.import_pointer(pool, data);
    crate::container::ready(&(cuda.counted() - before).to_string());
    assert_eq!(cuda.free_async(address, 0), 0);
    assert_eq!(call!(cuda, cuMemPoolDestroy(pool => usize)), 0);
}

#[test]
fn a_pool_that_could_not_be_exported_is_as_it_was() {
    let cuda = inside!(4 * GIB);
    let pool = cuda.default_pool();
    assert!(cuda.export_pool(pool).is_err());
    let address = cuda.allocate_async(GIB, Some(pool), 0).unwrap();
    assert_eq!(cuda.free_async(address, 0), 0);
    assert_eq!(cuda.trim(pool), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}
