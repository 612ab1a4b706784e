//! What the guard has instead of a C library and an allocator.

#[cfg(feature = "library")]
pub(crate) mod asm;
pub(crate) mod elf;
pub(crate) mod ffi;
pub(crate) mod sync;
pub(crate) mod sys;
pub(crate) mod ticks;
