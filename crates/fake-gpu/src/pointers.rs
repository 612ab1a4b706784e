//! Pointer arguments of C callers.
//!
//! Each type here is one pointer argument of the C interface. A value exists only because a C
//! caller passed it. By the interface's documentation it is null or points to memory of the
//! documented type. Every unsafe block below relies on that contract.
//!
//! Each library has its own error codes, so the types have a parameter for them, and each library
//! has aliases without it.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Errors of a library for invalid arguments.
pub trait PointerError {
    /// A null pointer, or an invalid text.
    const INVALID: Self;
    /// A buffer that is too small for a text.
    const TOO_SMALL: Self;
}

/// Output of one value.
#[repr(transparent)]
pub struct Out<T, E>(*mut T, PhantomData<E>);

impl<T, E> Clone for Out<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for Out<T, E> {}

impl<T, E: PointerError> Out<T, E> {
    /// An output whose address came in a list.
    pub fn at(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address), PhantomData)
    }

    /// Writes the value.
    pub fn put(self, value: T) -> Result<(), E> {
        let target = non_null::<_, E>(self.0)?;
        // JUSTIFICATION: results of a C function go through the caller's pointers.
        // SAFETY: not null, and by contract (see the module) memory for a `T`; the write is
        // unaligned and drops no old value.
        unsafe { target.write_unaligned(value) };
        Ok(())
    }

    /// Writes the value unless the pointer is null.
    pub fn offer(self, value: T) {
        if !self.0.is_null() {
            // The pointer is not null, so this cannot fail.
            let _ = self.put(value);
        }
    }

    /// Rejects a null pointer before a call takes effect.
    pub fn check(self) -> Result<(), E> {
        non_null::<_, E>(self.0).map(drop)
    }
}

impl<T: Copy, E: PointerError> Out<T, E> {
    /// Reads the value: for arguments that are input and output.
    pub fn read(self) -> Result<T, E> {
        let target = non_null::<_, E>(self.0)?;
        // JUSTIFICATION: as for `put`.
        // SAFETY: not null, and by contract (see the module) a valid `T`.
        Ok(unsafe { target.read_unaligned() })
    }

    /// Writes as many values as fit into `capacity`.
    pub fn put_list(self, values: &[T], capacity: usize) -> Result<(), E> {
        let target = non_null::<_, E>(self.0)?;
        for (index, value) in values.iter().take(capacity).enumerate() {
            // JUSTIFICATION: as for `put`.
            // SAFETY: by contract there is memory for `capacity` values.
            let entry = unsafe { target.add(index) };
            // SAFETY: as above.
            unsafe { entry.write_unaligned(*value) };
        }
        Ok(())
    }

    /// Whether the caller passed null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// Output of a text, whose length comes in another argument.
#[repr(transparent)]
pub struct TextOut<E>(*mut c_char, PhantomData<E>);

impl<E> Clone for TextOut<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for TextOut<E> {}

impl<E: PointerError> TextOut<E> {
    /// Writes the text with its final zero, if it fits into `length` bytes.
    pub fn put_whole(self, length: impl TryInto<usize>, text: &str) -> Result<(), E> {
        non_null::<_, E>(self.0)?;
        let length = length.try_into().unwrap_or(0);
        if length <= text.len() {
            return Err(E::TOO_SMALL);
        }
        self.put_cut(length, text)
    }

    /// Writes the text with its final zero, truncated to `length` bytes.
    pub fn put_cut(self, length: impl TryInto<usize>, text: &str) -> Result<(), E> {
        let target = non_null::<_, E>(self.0)?.cast::<u8>();
        let capacity = length.try_into().unwrap_or(0).checked_sub(1).ok_or(E::TOO_SMALL)?;
        let bytes = &text.as_bytes()[..text.len().min(capacity)];
        let source = NonNull::from(bytes).cast();
        // JUSTIFICATION: as for `Out::put`.
        // SAFETY: by contract there are `length` bytes, more than these; the text cannot overlap
        // the caller's buffer.
        unsafe { target.copy_from_nonoverlapping(source, bytes.len()) };
        // SAFETY: one byte further is still within `length`.
        let end = unsafe { target.add(bytes.len()) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        Ok(())
    }
}

/// A text argument.
#[repr(transparent)]
pub struct TextIn<E>(*const c_char, PhantomData<E>);

impl<E> Clone for TextIn<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for TextIn<E> {}

impl<E: PointerError> TextIn<E> {
    /// Reads the text. A text that is not UTF-8 matches no name.
    pub fn read(&self) -> Result<&str, E> {
        let target = non_null::<_, E>(self.0.cast_mut())?;
        // JUSTIFICATION: C passes texts by pointer.
        // SAFETY: not null, and by contract a text that ends in zero and does not change during the
        // call.
        let text = unsafe { CStr::from_ptr(target.as_ptr()) };
        text.to_str().map_err(|_| E::INVALID)
    }

    /// Whether it begins with these non-zero bytes. It need not be UTF-8.
    pub fn begins_with(self, prefix: &[u8]) -> bool {
        (0..prefix.len()).all(|index| {
            let Ok(target) = non_null::<_, E>(self.0.cast_mut()) else { return false };
            // SAFETY: no earlier byte ended the text, so this one belongs to it.
            let byte = unsafe { target.cast::<u8>().add(index) };
            // SAFETY: as above.
            let byte = unsafe { byte.read() };
            byte == prefix[index]
        })
    }

    /// Rejects a null pointer.
    pub fn check(self) -> Result<(), E> {
        non_null::<_, E>(self.0.cast_mut()).map(drop)
    }
}

/// One or several structures from the caller.
#[repr(transparent)]
pub struct In<T, E>(*const T, PhantomData<E>);

impl<T, E> Clone for In<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for In<T, E> {}

impl<T: Copy, E: PointerError> In<T, E> {
    /// A structure within another structure of the caller.
    pub fn within(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance(address), PhantomData)
    }

    /// Reads the structure.
    pub fn read(self) -> Result<T, E> {
        let target = non_null::<_, E>(self.0.cast_mut())?;
        // JUSTIFICATION: C passes structures by pointer.
        // SAFETY: not null, and by contract (see the module) a valid `T`.
        Ok(unsafe { target.read_unaligned() })
    }

    /// Whether the caller passed null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Reads `count` structures; zero structures need no pointer.
    pub fn list(self, count: usize) -> Result<Vec<T>, E> {
        (0..count).map(|index| Self(self.0.wrapping_add(index), PhantomData).read()).collect()
    }
}

/// Rejects a null pointer.
pub fn non_null<T, E: PointerError>(pointer: *mut T) -> Result<NonNull<T>, E> {
    NonNull::new(pointer).ok_or(E::INVALID)
}
