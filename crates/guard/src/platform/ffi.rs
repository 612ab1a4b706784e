//! Pointer arguments of C functions.
//!
//! A value of these types is either passed in by a program or made from a reference ([`Out::to`]).
//! By the driver's documentation, a program passes null or a pointer to memory of the documented
//! type. Every unsafe block below relies on that, and the hooks need none.

use core::ffi::CStr;
use core::marker::PhantomData;
use core::ptr;

/// A pointer to a value that is written, or was written.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T: Copy> Out<T> {
    /// Points to a variable of ours, for a call that ends before the variable does.
    pub(crate) fn to(place: &mut T) -> Self {
        Self(place)
    }

    /// A null pointer.
    pub(crate) const fn null() -> Self {
        Self(ptr::null_mut())
    }

    /// Pointer to an element of a list. The program says that the list has more than `index`
    /// elements.
    pub(crate) fn at(self, index: usize) -> Self {
        if self.0.is_null() { self } else { Self(self.0.wrapping_add(index)) }
    }

    /// Whether the pointer is null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Reads the value; `None` if the pointer is null.
    pub(crate) fn read(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // JUSTIFICATION: results of a C function go through the program's pointers.
        // SAFETY: not null, and by contract (see the module) a `T`; the read is unaligned.
        Some(unsafe { self.0.read_unaligned() })
    }

    /// Writes a value; does nothing if the pointer is null.
    pub(crate) fn put(self, value: T) {
        if !self.0.is_null() {
            // JUSTIFICATION: results of a C function go through the program's pointers.
            // SAFETY: not null, and by contract (see the module) memory for a `T`.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

/// A pointer to a structure that a program passes in.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// Reads the value; `None` if the pointer is null.
    pub(crate) fn read(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // JUSTIFICATION: C passes structures by pointer.
        // SAFETY: not null, and by contract (see the module) a `T`; the read is unaligned.
        Some(unsafe { self.0.read_unaligned() })
    }

    /// Element of an array. The program says that the array has more than `index` elements.
    pub(crate) fn element(self, index: usize) -> Option<T> {
        Self(self.0.wrapping_add(index)).read().filter(|_| !self.0.is_null())
    }
}

/// A C string.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Text<'a>(*const core::ffi::c_char, PhantomData<&'a CStr>);

impl Text<'_> {
    /// Its bytes without the final zero; empty for null. At most 255 bytes are read, since no name
    /// of the driver is longer.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.0.is_null() {
            return &[];
        }
        let start = self.0.cast::<u8>();
        let mut length = 0;
        // JUSTIFICATION: C passes strings by pointer.
        // SAFETY: not null, and the program passes a string that ends in zero; no later byte is
        // read.
        while length < 255 && unsafe { start.wrapping_add(length).read() } != 0 {
            length += 1;
        }
        // JUSTIFICATION: as above.
        // SAFETY: these bytes have just been read, and do not change during the call.
        unsafe { core::slice::from_raw_parts(start, length) }
    }
}
