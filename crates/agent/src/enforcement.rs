//! What holds a container to its share of a GPU.
//!
//! | wall | what it is | where |
//! |---|---|---|
//! | guard | a library in the container that stands in for the driver's and counts | drivers before r615 |
//! | driver | the driver's own limit of a container's cgroup | from r615 on, with cgroups of version 2 |
//! | off | nothing | where an administrator wants it |
//!
//! Which one holds a share is decided when the share is prepared, and written down in the claim's record:
//! containers of one claim do not stand behind different walls. What a wall needs of the driver is made when
//! the driver is new; where that fails shares are refused, since a share that nothing holds is none.

mod driver;
mod guard;
pub(crate) mod share_files;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cdi::{ContainerEdits, DriverFiles};
use crate::checkpoint::StorageError;
use crate::config::MemoryEnforcement;
use crate::node::NodePaths;
use driver::DriverBackend;
use guard::GuardBackend;

/// What holds a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BackendKind {
    /// The guard in the container.
    Guard,
    /// The driver.
    Driver,
    /// Nothing, as the administrator wishes.
    Off,
}

/// A share as a wall sees it.
#[derive(Clone, Debug)]
pub(crate) struct EnforcedShare<'a> {
    /// UUID of the GPU.
    pub(crate) gpu_uuid: &'a str,
    /// Memory that it may have, in bytes.
    pub(crate) memory_bytes: u64,
    /// Its folder on the host.
    pub(crate) folder: PathBuf,
    /// Its folder in the container.
    pub(crate) folder_in_container: PathBuf,
}

/// Something that holds containers to their shares.
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// What a container with a share gets beside the share's folder.
    fn edits(&self, paths: &NodePaths, share: &EnforcedShare<'_>) -> ContainerEdits;

    /// Writes what is missing on the host. Blocks.
    fn ensure(&self) -> Result<(), StorageError>;
}

/// The walls of a node, for the driver that it has.
#[derive(Debug)]
pub(crate) struct Backends {
    guard: Result<GuardBackend, String>,
    driver: DriverBackend,
}

impl Backends {
    /// Makes what walls need of a driver's files. Reads its libraries and blocks for about as long.
    pub(crate) fn make(paths: &NodePaths, files: &DriverFiles) -> Self {
        let guard = GuardBackend::make(paths, files);
        Self { guard, driver: DriverBackend }
    }

    /// A wall, or why there is none; nothing is no wall.
    pub(crate) fn of(&self, kind: BackendKind) -> Result<Option<&dyn Backend>, String> {
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

/// Which wall holds shares that are prepared now. `has_limits` says whether the driver has limits of its own;
/// `None` while it is not open.
pub(crate) fn choose(
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
