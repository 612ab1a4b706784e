//! Mapped files of a share.

use core::ptr::NonNull;

use crate::platform::sys::file::File;
use crate::platform::sys::{Errno, memory};

/// A mapped file, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapped<T> {
    /// Start of the mapping.
    pub(super) start: NonNull<T>,
    /// Size of the mapping.
    pub(super) bytes: usize,
}

impl<T> Mapped<T> {
    /// Maps the beginning of a file.
    pub(super) fn of(file: &File, bytes: usize, is_writable: bool) -> Result<Self, Errno> {
        Ok(Self { start: memory::map_file(file, bytes, is_writable)?.cast(), bytes })
    }

    /// As above, writable, and in no child of a fork.
    pub(crate) fn of_process(file: &File, bytes: usize) -> Result<Self, Errno> {
        let mapped = Self::of(file, bytes, true)?;
        memory::dont_fork(mapped.start.cast(), bytes)?;
        Ok(mapped)
    }

    /// The content.
    pub(super) fn get(&self) -> &T {
        // JUSTIFICATION: files are shared by mapping them.
        // SAFETY: the file is at least as long as a `T` of atomic words, and is mapped at a page
        // boundary while this value lives. A file that is truncated later faults, in the container
        // that truncated it.
        unsafe { self.start.as_ref() }
    }

    /// Leaves it mapped.
    pub(crate) fn leak(self) -> &'static T {
        let start = self.start;
        core::mem::forget(self);
        // JUSTIFICATION: as above.
        // SAFETY: as above; it is unmapped only in `Share::close`, when no reference is left.
        unsafe { start.as_ref() }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // JUSTIFICATION: a closed process retries with every call.
        // SAFETY: references to it live no longer than this value.
        unsafe { memory::unmap(self.start.cast(), self.bytes) };
    }
}
