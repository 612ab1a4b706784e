//! The subset of the CDI specification 0.5.0 that Octavo writes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use octavo_node::NodePaths;

/// Seconds that a hook may take. It works on few files, and a slow disk must not fail a container's start.
const HOOK_TIMEOUT_SECONDS: u32 = 60;

/// Options of mounts.
const MOUNT_OPTIONS: [&str; 5] = ["ro", "nosuid", "nodev", "rbind", "rprivate"];

/// Version of the specification: the oldest with all features used here, so that old runtimes can read it.
pub const VERSION: &str = "0.5.0";

/// Vendor and class of all claims' devices.
pub const KIND: &str = "k8s.gpu.nvidia.com/claim";

/// A CDI spec file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Version of the specification that it needs.
    pub cdi_version: String,
    /// Vendor and class.
    pub kind: String,
    /// The devices that it names.
    pub devices: Vec<SpecDevice>,
    /// Edits for every container with one of the devices.
    #[serde(default)]
    pub container_edits: ContainerEdits,
}

/// A device of a spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpecDevice {
    /// Name within the kind.
    pub name: String,
    /// Edits for a container with this device.
    #[serde(default)]
    pub container_edits: ContainerEdits,
}

/// Changes to a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerEdits {
    /// Variables, `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Mounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Hooks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
}

/// A device node. The runtime makes it by these numbers and does not look at the host's nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceNode {
    /// Path in the container.
    pub path: String,
    /// `c`: a character device.
    #[serde(rename = "type")]
    pub kind: String,
    /// Major number: that of the kernel module.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits.
    pub file_mode: u32,
    /// What the container's device cgroup permits: `rw`, not the making of further nodes.
    pub permissions: String,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Path on the host.
    pub host_path: String,
    /// Path in the container.
    pub container_path: String,
    /// Mount options.
    #[serde(default)]
    pub options: Vec<String>,
}

/// A program that the runtime runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// When.
    pub hook_name: String,
    /// The program on the host.
    pub path: String,
    /// Arguments, the program's own name first.
    #[serde(default)]
    pub args: Vec<String>,
    /// The complete environment. Never empty: runtimes would otherwise pass their own, including `LD_LIBRARY_PATH`.
    #[serde(default)]
    pub env: Vec<String>,
    /// Seconds after which the runtime ends the program, and the container's start fails.
    #[serde(default)]
    pub timeout: u32,
}

impl ContainerEdits {
    /// Adds the device nodes and mounts of other edits whose paths in the container are new.
    pub fn add_missing(&mut self, more: Self) {
        for node in more.device_nodes {
            if self.device_nodes.iter().all(|known| known.path != node.path) {
                self.device_nodes.push(node);
            }
        }
        for mount in more.mounts {
            if self.mounts.iter().all(|known| known.container_path != mount.container_path) {
                self.mounts.push(mount);
            }
        }
    }
}

impl DeviceNode {
    /// A character device.
    pub fn new(path: impl Into<String>, major: u32, minor: u32, file_mode: u32) -> Self {
        let (kind, permissions) = ("c".to_owned(), "rw".to_owned());
        Self { path: path.into(), kind, major, minor, file_mode, permissions }
    }
}

impl Mount {
    /// A read-only mount of a host path.
    pub fn read_only(host_path: &Path, container_path: &Path) -> Self {
        Self {
            host_path: host_path.to_string_lossy().into_owned(),
            container_path: container_path.to_string_lossy().into_owned(),
            options: MOUNT_OPTIONS.map(str::to_owned).to_vec(),
        }
    }

    /// The same, for a socket or a folder of sockets: clients may write, and nothing there is a program.
    #[must_use]
    pub fn for_sockets(self) -> Self {
        let mut mount = self.writable();
        mount.options.push("noexec".to_owned());
        mount
    }

    /// The same, to be written.
    #[must_use]
    pub fn writable(mut self) -> Self {
        if let Some(option) = self.options.iter_mut().find(|option| *option == "ro") {
            "rw".clone_into(option);
        }
        self
    }
}

impl Hook {
    /// A hook that runs `octavo cdi-hook <action>`. `when` is a hook name of the OCI runtime specification.
    pub fn octavo(
        paths: &NodePaths,
        when: &str,
        action: &str,
        args: impl IntoIterator<Item = String>,
    ) -> Self {
        let own = ["octavo", "cdi-hook", action].map(str::to_owned);
        Self {
            hook_name: when.to_owned(),
            path: paths.hook_path.to_string_lossy().into_owned(),
            args: own.into_iter().chain(args).collect(),
            env: vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
            timeout: HOOK_TIMEOUT_SECONDS,
        }
    }
}
