//! The guard: the wall of a share, inside the container.
//!
//! It stands between programs and the driver's `libcuda.so.1` and `libnvidia-ml.so.1`. Small proxies that are
//! mounted in the place of those send the functions that take memory, launch work or tell of memory here; the
//! guard counts, refuses what does not fit, and calls the driver's own. It can be preloaded instead.
//!
//! ```text
//! hooks      the functions that it stands in for; one file a subject
//!   account, allocation, table, context     what is counted, and until when
//!   physical, pools, graph_memory, freed    memory that is more than a pointer
//!   streams, nvml                           what hooks must know of those
//!   gate                                    whether the share may go on
//!   resolve, unknown, preload               how programs come by functions
//! process    what belongs to one process; begins with its first call, anew after a fork
//!   shares, devices                         the files of the shares; which GPU has which
//!   liaison                                 the thread that speaks to the agent
//! driver     the driver's own libraries and functions
//!   elf, sys, sync, ffi, machine            the ground: no C library is needed
//! ```
//!
//! What holds everywhere:
//!
//! - It depends on no C library's version, has no constructors and no thread-local memory, allocates by
//!   mapping pages, and reads no environment: nothing that a tenant sets changes what it does.
//! - It is closed where it is not sure: a share whose files are missing or damaged has no GPU.
//! - No lock is held while the driver is called. What is counted is counted before the driver is asked, and
//!   given back after the driver has it back.
//! - A container may do to its own process and its own state file what it likes. It then harms itself: a state
//!   file that is cut short faults in the processes that map it, one that is overwritten is noticed and
//!   fences the share, and the agent holds what the driver says against what the file says.
//!
//! This crate is a library of Rust only so that it is checked and tested like all others; what containers
//! load is built by `octavo-guard-library` with the feature `library`.

#![no_std]

#[cfg(test)]
extern crate std;

mod agent_link;
mod cuda;
mod devices;
mod driver;
mod gate;
mod hooks;
mod nvml;
mod paths;
mod platform;
#[cfg_attr(
    not(feature = "preload"),
    allow(dead_code, reason = "called by what only the shared object exports")
)]
mod preload;
mod process;
mod resolve;
mod shares;
mod tracking;
#[cfg_attr(
    not(feature = "library"),
    allow(dead_code, reason = "called by what only the shared object exports")
)]
mod unknown;

/// Names of the functions of `libcuda.so.1` that the guard stands in for. The shared object exports each as
/// `octavo_hook_<name>`, and the one that is to be preloaded under its own name, too.
pub const CUDA_HOOKS: &[&str] = &hooks::CUDA_NAMES;

/// Names of the functions of `libnvidia-ml.so.1` that the guard stands in for, exported alike.
pub const NVML_HOOKS: &[&str] = &hooks::NVML_NAMES;

/// Ends the process: there is nobody to tell, and going on could be going past the wall.
#[cfg(all(feature = "library", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        platform::sys::task::abort();
    }
}
