//! The guard's library and its proxies: the interface to the crates that create them.

use std::collections::BTreeSet;
use std::path::Path;

use octavo_embedded::guard::{CUDA_HOOKS, LIBRARY, NVML_HOOKS};
use octavo_guard_abi::{GUARD, names};
use octavo_proxy::Plan;

/// The guard as a shared object.
pub(super) const GUARD_LIBRARY: &[u8] = LIBRARY;

/// The replacement of a driver's library.
#[derive(Debug)]
pub(super) struct Proxied {
    /// The proxy, a shared object.
    pub(super) bytes: Vec<u8>,
    /// Hooks that the driver does not export.
    missing: Vec<String>,
    /// Functions of the driver that are unknown to the guard and may allocate memory or launch work.
    unknown: Vec<String>,
}

/// Creates the proxy of a driver's library, which is at `real` in containers.
pub(super) fn proxy(name: &str, library: &[u8], real: &Path) -> Result<Proxied, String> {
    let hooks = if name.starts_with("libcuda") { CUDA_HOOKS } else { NVML_HOOKS };
    let hooks: BTreeSet<&str> = hooks.iter().copied().collect();
    let plan = Plan {
        hooks: &hooks,
        is_suspicious: names::is_suspicious,
        soname: name,
        guard: Path::new(GUARD),
        real,
    };
    let proxy = octavo_proxy::write(library, &plan).map_err(|error| error.to_string())?;
    Ok(Proxied { bytes: proxy.bytes, missing: proxy.missing, unknown: proxy.unknown })
}

impl Proxied {
    /// Logs the differences between the functions of the driver and of the guard.
    pub(super) fn log(&self, name: &str, path: &Path) {
        let library = path.display();
        let missing = self.missing.join(" ");
        tracing::debug!(name, %library, missing, "hooks that this driver has no use for");
        if !self.unknown.is_empty() {
            let unknown = self.unknown.join(" ");
            tracing::warn!(name, %library, unknown, "functions of this driver that the guard does not know: refused for shares with `strictness: Strict`, else counted and passed on");
        }
    }
}
