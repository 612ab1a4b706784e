//! The guard, as the shared objects that containers load: one that proxies lead to, and one to be preloaded.
//!
//! The build script builds them from `crates/guard` with the profile that it needs, so a program that carries
//! it always carries the one that fits its own `octavo-guard-abi`.

#![forbid(unsafe_code)]

pub use octavo_guard::{CUDA_HOOKS, NVML_HOOKS};

/// The shared object that proxies lead to, whole. It exports no name of the driver's: what a program finds in the
/// proxy is what its driver has.
pub static LIBRARY: &[u8] = include_bytes!(env!("OCTAVO_GUARD_LIBRARY"));

/// The name of its file.
pub const NAME: &str = "liboctavo_guard.so";

/// The shared object that is to be preloaded where no proxy stands, whole: it exports the hooks under their plain
/// names, and `dlsym`. A container can leave it, so it is no wall by itself.
pub static PRELOAD: &[u8] = include_bytes!(env!("OCTAVO_GUARD_PRELOAD"));

/// The name of its file.
pub const PRELOAD_NAME: &str = "liboctavo_guard_preload.so";
