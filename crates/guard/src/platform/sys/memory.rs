//! Mappings.

use core::ptr::NonNull;

use super::{Errno, call, file::File, number};

/// Largest page size of the supported machines.
pub(crate) const PAGE: usize = 65536;

const READ: usize = 1;
const WRITE: usize = 2;
const EXECUTE: usize = 4;
const SHARED: usize = 1;
const PRIVATE: usize = 2;
const ANONYMOUS: usize = 32;
const WIPE_ON_FORK: usize = 18;
const DONT_FORK: usize = 10;

/// New zeroed memory.
pub(crate) fn map_anonymous(bytes: usize) -> Result<NonNull<u8>, Errno> {
    let none = usize::MAX;
    pointer(call(number::MMAP, [0, bytes, READ | WRITE, PRIVATE | ANONYMOUS, none, 0])?)
}

/// Maps a file, shared with all that map it.
pub(crate) fn map_file(file: &File, bytes: usize, is_writable: bool) -> Result<NonNull<u8>, Errno> {
    let access = if is_writable { READ | WRITE } else { READ };
    pointer(call(number::MMAP, [0, bytes, access, SHARED, file.number(), 0])?)
}

/// Size of the mapping of [`pin_open_file`], which the kernel rounds up to a page.
pub(crate) const PIN_BYTES: usize = 4096;

/// Keeps an open file open without its descriptor, in this process but in no child of a fork. The
/// kernel closes an open file with its last reference, and a mapping is one. It permits no access.
pub(crate) fn pin_open_file(file: &File) -> Result<NonNull<u8>, Errno> {
    const NO_ACCESS: usize = 0;
    let mapped = pointer(call(number::MMAP, [0, PIN_BYTES, NO_ACCESS, SHARED, file.number(), 0])?)?;
    match dont_fork(mapped, PIN_BYTES) {
        Ok(()) => Ok(mapped),
        Err(error) => {
            // JUSTIFICATION: mapped memory is unmapped by hand.
            // SAFETY: no reference to it exists.
            unsafe { unmap(mapped, PIN_BYTES) };
            Err(error)
        }
    }
}

/// Unmaps memory of [`map_anonymous`], [`map_file`] or [`pin_open_file`].
///
/// # Safety
///
/// No reference to it may be left.
pub(crate) unsafe fn unmap(pointer: NonNull<u8>, bytes: usize) {
    let _ = call(number::MUNMAP, [pointer.as_ptr() as usize, bytes, 0, 0, 0, 0]);
}

/// Leaves memory of [`map_file`] out of each child of a fork.
pub(crate) fn dont_fork(pointer: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    call(number::MADVISE, [pointer.as_ptr() as usize, bytes, DONT_FORK, 0, 0, 0]).map(drop)
}

/// Makes the kernel zero memory of [`map_anonymous`] in each child of a fork.
pub(crate) fn wipe_on_fork(pointer: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    call(number::MADVISE, [pointer.as_ptr() as usize, bytes, WIPE_ON_FORK, 0, 0, 0]).map(drop)
}

/// Access to mapped pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Writable.
    pub(crate) write: bool,
    /// Executable.
    pub(crate) execute: bool,
}

/// Changes the access to the pages of a range; all stay readable.
///
/// # Safety
///
/// Nothing may depend on the previous access.
pub(crate) unsafe fn protect(start: usize, bytes: usize, access: Access) -> Result<(), Errno> {
    // The kernel wants the start of a page. A page size of 4,096 is tried first; kernels with
    // larger pages refuse it.
    let mut allowed = READ;
    if access.write {
        allowed |= WRITE;
    }
    if access.execute {
        allowed |= EXECUTE;
    }
    let mut last = Errno(22);
    for page in [4096, 16384, PAGE] {
        let first = start & !(page - 1);
        match call(number::MPROTECT, [first, start + bytes - first, allowed, 0, 0, 0]) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn pointer(address: usize) -> Result<NonNull<u8>, Errno> {
    NonNull::new(core::ptr::with_exposed_provenance_mut(address)).ok_or(Errno(12))
}
