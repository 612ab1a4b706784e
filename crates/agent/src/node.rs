//! What the agent's parts say to one another about a node and its claims.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::HostMount;

/// Name of the driver, as slices, classes and the kubelet know it.
pub const DRIVER_NAME: &str = "gpu.nvidia.com";

/// Where the parts of a node lie; see "A node's parts on disk" in ARCHITECTURE.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePaths {
    /// The driver's root as the host names it: what CDI specs contain.
    pub driver_root: PathBuf,
    /// The same root as this process sees it.
    pub driver_root_seen: PathBuf,
    /// Parent of `dev`, as the host names it.
    pub dev_root: PathBuf,
    /// The same as this process sees it.
    pub dev_root_seen: PathBuf,
    /// The proc file system.
    pub proc_root: PathBuf,
    /// The sys file system.
    pub sys_root: PathBuf,
    /// The kubelet's root.
    pub kubelet_root: PathBuf,
    /// The hierarchy of cgroups, as far as the host has it.
    pub cgroup_root: PathBuf,
    /// Folder of CDI specs.
    pub cdi_root: PathBuf,
    /// The folder that a boot begins with empty, at the same path in host and agent: limits of shares lie in
    /// it, under the path that containers see beneath `/run`.
    pub run_root: PathBuf,
    /// The `octavo` binary as the host names it: what CDI hooks run.
    pub hook_path: PathBuf,
    /// What of the host every container with a GPU sees besides.
    pub mounts: Vec<HostMount>,
}

impl NodePaths {
    /// A path in the driver's root as the host names it.
    pub(crate) fn driver_on_host(&self, path: &Path) -> PathBuf {
        beneath(&self.driver_root, path)
    }

    /// A path in the driver's root as this process sees it.
    pub(crate) fn driver_seen(&self, path: &Path) -> PathBuf {
        beneath(&self.driver_root_seen, path)
    }
}

/// An absolute path beneath a root.
pub(crate) fn beneath(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// A claim as the kubelet names it. A name may be reused: only the UID identifies the claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// A device made ready for the containers of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedDevice {
    /// Requests of the claim that the device serves.
    pub requests: Vec<String>,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Qualified CDI names for the runtime.
    pub cdi_ids: Vec<String>,
    /// Share of the device, where it was given in part.
    pub share_id: Option<String>,
}

/// Prints as `namespace/name`.
impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
