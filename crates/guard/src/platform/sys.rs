//! System calls without a C library.
//!
//! Wrappers of a C library would depend on its version and overwrite the program's `errno`.
//! Everything here is async-signal-safe.

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

/// Error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const INTR: Self = Self(4);
    pub(crate) const AGAIN: Self = Self(11);
}

/// Result of a call: the highest 4,095 values are errors.
fn to_result(value: isize) -> Result<usize, Errno> {
    match usize::try_from(value) {
        Ok(value) => Ok(value),
        Err(_) => Err(Errno(i32::try_from(-value).unwrap_or(i32::MAX))),
    }
}

/// A call that touches only memory in its arguments. Each caller below passes memory that outlives
/// the call.
fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    // JUSTIFICATION: there is no other way into the kernel without a C library.
    // SAFETY: only the modules below call this, with matching numbers and arguments; the pointers
    // among them come from references that outlive the call.
    to_result(unsafe { syscall(number, arguments) })
}

/// Address of a string, as an argument.
fn address_of(text: &CStr) -> usize {
    text.as_ptr() as usize
}
