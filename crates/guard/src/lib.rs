//! The guard: enforces the limits of a share inside the container.
//!
//! It stands between programs and the driver's `libcuda.so.1` and `libnvidia-ml.so.1`. Small
//! proxies are mounted in place of these libraries. They forward the functions that take memory,
//! launch work or report memory to the guard. The guard counts, refuses what does not fit, and
//! calls the driver. It can be preloaded instead.
//!
//! ```text
//! hooks        the hooked functions; one file per subject
//!   gate       whether the share may go on
//!   leases     whether this process may launch now: GPU time
//!   nvml       helpers of the NVML hooks
//!   resolve, unknown, preload      how programs look functions up
//! tracking     what is charged, and until when
//! movable      plain memory that the guard moves to the host and back
//! process      state of one process; starts with its first call, and again after a fork
//!   shares, devices, paths         files of the shares; the shares of each GPU
//!   agent_link                     the thread that reports to the agent
//! driver       the driver's own libraries and functions
//! platform     system calls, ELF, locks: no C library is needed
//! ```
//!
//! Invariants:
//!
//! - It depends on no version of a C library. It has no constructors and no thread-local memory,
//!   allocates by mapping pages, and reads no environment: no setting of a tenant changes its
//!   behaviour.
//! - It fails closed: a share with missing or damaged files has no GPU.
//! - No lock is held during a call to the driver. A charge precedes the driver's allocation, and
//!   its release follows the driver's free.
//! - A container may modify its own process and its own state file, but only harms itself. A
//!   truncated state file faults in the processes that map it. An overwritten one is detected and
//!   fences the share. The agent compares the driver's counts with those in the file.
//!
//! This crate is a Rust library only to be checked and tested like all others.
//! `octavo-embedded` builds the shared object for containers with the feature `library`.

#![no_std]

#[cfg(test)]
extern crate std;

mod agent_link;
mod cuda;
mod devices;
mod driver;
mod gate;
mod hooks;
mod leases;
mod movable;
mod nvml;
mod paths;
mod platform;
#[cfg_attr(
    not(feature = "preload"),
    allow(dead_code, reason = "called only by exports of the shared object")
)]
mod preload;
mod process;
mod resolve;
mod shares;
mod tracking;
#[cfg_attr(
    not(feature = "library"),
    allow(dead_code, reason = "called only by exports of the shared object")
)]
mod unknown;
mod unmovable;

/// Names of the hooked functions of `libcuda.so.1`. The shared object exports each as
/// `octavo_hook_<name>`; the one for preloading also under its own name.
pub const CUDA_HOOKS: &[&str] = &hooks::CUDA_NAMES;

/// Names of the hooked functions of `libnvidia-ml.so.1`, exported likewise.
pub const NVML_HOOKS: &[&str] = &hooks::NVML_NAMES;

/// Aborts the process: nothing could handle a panic, and going on could bypass the limits.
#[cfg(all(feature = "library", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        platform::sys::task::abort();
    }
}
