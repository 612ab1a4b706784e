//! The driver backend: from r615 on the driver limits the GPU memory of a cgroup.
//!
//! An OCI hook sets the limit on the container's own cgroup, after the cgroup exists and before any program of the
//! container runs. Only the hard limit is set. The soft limit is a reservation that the driver adds to all parent
//! cgroups. It is removed only if it is reset before the cgroup is deleted, which a crash of the container does not do.
//! Shares need no soft limit: their sum never exceeds the GPU.

use octavo_cdi::{ContainerEdits, Hook};
use octavo_hook::memory_limits::SOCKET;
use octavo_node::NodePaths;
use octavo_node::files::StorageError;

use super::{Backend, EnforcedShare};

/// The driver's own limits.
#[derive(Debug)]
pub(super) struct DriverBackend;

impl Backend for DriverBackend {
    fn edits(&self, paths: &NodePaths, share: &EnforcedShare<'_>) -> ContainerEdits {
        let args = [
            "--gpu".to_owned(),
            share.gpu_uuid.to_owned(),
            "--memory-bytes".to_owned(),
            share.memory_bytes.to_string(),
            "--socket".to_owned(),
            paths.run_root.join(SOCKET).to_string_lossy().into_owned(),
        ];
        // This hook type runs while the cgroup is still visible and the process is already in it.
        let hook = Hook::octavo(paths, "createRuntime", "memory-limits", args);
        ContainerEdits { hooks: vec![hook], ..ContainerEdits::default() }
    }

    fn ensure(&self) -> Result<(), StorageError> {
        Ok(())
    }
}
