//! Opaque handles of devices and event sets.
//!
//! A handle is a number dressed as a pointer: never followed, only taken apart and checked. It
//! says which copy of the library and which `nvmlInit` it comes from, so that a handle of
//! another copy, or of before a shutdown, is noticed instead of naming some other GPU.

use std::ptr;

use crate::code::Code;

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gpu = 1,
    EventSet = 2,
}

/// Makes and checks the handles of one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handles {
    base: usize,
}

/// Bits for the number within a kind.
const NUMBER_BITS: u32 = 20;
/// Bits for all handles of one session: the number and the kind.
const SESSION_BITS: u32 = NUMBER_BITS + 2;

impl Handles {
    /// Handles of the session number `session` of the library whose anchor lies at `anchor`.
    pub(crate) fn new(anchor: usize, session: u32) -> Self {
        Self { base: anchor.wrapping_add((session as usize) << SESSION_BITS) }
    }

    /// The handle of something.
    pub(crate) fn make<T>(self, kind: Kind, number: u32) -> *mut T {
        let offset = ((kind as usize) << NUMBER_BITS) | number as usize;
        ptr::without_provenance_mut(self.base.wrapping_add(offset))
    }

    /// The number behind a handle of `kind`.
    pub(crate) fn number<T>(self, kind: Kind, handle: *mut T) -> Result<u32, Code> {
        let offset = handle.addr().wrapping_sub(self.base);
        if handle.is_null() || offset >> NUMBER_BITS != kind as usize {
            return Err(Code::INVALID_ARGUMENT);
        }
        u32::try_from(offset & ((1 << NUMBER_BITS) - 1)).map_err(|_| Code::INVALID_ARGUMENT)
    }
}
