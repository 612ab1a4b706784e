//! Pointer arguments of C callers: the types of [`octavo_fake_gpu::pointers`], and those that only
//! NVML has.
//!
//! As there, a value exists only because a C caller passed it. By NVML's documentation it is null
//! or points to memory of the documented type. Every unsafe block below relies on that contract,
//! and the other modules need none.

use std::ffi::{c_uint, c_void};
use std::ptr::NonNull;

use nvml_wrapper_sys::bindings::nvmlFieldValue_t;
use octavo_fake_gpu::pointers::{self, PointerError, non_null};

use crate::code::{CallResult, Code};

/// Output of one value.
pub(crate) type Out<T> = pointers::Out<T, Code>;
/// Output of a text.
pub(crate) type TextOut = pointers::TextOut<Code>;
/// A text argument.
pub(crate) type TextIn = pointers::TextIn<Code>;
/// A structure argument.
pub(crate) type In<T> = pointers::In<T, Code>;

impl PointerError for Code {
    const INVALID: Self = Self::INVALID_ARGUMENT;
    const TOO_SMALL: Self = Self::INSUFFICIENT_SIZE;
}

/// Output of a list whose length only the documentation bounds: the caller has memory for as many
/// entries as the requested profile has.
#[repr(transparent)]
pub(crate) struct ListOut<T>(*mut T);

impl<T> Clone for ListOut<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ListOut<T> {}

impl<T> ListOut<T> {
    /// Writes the values; null means that the caller only wants their number.
    pub(crate) fn put(self, values: impl IntoIterator<Item = T>) {
        let Some(place) = NonNull::new(self.0) else { return };
        for (index, value) in values.into_iter().enumerate() {
            // JUSTIFICATION: results of a C function go through the caller's pointers.
            // SAFETY: by contract there is memory for all entries that NVML documents.
            let entry = unsafe { place.add(index) };
            // SAFETY: as above; the write is unaligned.
            unsafe { entry.write_unaligned(value) };
        }
    }
}

/// Output of a structure whose first member is the version that the caller uses.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Versioned(*mut c_void);

impl Versioned {
    /// Writes `value` if the caller's structure is version `number` of that type.
    pub(crate) fn put<T>(self, number: u32, value: T) -> CallResult {
        let place = non_null::<_, Code>(self.0)?;
        if self.version()? != version_of::<T>(number) {
            return Err(Code::VERSION_MISMATCH);
        }
        // JUSTIFICATION: as for `ListOut::put`.
        // SAFETY: not null, and the caller's version contains the size of a `T`.
        unsafe { place.cast::<T>().write_unaligned(value) };
        Ok(())
    }

    /// Whether the caller's structure is version `number` of type `T`.
    pub(crate) fn is<T>(self, number: u32) -> Result<bool, Code> {
        Ok(self.version()? == version_of::<T>(number))
    }

    fn version(self) -> Result<u32, Code> {
        let place = non_null::<_, Code>(self.0)?;
        // JUSTIFICATION: the version is the caller's input.
        // SAFETY: not null, and every versioned structure starts with this member.
        Ok(unsafe { place.cast::<u32>().read_unaligned() })
    }
}

/// A list of queries with space for their results (`nvmlDeviceGetFieldValues`).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Fields(*mut nvmlFieldValue_t);

impl Fields {
    /// Replaces each of `count` entries by the result of `answer` for its field and scope.
    pub(crate) fn fill(
        self,
        count: c_uint,
        answer: &mut dyn FnMut(u32, u32) -> nvmlFieldValue_t,
    ) -> CallResult {
        let first = non_null::<_, Code>(self.0)?;
        for index in 0..count as usize {
            // JUSTIFICATION: the list belongs to the caller.
            // SAFETY: by contract there are `count` entries.
            let entry = unsafe { first.add(index) };
            // SAFETY: the first two members, both plain numbers, are the caller's input; the others
            // may be uninitialised and are not read.
            let [field, scope] = unsafe { entry.cast::<[u32; 2]>().read_unaligned() };
            let value = answer(field, scope);
            // SAFETY: the caller's entry is output.
            unsafe { entry.write_unaligned(value) };
        }
        Ok(())
    }
}

/// `NVML_STRUCT_VERSION`: the size of the structure with its version in the highest byte.
pub(crate) fn version_of<T>(number: u32) -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX) | (number << 24)
}
