//! Finds the driver's library.

use std::path::{Path, PathBuf};

use crate::DriverError;
use crate::root::find_in;

/// Name of the management library, as programs ask the loader for it.
pub const LIBRARY_NAME: &str = "libnvidia-ml.so.1";

/// Name of the library of CUDA.
const CUDA_LIBRARY_NAME: &str = "libcuda.so.1";

/// Folders below the root, in search order.
const LIBRARY_FOLDERS: [&str; 10] = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    // Debian's packages. Their links in the folders above lead here through /etc/alternatives.
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    // Some clouds mount the driver here.
    "usr/local/nvidia/lib64",
];

/// Root of a containerised driver, below the host's root.
const DRIVER_CONTAINER: &str = "run/nvidia/driver";

/// Finds the management library of the driver that is installed under `driver_root`.
///
/// A driver in a container has a root of its own. The error names that root, but it is not used:
/// containers need the driver's other files from the same root.
pub fn find_library(driver_root: &Path) -> Result<PathBuf, DriverError> {
    find(driver_root, LIBRARY_NAME)
}

/// As [`find_library`], for the library of CUDA.
pub fn find_cuda_library(driver_root: &Path) -> Result<PathBuf, DriverError> {
    find(driver_root, CUDA_LIBRARY_NAME)
}

fn find(driver_root: &Path, name: &str) -> Result<PathBuf, DriverError> {
    let container = driver_root.join(DRIVER_CONTAINER);
    find_in(driver_root, &LIBRARY_FOLDERS, name).ok_or_else(|| {
        let remedy = if find_in(&container, &LIBRARY_FOLDERS, name).is_some() {
            format!("a driver container has it: set the driver root to {}", container.display())
        } else {
            "install the NVIDIA driver on this node, or set the driver root to the folder that \
             it is installed under"
                .to_owned()
        };
        DriverError::Load {
            path: name.to_owned(),
            reason: format!(
                "it is in none of {} under {}; {remedy}",
                LIBRARY_FOLDERS.join(", "),
                driver_root.display(),
            ),
        }
    })
}

#[cfg(test)]
mod tests;
