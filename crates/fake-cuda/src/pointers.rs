//! What C callers pass by pointer, refused with CUDA's codes.

use octavo_fake_gpu::pointers::{self, PointerError};

use crate::code::Code;

/// Where to put one value.
pub(crate) type Out<T> = pointers::Out<T, Code>;
/// Where to put a text.
pub(crate) type TextOut = pointers::TextOut<Code>;
/// A text from the caller.
pub(crate) type TextIn = pointers::TextIn<Code>;
/// Structures from the caller, one or several.
pub(crate) type In<T> = pointers::In<T, Code>;

impl PointerError for Code {
    const INVALID: Self = Self::INVALID_VALUE;
    const TOO_SMALL: Self = Self::INVALID_VALUE;
}
