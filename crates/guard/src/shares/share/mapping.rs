//! Files of a share, in memory.

use core::ptr::NonNull;

use crate::platform::sys::file::File;
use crate::platform::sys::{Errno, memory};

/// A file's bytes, until the share that they belong to could not be opened.
pub(super) struct Mapped<T> {
    /// Where.
    pub(super) start: NonNull<T>,
    /// As many as were mapped.
    pub(super) bytes: usize,
}

impl<T> Mapped<T> {
    /// Maps the beginning of a file.
    pub(super) fn of(file: &File, bytes: usize, is_writable: bool) -> Result<Self, Errno> {
        Ok(Self { start: memory::map_file(file, bytes, is_writable)?.cast(), bytes })
    }

    /// What is there.
    pub(super) fn get(&self) -> &T {
        // JUSTIFICATION: files are shared by being mapped.
        // SAFETY: the file is at least as long as a `T` of atomic words, is mapped at a page's beginning and
        // stays so while this value lives. A file that is cut short later faults, in the container that cut it.
        unsafe { self.start.as_ref() }
    }

    /// Leaves it mapped.
    pub(super) fn leak(self) -> &'static T {
        let start = self.start;
        core::mem::forget(self);
        // JUSTIFICATION: as above.
        // SAFETY: as above, and nobody takes it away any more, but where nobody refers to it (`Share::leave`).
        unsafe { start.as_ref() }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // JUSTIFICATION: a process that stays closed tries again with every call.
        // SAFETY: references to it live no longer than this value.
        unsafe { memory::unmap(self.start.cast(), self.bytes) };
    }
}
