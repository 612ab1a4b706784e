//! The guard, as the shared object that containers load.
//!
//! The build script builds it from `crates/guard` with the profile that it needs, so a program that carries
//! it always carries the one that fits its own `octavo-guard-abi`.

#![forbid(unsafe_code)]

pub use octavo_guard::{CUDA_HOOKS, NVML_HOOKS};

/// The shared object, whole.
pub static LIBRARY: &[u8] = include_bytes!(env!("OCTAVO_GUARD_LIBRARY"));

/// The name of its file.
pub const NAME: &str = "liboctavo_guard.so";
