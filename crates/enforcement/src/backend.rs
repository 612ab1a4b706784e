//! Memory enforcement: limits containers to their shares of a GPU.
//!
//! | backend | mechanism | where |
//! |---|---|---|
//! | guard | a library in the container that wraps the driver's and counts | drivers before r615 |
//! | driver | the driver's own limit per cgroup | from r615 on, with cgroup v2 |
//! | off | none | where an administrator chose it |
//!
//! The backend of a share is chosen when the share is prepared, and recorded with the claim. All containers of a claim
//! therefore have the same backend. Files that a backend derives from the driver are created when the driver's version
//! is new. If that fails, shares are refused: a share without a limit is no share.

mod driver;
mod guard;
mod setting;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use driver::DriverBackend;
use guard::GuardBackend;
use octavo_cdi::{ContainerEdits, DriverFiles};
use octavo_node::NodePaths;
use octavo_node::files::StorageError;

pub use setting::{MemoryEnforcement, MemoryEnforcementError};

/// Backend of memory enforcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BackendKind {
    /// The guard in the container.
    Guard,
    /// The driver.
    Driver,
    /// Nothing, as the administrator wishes.
    Off,
}

/// A share, as backends need it.
#[derive(Clone, Debug)]
pub struct EnforcedShare<'a> {
    /// UUID of the GPU.
    pub gpu_uuid: &'a str,
    /// Memory that it may have, in bytes.
    pub memory_bytes: u64,
    /// Its folder on the host.
    pub folder: PathBuf,
    /// Its folder in the container.
    pub folder_in_container: PathBuf,
}

/// Something that holds containers to their shares.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Container edits of a share besides its folder.
    fn edits(&self, paths: &NodePaths, share: &EnforcedShare<'_>) -> ContainerEdits;

    /// Creates missing files on the host. Blocks.
    fn ensure(&self) -> Result<(), StorageError>;
}

/// The backends of a node for its current driver.
#[derive(Debug)]
pub struct Backends {
    guard: Result<GuardBackend, String>,
    driver: DriverBackend,
}

impl Backends {
    /// Creates the files that backends derive from the driver. Reads its libraries, and blocks for about as long.
    pub fn make(paths: &NodePaths, files: &DriverFiles) -> Self {
        let guard = GuardBackend::make(paths, files);
        Self { guard, driver: DriverBackend }
    }

    /// The backend of a kind, or the reason why it is unavailable; `None` for `Off`.
    pub fn of(&self, kind: BackendKind) -> Result<Option<&dyn Backend>, String> {
        match kind {
            BackendKind::Off => Ok(None),
            BackendKind::Driver => Ok(Some(&self.driver)),
            BackendKind::Guard => match &self.guard {
                Ok(guard) => Ok(Some(guard)),
                Err(problem) => Err(problem.clone()),
            },
        }
    }
}

/// Chooses the backend of shares that are prepared now. `has_limits` tells whether the driver supports memory limits;
/// `None` while it is not open.
pub fn choose(
    setting: MemoryEnforcement,
    has_limits: Option<bool>,
    cgroup_root: &Path,
) -> Result<BackendKind, String> {
    let closed = || "the driver does not answer now, so it is not known what it can do".to_owned();
    let is_unified = cgroup_root.join("cgroup.controllers").is_file();
    match setting {
        MemoryEnforcement::Off => Ok(BackendKind::Off),
        MemoryEnforcement::Guard => Ok(BackendKind::Guard),
        MemoryEnforcement::Auto => Ok(if has_limits.ok_or_else(closed)? && is_unified {
            BackendKind::Driver
        } else {
            BackendKind::Guard
        }),
        MemoryEnforcement::Driver => {
            if !has_limits.ok_or_else(closed)? {
                return Err("`memoryEnforcement` is `driver`, and this driver has no limits of its own (they \
                            come with r615); set it to `auto` or `guard`"
                    .to_owned());
            }
            if !is_unified {
                return Err(format!(
                    "`memoryEnforcement` is `driver`, which needs cgroups of version 2, and {} has no \
                     cgroup.controllers; set it to `auto` or `guard`, or see `cgroupRoot`",
                    cgroup_root.display()
                ));
            }
            Ok(BackendKind::Driver)
        }
    }
}
