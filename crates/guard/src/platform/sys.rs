//! The kernel, asked without a C library.
//!
//! A C library's wrappers would bring a C library's versions with them, and set the program's `errno` behind
//! its back. Everything here is async-signal-safe.

use core::ffi::CStr;

#[cfg(target_arch = "aarch64")]
#[path = "sys/aarch64.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "sys/x86_64.rs"]
mod machine;

pub(crate) mod file;
pub(crate) mod futex;
pub(crate) mod memory;
pub(crate) mod socket;
pub(crate) mod task;

use machine::{number, syscall};

/// Why a call failed, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const INTR: Self = Self(4);
    pub(crate) const AGAIN: Self = Self(11);
}

/// What a call gave: the kernel's last 4,095 numbers are errors.
fn to_result(value: isize) -> Result<usize, Errno> {
    match usize::try_from(value) {
        Ok(value) => Ok(value),
        Err(_) => Err(Errno(i32::try_from(-value).unwrap_or(i32::MAX))),
    }
}

/// Calls that touch no memory of ours but what they are given to read or fill: each caller below hands in
/// places that live through the call.
fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    // JUSTIFICATION: there is no other way into the kernel without a C library.
    // SAFETY: only the modules below call this, with numbers and arguments that fit each other; the pointers
    // among them come from references that outlive the call.
    to_result(unsafe { syscall(number, arguments) })
}

/// The address of a text, as an argument.
fn address_of(text: &CStr) -> usize {
    text.as_ptr() as usize
}
