//! Moves memory of shares between the GPU and the host.

use std::path::PathBuf;

/// How memory of shares is swapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapSettings {
    /// Memory of the host that swapped processes may take together, in bytes; `None` means half of it.
    pub host_bytes: Option<u64>,
    /// Root of the driver's files, as this process sees it.
    pub driver_root: PathBuf,
}
