//! Pointer arguments of C callers, with CUDA's error codes.

use octavo_fake_gpu::pointers::{self, PointerError};

use crate::code::Code;

/// Output of one value.
pub(crate) type Out<T> = pointers::Out<T, Code>;
/// Output of a text.
pub(crate) type TextOut = pointers::TextOut<Code>;
/// A text argument.
pub(crate) type TextIn = pointers::TextIn<Code>;
/// One or several structure arguments.
pub(crate) type In<T> = pointers::In<T, Code>;

impl PointerError for Code {
    const INVALID: Self = Self::INVALID_VALUE;
    const TOO_SMALL: Self = Self::INVALID_VALUE;
}
