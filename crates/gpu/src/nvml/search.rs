//! Where the driver's library lies.

use std::path::{Path, PathBuf};

use crate::DriverError;

/// Name of the management library, as programs ask the loader for it.
pub const LIBRARY_NAME: &str = "libnvidia-ml.so.1";

/// Folders of a root, in the order in which they are looked at.
const FOLDERS: [&str; 7] = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
];

/// Where a containerised driver puts its own root, below the host's.
const DRIVER_CONTAINER: &str = "run/nvidia/driver";

/// Finds the management library of the driver that is installed under `driver_root`, or in a
/// driver container's root below it.
pub fn find_library(driver_root: &Path) -> Result<PathBuf, DriverError> {
    let roots = [driver_root.to_owned(), driver_root.join(DRIVER_CONTAINER)];
    roots
        .iter()
        .flat_map(|root| FOLDERS.iter().map(move |folder| root.join(folder).join(LIBRARY_NAME)))
        .find(|path| path.is_file())
        .ok_or_else(|| DriverError::Load {
            path: LIBRARY_NAME.to_owned(),
            reason: format!(
                "it is in none of {} under {} or {}; install the NVIDIA driver on this node, or \
                 set the driver root to the folder that it is installed under",
                FOLDERS.join(", "),
                roots[0].display(),
                roots[1].display(),
            ),
        })
}

#[cfg(test)]
mod tests;
