//! The guard: one shared object for proxies, one for preloading.

pub use octavo_guard::{CUDA_HOOKS, NVML_HOOKS};

/// The shared object that proxies depend on. It exports no name of the driver, so that programs
/// find exactly the driver's names in the proxy.
pub static LIBRARY: &[u8] = include_bytes!(env!("OCTAVO_GUARD_LIBRARY"));

/// Its file name.
pub const NAME: &str = "liboctavo_guard.so";

/// The shared object to preload where no proxy is mounted. It exports the hooks under their plain
/// names, and `dlsym`. A container can remove it, so it does not enforce a limit by itself.
pub static PRELOAD: &[u8] = include_bytes!(env!("OCTAVO_GUARD_PRELOAD"));

/// Its file name.
pub const PRELOAD_NAME: &str = "liboctavo_guard_preload.so";
