//! The wall in the driver: from r615 on it holds a cgroup to an amount of memory.
//!
//! A hook of the container runtime sets the limit on the container's own cgroup, once that is there and before
//! a program of the container runs. Only the hard limit is set. The driver's soft limit is a reservation that it
//! adds to all cgroups above, and takes from them only when it is set back before the cgroup goes, which no
//! crash of a container waits for. Shares need none: together they never have more than the GPU.

use super::{Backend, EnforcedShare};
use crate::cdi::{ContainerEdits, Hook};
use crate::checkpoint::StorageError;
use crate::node::NodePaths;

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
            "--driver-root".to_owned(),
            paths.driver_root.to_string_lossy().into_owned(),
        ];
        // Before the container's namespaces hide its cgroup, and after it is in it.
        let hook = Hook::octavo(paths, "createRuntime", "memory-limits", args);
        ContainerEdits { hooks: vec![hook], ..ContainerEdits::default() }
    }

    fn ensure(&self) -> Result<(), StorageError> {
        Ok(())
    }
}
