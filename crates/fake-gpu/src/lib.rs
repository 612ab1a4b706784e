//! A simulated GPU that the processes of a machine share: a file that each of them maps.
//!
//! The chip has memory, and it has time. Memory is counted by process: each has a slot whose
//! number of bytes only it changes, and what all have together never exceeds what there is. Time
//! is work that processes submit and the chip serves, to all that have some alike, as hardware
//! slices time between contexts. Both simulated libraries read the same file, the CUDA one to use
//! the chip and the management one to tell who does.
//!
//! Nothing needs repair after a crash. A process holds a lock on one byte of the file for as long
//! as it lives, on an open file of its own (`F_OFD_SETLK`), so the kernel drops it however the
//! process ends; whoever meets a slot without its lock clears it. The sum of all slots is only a
//! cache, made anew whenever a slot is cleared or the holder of the chip's lock died.
//!
//! The file is trusted: whoever may map it can write anything into it. This is a simulation.
//!
//! What the two libraries have in common at their C interface is here too: where a copy finds its
//! machine ([`place`]), and what callers pass by pointer ([`pointers`]).

mod blocks;
mod clock;
mod file;
mod gpu;
mod history;
mod identity;
mod layout;
pub mod locate;
mod lock;
mod memory;
pub mod pointers;
mod process;
mod process_handle;

pub use blocks::{BlockId, FileIdentity};
pub use gpu::{Clock, FakeGpu};
pub use layout::{BLOCKS, SLOTS};
pub use process::Process;
pub use process_handle::ProcessHandle;

/// Work that never ends, in nanoseconds of chip time: longer than anything that does.
pub const ENDLESS: u64 = 1 << 60;

#[cfg(test)]
mod tests;
