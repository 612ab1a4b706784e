//! What C callers pass by pointer.
//!
//! Each type here is one pointer argument of the C interface. Such a value comes into being only
//! by being passed in by a C caller, who promises by NVML's documentation that it is null or
//! points to memory of the documented type; on that promise rests every unsafe block below, and
//! the rest of the crate needs none.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr::NonNull;

use nvml_wrapper_sys::bindings::nvmlFieldValue_t;

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
    /// Stores the value.
    pub(crate) fn put(self, value: T) -> Answer {
        let place = present(self.0)?;
        // JUSTIFICATION: results of a C function go through the caller's pointers.
        // SAFETY: not null, and by the caller's promise (see the module) room for a `T`;
        // written without regard to alignment and without dropping what was there.
        unsafe { place.write_unaligned(value) };
        Ok(())
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
}

/// Where to put a text; its length comes in an argument of its own.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TextOut(*mut c_char);

impl TextOut {
    /// Stores the text with its final zero, if `length` bytes are enough.
    pub(crate) fn put(self, length: c_uint, text: &str) -> Answer {
        let place = present(self.0)?.cast::<u8>();
        if (length as usize) <= text.len() {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        let source = NonNull::from(text.as_bytes());
        // JUSTIFICATION: as for `Out::put`.
        // SAFETY: the caller promises `length` bytes, which is more than the text has; our text
        // cannot overlap the caller's buffer.
        unsafe { place.copy_from_nonoverlapping(source.cast(), text.len()) };
        // SAFETY: one byte further is still within `length`.
        let end = unsafe { place.add(text.len()) };
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
    /// The text; what is not UTF-8 is no name that NVML knows.
    pub(crate) fn read(&self) -> Result<&str, Code> {
        let place = present(self.0.cast_mut())?;
        // JUSTIFICATION: C passes texts by pointer.
        // SAFETY: not null, and the caller promises a text that ends in zero and stays as it is
        // during the call.
        let text = unsafe { CStr::from_ptr(place.as_ptr()) };
        text.to_str().map_err(|_| Code::INVALID_ARGUMENT)
    }
}

/// Where to put a list whose length only its documentation bounds: callers have room for as many
/// entries as the profile that they ask for has.
#[repr(transparent)]
pub(crate) struct ListOut<T>(*mut T);

impl<T> Clone for ListOut<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ListOut<T> {}

impl<T> ListOut<T> {
    /// Stores the values, unless the pointer is null: then the caller only wants their number.
    pub(crate) fn put(self, values: impl IntoIterator<Item = T>) {
        let Some(place) = NonNull::new(self.0) else { return };
        for (index, value) in values.into_iter().enumerate() {
            // JUSTIFICATION: as for `Out::put`.
            // SAFETY: the caller promises room for all that NVML documents to come.
            let entry = unsafe { place.add(index) };
            // SAFETY: as above; written without regard to alignment.
            unsafe { entry.write_unaligned(value) };
        }
    }
}

/// A structure from the caller.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// The structure.
    pub(crate) fn read(self) -> Result<T, Code> {
        let place = present(self.0.cast_mut())?;
        // JUSTIFICATION: C passes structures by pointer.
        // SAFETY: not null, and by the caller's promise (see the module) a valid `T`.
        Ok(unsafe { place.read_unaligned() })
    }
}

/// Where to put a structure whose first member says which version of it the caller knows.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Versioned(*mut c_void);

impl Versioned {
    /// Stores `value` if the caller's structure is version `number` of that type.
    pub(crate) fn put<T>(self, number: u32, value: T) -> Answer {
        let place = present(self.0)?;
        if self.version()? != version_of::<T>(number) {
            return Err(Code::VERSION_MISMATCH);
        }
        // JUSTIFICATION: as for `Out::put`.
        // SAFETY: not null, and the version that the caller wrote holds the size of a `T`.
        unsafe { place.cast::<T>().write_unaligned(value) };
        Ok(())
    }

    /// Whether the caller's structure is version `number` of type `T`.
    pub(crate) fn is<T>(self, number: u32) -> Result<bool, Code> {
        Ok(self.version()? == version_of::<T>(number))
    }

    fn version(self) -> Result<u32, Code> {
        let place = present(self.0)?;
        // JUSTIFICATION: the version is the caller's input.
        // SAFETY: not null, and every versioned structure starts with this member.
        Ok(unsafe { place.cast::<u32>().read_unaligned() })
    }
}

/// A list of questions with room for their answers (`nvmlDeviceGetFieldValues`).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Fields(*mut nvmlFieldValue_t);

impl Fields {
    /// Replaces each of `count` entries by what `answer` makes of its field and scope.
    pub(crate) fn fill(
        self,
        count: c_uint,
        answer: &mut dyn FnMut(u32, u32) -> nvmlFieldValue_t,
    ) -> Answer {
        let first = present(self.0)?;
        for index in 0..count as usize {
            // JUSTIFICATION: the list is the caller's.
            // SAFETY: the caller promises `count` entries.
            let entry = unsafe { first.add(index) };
            // SAFETY: the first two members, both plain numbers, are the caller's question; the
            // rest may be uninitialised and is not read.
            let [field, scope] = unsafe { entry.cast::<[u32; 2]>().read_unaligned() };
            let value = answer(field, scope);
            // SAFETY: the entry is the caller's, to be overwritten.
            unsafe { entry.write_unaligned(value) };
        }
        Ok(())
    }
}

/// `NVML_STRUCT_VERSION`: the size of the structure with its version above.
pub(crate) fn version_of<T>(number: u32) -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX) | (number << 24)
}

fn present<T>(pointer: *mut T) -> Result<NonNull<T>, Code> {
    NonNull::new(pointer).ok_or(Code::INVALID_ARGUMENT)
}
