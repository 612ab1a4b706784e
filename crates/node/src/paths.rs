//! Paths of a node.

use std::path::{Path, PathBuf};

use crate::HostMount;

/// File name of the program of CDI hooks, where the agent installs it.
pub const HOOK_PROGRAM: &str = "octavo-cdi-hook";

/// Paths of a node; see docs/reference/node-layout.md.
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
    /// Folder of device plugins' sockets. The kubelet has it in a fixed place, whatever its root is.
    pub device_plugin_root: PathBuf,
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
    pub fn driver_on_host(&self, path: &Path) -> PathBuf {
        beneath(&self.driver_root, path)
    }

    /// A path in the driver's root as this process sees it.
    pub fn driver_seen(&self, path: &Path) -> PathBuf {
        beneath(&self.driver_root_seen, path)
    }
}

/// An absolute path beneath a root.
pub fn beneath(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
