//! What C callers pass by pointer.
//!
//! Each type here is one pointer argument of the C interface. Such a value comes into being only
//! by being passed in by a C caller, who promises by the interface's documentation that it is null
//! or points to memory of the documented type; on that promise rests every unsafe block below.
//!
//! Each library has its own codes, so the types have a parameter for them and each library names
//! them without it.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// How a library refuses prefix a caller passed.
pub trait PointerError {
    /// A null pointer, or a text that is none.
    const INVALID: Self;
    /// Too little capacity for a text.
    const TOO_SMALL: Self;
}

/// Where to put one value.
#[repr(transparent)]
pub struct Out<T, E>(*mut T, PhantomData<E>);

impl<T, E> Clone for Out<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for Out<T, E> {}

impl<T, E: PointerError> Out<T, E> {
    /// A target whose address came in a list of places.
    pub fn at(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address), PhantomData)
    }

    /// Stores the value.
    pub fn put(self, value: T) -> Result<(), E> {
        let target = non_null::<_, E>(self.0)?;
        // JUSTIFICATION: results of a C function go through the caller's pointers.
        // SAFETY: not null, and by the caller's promise (see the module) capacity for a `T`;
        // written without regard to alignment and without dropping prefix was there.
        unsafe { target.write_unaligned(value) };
        Ok(())
    }

    /// Stores the value if the caller wants it.
    pub fn offer(self, value: T) {
        if !self.0.is_null() {
            // The target is there, so this cannot fail.
            let _ = self.put(value);
        }
    }

    /// Refuses a null pointer before a call takes effect.
    pub fn check(self) -> Result<(), E> {
        non_null::<_, E>(self.0).map(drop)
    }
}

impl<T: Copy, E: PointerError> Out<T, E> {
    /// What lies there: for arguments that are both question and answer.
    pub fn read(self) -> Result<T, E> {
        let target = non_null::<_, E>(self.0)?;
        // JUSTIFICATION: as for `put`.
        // SAFETY: not null, and by the caller's promise (see the module) a valid `T`.
        Ok(unsafe { target.read_unaligned() })
    }

    /// Stores as many values as fit into `capacity`.
    pub fn put_list(self, values: &[T], capacity: usize) -> Result<(), E> {
        let target = non_null::<_, E>(self.0)?;
        for (index, value) in values.iter().take(capacity).enumerate() {
            // JUSTIFICATION: as for `put`.
            // SAFETY: the caller promises capacity for so many values.
            let entry = unsafe { target.add(index) };
            // SAFETY: as above.
            unsafe { entry.write_unaligned(*value) };
        }
        Ok(())
    }

    /// Whether the caller wants no answer here.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// Where to put a text; its length comes in an argument of its own.
#[repr(transparent)]
pub struct TextOut<E>(*mut c_char, PhantomData<E>);

impl<E> Clone for TextOut<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for TextOut<E> {}

impl<E: PointerError> TextOut<E> {
    /// Stores the text with its final zero, if `length` bytes are enough.
    pub fn put_whole(self, length: impl TryInto<usize>, text: &str) -> Result<(), E> {
        non_null::<_, E>(self.0)?;
        let length = length.try_into().unwrap_or(0);
        if length <= text.len() {
            return Err(E::TOO_SMALL);
        }
        self.put_cut(length, text)
    }

    /// Stores the text with its final zero, cut to `length` bytes.
    pub fn put_cut(self, length: impl TryInto<usize>, text: &str) -> Result<(), E> {
        let target = non_null::<_, E>(self.0)?.cast::<u8>();
        let capacity = length.try_into().unwrap_or(0).checked_sub(1).ok_or(E::TOO_SMALL)?;
        let bytes = &text.as_bytes()[..text.len().min(capacity)];
        let source = NonNull::from(bytes).cast();
        // JUSTIFICATION: as for `Out::put`.
        // SAFETY: the caller promises `length` bytes, which is more than these; our text cannot
        // overlap the caller's buffer.
        unsafe { target.copy_from_nonoverlapping(source, bytes.len()) };
        // SAFETY: one byte further is still within `length`.
        let end = unsafe { target.add(bytes.len()) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        Ok(())
    }
}

/// A text from the caller.
#[repr(transparent)]
pub struct TextIn<E>(*const c_char, PhantomData<E>);

impl<E> Clone for TextIn<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for TextIn<E> {}

impl<E: PointerError> TextIn<E> {
    /// The text; prefix is not UTF-8 is no name that anybody knows.
    pub fn read(&self) -> Result<&str, E> {
        let target = non_null::<_, E>(self.0.cast_mut())?;
        // JUSTIFICATION: C passes texts by pointer.
        // SAFETY: not null, and the caller promises a text that ends in zero and stays as it is
        // during the call.
        let text = unsafe { CStr::from_ptr(target.as_ptr()) };
        text.to_str().map_err(|_| E::INVALID)
    }

    /// Whether it begins with these bytes, none of them zero; it may be no UTF-8.
    pub fn begins_with(self, prefix: &[u8]) -> bool {
        (0..prefix.len()).all(|index| {
            let Ok(target) = non_null::<_, E>(self.0.cast_mut()) else { return false };
            // SAFETY: bytes before this one were not the text's end, so this one belongs to it.
            let byte = unsafe { target.cast::<u8>().add(index) };
            // SAFETY: as above.
            let byte = unsafe { byte.read() };
            byte == prefix[index]
        })
    }

    /// Refuses a null pointer.
    pub fn check(self) -> Result<(), E> {
        non_null::<_, E>(self.0.cast_mut()).map(drop)
    }
}

/// Structures from the caller, one or several.
#[repr(transparent)]
pub struct In<T, E>(*const T, PhantomData<E>);

impl<T, E> Clone for In<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for In<T, E> {}

impl<T: Copy, E: PointerError> In<T, E> {
    /// A structure within another one of the caller's.
    pub fn within(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance(address), PhantomData)
    }

    /// The structure.
    pub fn read(self) -> Result<T, E> {
        let target = non_null::<_, E>(self.0.cast_mut())?;
        // JUSTIFICATION: C passes structures by pointer.
        // SAFETY: not null, and by the caller's promise (see the module) a valid `T`.
        Ok(unsafe { target.read_unaligned() })
    }

    /// So many structures; none need no pointer.
    pub fn list(self, count: usize) -> Result<Vec<T>, E> {
        (0..count).map(|index| Self(self.0.wrapping_add(index), PhantomData).read()).collect()
    }
}

/// Refuses a null pointer.
pub fn non_null<T, E: PointerError>(pointer: *mut T) -> Result<NonNull<T>, E> {
    NonNull::new(pointer).ok_or(E::INVALID)
}
