//! The part of the CDI specification 0.5.0 that Octavo writes.

use serde::{Deserialize, Serialize};

/// Version of the specification. The oldest that has all that is used here, so that old runtimes read it.
pub(super) const VERSION: &str = "0.5.0";

/// Vendor and class of all claims' devices.
pub(super) const KIND: &str = "k8s.gpu.nvidia.com/claim";

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
    /// What every container with one of the devices gets.
    #[serde(default)]
    pub container_edits: ContainerEdits,
}

/// A device of a spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpecDevice {
    /// Name within the kind.
    pub name: String,
    /// What a container with this device gets.
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

/// A device node; the runtime reads type and numbers from the host's node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceNode {
    /// Path in the container.
    pub path: String,
    /// Path on the host, where it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
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
    /// Its whole environment. Never empty: without it runtimes hand on their own, `LD_LIBRARY_PATH`
    /// included.
    #[serde(default)]
    pub env: Vec<String>,
}
