//! What C callers pass by pointer.
//!
//! Each type here is one pointer argument of the C interface. Such a value comes into being only
//! by being passed in by a C caller, who promises by CUDA's documentation that it is null or
//! points to memory of the documented type; on that promise rests every unsafe block below.

use std::ffi::{CStr, c_char};
use std::ptr::NonNull;

use crate::code::{Answer, Code};

/// Where to put one value.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// A place whose address came in a list of places.
    pub(crate) fn at(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address))
    }

    /// Stores the value.
    pub(crate) fn put(self, value: T) -> Answer {
        let place = present(self.0)?;
        // JUSTIFICATION: results of a C function go through the caller's pointers.
        // SAFETY: not null, and by the caller's promise (see the module) room for a `T`;
        // written without regard to alignment and without dropping what was there.
        unsafe { place.write_unaligned(value) };
        Ok(())
    }

    /// Stores the value if the caller wants it.
    pub(crate) fn offer(self, value: T) {
        if !self.0.is_null() {
            // The place is there, so this cannot fail.
            let _ = self.put(value);
        }
    }

    /// Refuses a null pointer before a call takes effect.
    pub(crate) fn check(self) -> Answer {
        present(self.0).map(drop)
    }
}

impl<T: Copy> Out<T> {
    /// What lies there: for arguments that are both question and answer.
    pub(crate) fn read(self) -> Result<T, Code> {
        let place = present(self.0)?;
        // JUSTIFICATION: as for `put`.
        // SAFETY: not null, and by the caller's promise (see the module) a valid `T`.
        Ok(unsafe { place.read_unaligned() })
    }

    /// Stores as many values as fit into `room`.
    pub(crate) fn put_list(self, values: &[T], room: usize) -> Answer {
        let place = present(self.0)?;
        for (index, value) in values.iter().take(room).enumerate() {
            // JUSTIFICATION: as for `put`.
            // SAFETY: the caller promises room for so many values.
            let entry = unsafe { place.add(index) };
            // SAFETY: as above.
            unsafe { entry.write_unaligned(*value) };
        }
        Ok(())
    }

    /// Whether the caller wants no answer here.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// Where to put a text; its length comes in an argument of its own.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TextOut(*mut c_char);

impl TextOut {
    /// Stores the text with its final zero, cut to `length` bytes.
    pub(crate) fn put(self, length: i32, text: &str) -> Answer {
        let place = present(self.0)?.cast::<u8>();
        let room = usize::try_from(length).ok().and_then(|length| length.checked_sub(1));
        let room = room.ok_or(Code::INVALID_VALUE)?;
        let bytes = &text.as_bytes()[..text.len().min(room)];
        let source = NonNull::from(bytes).cast();
        // JUSTIFICATION: as for `Out::put`.
        // SAFETY: the caller promises `length` bytes, which is more than these; our text cannot
        // overlap the caller's buffer.
        unsafe { place.copy_from_nonoverlapping(source, bytes.len()) };
        // SAFETY: one byte further is still within `length`.
        let end = unsafe { place.add(bytes.len()) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        Ok(())
    }
}

/// A text from the caller.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TextIn(*const c_char);

impl TextIn {
    /// The text; what is not UTF-8 is no name that anybody knows.
    pub(crate) fn read(&self) -> Result<&str, Code> {
        let place = present(self.0.cast_mut())?;
        // JUSTIFICATION: C passes texts by pointer.
        // SAFETY: not null, and the caller promises a text that ends in zero and stays as it is
        // during the call.
        let text = unsafe { CStr::from_ptr(place.as_ptr()) };
        text.to_str().map_err(|_| Code::INVALID_VALUE)
    }

    /// As many bytes of what may be no text as `length`, up to the first zero.
    pub(crate) fn begins_with(self, what: &[u8]) -> bool {
        (0..what.len()).all(|index| {
            let Ok(place) = present(self.0.cast_mut()) else { return false };
            // SAFETY: bytes before this one were not the text's end, so this one belongs to it.
            let byte = unsafe { place.cast::<u8>().add(index) };
            // SAFETY: as above.
            let byte = unsafe { byte.read() };
            byte == what[index]
        })
    }

    /// Refuses a null pointer.
    pub(crate) fn check(self) -> Answer {
        present(self.0.cast_mut()).map(drop)
    }
}

/// Structures from the caller, one or several.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// A structure within another one of the caller's.
    pub(crate) fn within(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance(address))
    }

    /// The structure.
    pub(crate) fn read(self) -> Result<T, Code> {
        let place = present(self.0.cast_mut())?;
        // JUSTIFICATION: C passes structures by pointer.
        // SAFETY: not null, and by the caller's promise (see the module) a valid `T`.
        Ok(unsafe { place.read_unaligned() })
    }

    /// So many structures; none need no pointer.
    pub(crate) fn list(self, count: usize) -> Result<Vec<T>, Code> {
        (0..count).map(|index| Self(self.0.wrapping_add(index)).read()).collect()
    }
}

fn present<T>(pointer: *mut T) -> Result<NonNull<T>, Code> {
    NonNull::new(pointer).ok_or(Code::INVALID_VALUE)
}
