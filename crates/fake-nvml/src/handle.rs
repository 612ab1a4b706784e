//! Opaque handles of devices, their instances and event sets.
//!
//! A handle is a number in a pointer's type: it is never dereferenced, only decoded and checked. It
//! encodes the copy of the library and the `nvmlInit` that it comes from. So a handle of another
//! copy, or from before a shutdown, is detected instead of naming another GPU.

use std::ptr;

use crate::code::Code;

/// Type of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleKind {
    Gpu = 1,
    EventSet = 2,
    GpuInstance = 3,
    ComputeInstance = 4,
    MigDevice = 5,
}

/// A part of a GPU, small enough for the number in a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Index of the GPU.
    pub(crate) gpu: u32,
    pub(crate) gpu_instance: u32,
    /// Zero if the part is a GPU instance.
    pub(crate) compute_instance: u32,
}

impl Part {
    /// Bits for the id of an instance: drivers number 15 GPU instances and 8 compute instances in
    /// each.
    const ID_BITS: u32 = 4;

    fn number(self) -> u32 {
        (self.gpu << Self::ID_BITS | self.gpu_instance) << Self::ID_BITS | self.compute_instance
    }

    fn of_number(number: u32) -> Self {
        let id = |number: u32| number & ((1 << Self::ID_BITS) - 1);
        Self {
            gpu: number >> (2 * Self::ID_BITS),
            gpu_instance: id(number >> Self::ID_BITS),
            compute_instance: id(number),
        }
    }
}

/// Creates and checks the handles of one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handles {
    base: usize,
}

/// Bits for the number within a type.
const NUMBER_BITS: u32 = 20;
/// Bits for all handles of one session: the number and the type.
const SESSION_BITS: u32 = NUMBER_BITS + 3;

impl Handles {
    /// Handles of session `session` of the library whose anchor is at address `anchor`.
    pub(crate) fn new(anchor: usize, session: u32) -> Self {
        Self { base: anchor.wrapping_add((session as usize) << SESSION_BITS) }
    }

    /// The handle of a number.
    pub(crate) fn make<T>(self, kind: HandleKind, number: u32) -> *mut T {
        let offset = ((kind as usize) << NUMBER_BITS) | number as usize;
        ptr::without_provenance_mut(self.base.wrapping_add(offset))
    }

    /// The handle of a part of a GPU.
    pub(crate) fn make_part<T>(self, kind: HandleKind, part: Part) -> *mut T {
        self.make(kind, part.number())
    }

    /// The part of a GPU behind a handle of `kind`.
    pub(crate) fn part<T>(self, kind: HandleKind, handle: *mut T) -> Result<Part, Code> {
        self.number(kind, handle).map(Part::of_number)
    }

    /// The number behind a handle of `kind`.
    pub(crate) fn number<T>(self, kind: HandleKind, handle: *mut T) -> Result<u32, Code> {
        let offset = handle.addr().wrapping_sub(self.base);
        if handle.is_null() || offset >> NUMBER_BITS != kind as usize {
            return Err(Code::INVALID_ARGUMENT);
        }
        u32::try_from(offset & ((1 << NUMBER_BITS) - 1)).map_err(|_| Code::INVALID_ARGUMENT)
    }
}
