//! What programs pass by pointer.
//!
//! A value of these types comes into being by being passed in by a program, which promises by the driver's
//! documentation that it is null or points to memory of the documented type, or from a reference of our own
//! ([`Out::to`]). On that rests every unsafe block below, and the hooks need none.

use core::ffi::CStr;
use core::marker::PhantomData;
use core::ptr;

/// Where a value is put, or was put.
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
    /// A place of ours, for a call that ends before the place does.
    pub(crate) fn to(place: &mut T) -> Self {
        Self(place)
    }

    /// No place.
    pub(crate) const fn null() -> Self {
        Self(ptr::null_mut())
    }

    /// The place of an element of a list that the program says has more than `index` elements.
    pub(crate) fn at(self, index: usize) -> Self {
        if self.0.is_null() { self } else { Self(self.0.wrapping_add(index)) }
    }

    /// Whether there is no place.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// What is there; none if there is no place.
    pub(crate) fn read(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // JUSTIFICATION: results of a C function go through the program's pointers.
        // SAFETY: not null, and by the program's promise (see the module) a `T`; read without regard to
        // alignment.
        Some(unsafe { self.0.read_unaligned() })
    }

    /// Puts a value there; nothing if there is no place.
    pub(crate) fn put(self, value: T) {
        if !self.0.is_null() {
            // JUSTIFICATION: results of a C function go through the program's pointers.
            // SAFETY: not null, and by the program's promise (see the module) room for a `T`.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

/// A structure that a program describes something with.
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
    /// What is there; none if there is nothing.
    pub(crate) fn read(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // JUSTIFICATION: C passes structures by pointer.
        // SAFETY: not null, and by the program's promise (see the module) a `T`; read without regard to
        // alignment.
        Some(unsafe { self.0.read_unaligned() })
    }

    /// The element at an index of an array that the program says has more than `index` elements.
    pub(crate) fn element(self, index: usize) -> Option<T> {
        Self(self.0.wrapping_add(index)).read().filter(|_| !self.0.is_null())
    }
}

/// A text that ends in zero.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Text<'a>(*const core::ffi::c_char, PhantomData<&'a CStr>);

impl Text<'_> {
    /// Its bytes without the final zero; empty for none. No text that the driver knows is longer than 255
    /// bytes, and no more are looked at.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.0.is_null() {
            return &[];
        }
        let start = self.0.cast::<u8>();
        let mut length = 0;
        // JUSTIFICATION: C passes texts by pointer.
        // SAFETY: not null, and the program promises a text that ends in zero; no byte behind that is read.
        while length < 255 && unsafe { start.wrapping_add(length).read() } != 0 {
            length += 1;
        }
        // JUSTIFICATION: as above.
        // SAFETY: these bytes have just been read, and stay as they are during the call.
        unsafe { core::slice::from_raw_parts(start, length) }
    }
}
