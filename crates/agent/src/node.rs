//! Types for a node and its claims that all modules share.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::HostMount;

/// Name of the driver in slices, classes and the kubelet.
pub const DRIVER_NAME: &str = "gpu.nvidia.com";

/// File name of the program of CDI hooks, where the agent installs it.
pub(crate) const HOOK_PROGRAM: &str = "octavo-cdi-hook";

/// Paths of a node; see "A node's parts on disk" in ARCHITECTURE.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePaths {
    /// The driver's root on the host, as in CDI specs.
    pub driver_root: PathBuf,
    /// The same root as this process sees it.
    pub driver_root_seen: PathBuf,
    /// The proc file system.
    pub proc_root: PathBuf,
    /// The sys file system.
    pub sys_root: PathBuf,
    /// The kubelet's root.
    pub kubelet_root: PathBuf,
    /// The host's cgroup hierarchy.
    pub cgroup_root: PathBuf,
    /// Folder of CDI specs.
    pub cdi_root: PathBuf,
    /// Folder that is empty after each boot, at the same path for host and agent. It contains the limits of shares, at
    /// the path that containers see below `/run`.
    pub run_root: PathBuf,
    /// The program of CDI hooks on the host.
    pub hook_path: PathBuf,
    /// Whether the files of each share have a file system of their own.
    pub share_tmpfs: bool,
    /// Host paths that every container with a GPU gets.
    pub mounts: Vec<HostMount>,
}

impl NodePaths {
    /// A path in the driver's root on the host.
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

/// A claim as the kubelet names it. Names are reused; only the UID identifies a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// A prepared device of a claim.
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
    /// Share id, if the device was allocated in parts.
    pub share_id: Option<String>,
}

/// Prints as `namespace/name`.
impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
