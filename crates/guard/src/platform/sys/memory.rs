//! Mappings.

use core::ptr::NonNull;

use super::{Errno, call, file::File, number};

/// Bytes of a page where the guard asks for whole pages: the largest page that either machine is run with.
pub(crate) const PAGE: usize = 65536;

const READ: usize = 1;
const WRITE: usize = 2;
const EXECUTE: usize = 4;
const SHARED: usize = 1;
const PRIVATE: usize = 2;
const ANONYMOUS: usize = 32;
const WIPE_ON_FORK: usize = 18;
const DONT_FORK: usize = 10;

/// New memory, zero.
pub(crate) fn map_anonymous(bytes: usize) -> Result<NonNull<u8>, Errno> {
    let none = usize::MAX;
    pointer(call(number::MMAP, [0, bytes, READ | WRITE, PRIVATE | ANONYMOUS, none, 0])?)
}

/// A file's bytes, map_file with all that map it.
pub(crate) fn map_file(file: &File, bytes: usize, is_writable: bool) -> Result<NonNull<u8>, Errno> {
    let access = if is_writable { READ | WRITE } else { READ };
    pointer(call(number::MMAP, [0, bytes, access, SHARED, file.number(), 0])?)
}

/// Bytes that [`pin_open_file`] maps, of which the kernel makes one page of its own.
pub(crate) const PIN_BYTES: usize = 4096;

/// Keeps an open file open without its descriptor, in this process and in no child of a fork: the kernel gives
/// an open file up with the last that refers to it, and a mapping does. Nobody can read or write through it.
pub(crate) fn pin_open_file(file: &File) -> Result<NonNull<u8>, Errno> {
    const NO_ACCESS: usize = 0;
    let mapped = pointer(call(number::MMAP, [0, PIN_BYTES, NO_ACCESS, SHARED, file.number(), 0])?)?;
    match call(number::MADVISE, [mapped.as_ptr() as usize, PIN_BYTES, DONT_FORK, 0, 0, 0]) {
        Ok(_) => Ok(mapped),
        Err(error) => {
            // JUSTIFICATION: mapped memory is given back by hand.
            // SAFETY: nobody has seen it.
            unsafe { unmap(mapped, PIN_BYTES) };
            Err(error)
        }
    }
}

/// Gives memory of [`map_anonymous`], [`map_file`] or [`pin_open_file`] back.
///
/// # Safety
///
/// Nobody may refer to it any more.
pub(crate) unsafe fn unmap(pointer: NonNull<u8>, bytes: usize) {
    let _ = call(number::MUNMAP, [pointer.as_ptr() as usize, bytes, 0, 0, 0, 0]);
}

/// Lets the kernel empty memory of [`map_anonymous`] in each child of a fork.
pub(crate) fn wipe_on_fork(pointer: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    call(number::MADVISE, [pointer.as_ptr() as usize, bytes, WIPE_ON_FORK, 0, 0, 0]).map(drop)
}

/// What may be done with mapped pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// They may be written.
    pub(crate) write: bool,
    /// They may be run.
    pub(crate) execute: bool,
}

/// Changes what may be done with the pages of an area; all can be read.
///
/// # Safety
///
/// Nothing may depend on the pages being otherwise.
pub(crate) unsafe fn protect(start: usize, bytes: usize, access: Access) -> Result<(), Errno> {
    // The kernel wants the page's first byte; 4,096 divides every page size, and larger pages refuse.
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
