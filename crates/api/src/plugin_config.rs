//! Settings of NVIDIA's device plugin and GPU feature discovery: the config file `version: v1`, the environment variables and the
//! flags, as of k8s-device-plugin 0.20.
//!
//! A flag comes before a variable, and a variable before the file. What has no effect here is a warning, not an error: files that
//! were written for NVIDIA's programs are read unchanged.

mod decode;
mod overrides;
mod sharing;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

pub use decode::decode;
pub use overrides::{Overrides, SETTINGS, Setting, SettingKind};
pub use sharing::{SharedResource, SharingConfig, SharingStrategy};

/// The version of the file.
pub const VERSION: &str = "v1";

/// Settings of a node's device plugin and labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginConfig {
    /// How MIG devices are offered.
    pub mig_strategy: MigStrategy,
    /// How a container gets its devices. Never empty.
    pub device_lists: BTreeSet<DeviceList>,
    /// What names a device in `NVIDIA_VISIBLE_DEVICES` and in CDI names.
    pub device_ids: DeviceIds,
    /// Whether an answer lists the device nodes, too.
    pub pass_device_specs: bool,
    /// Prefix of the annotations with CDI names.
    pub cdi_annotation_prefix: String,
    /// Which replicas of shared devices, and which MIG devices, a container should get.
    pub allocation_policy: AllocationPolicy,
    /// Device nodes that containers get beside those of GPUs.
    pub extra_nodes: BTreeSet<ExtraNodes>,
    /// Folder on the host with the files of MPS daemons.
    pub mps_root: String,
    /// Devices that several containers share.
    pub sharing: Option<SharingConfig>,
    /// Whether containers get IMEX channel 0.
    pub imex: ImexChannel,
    /// The labels of GPU feature discovery.
    pub labels: LabelSettings,
}

/// How MIG devices are offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MigStrategy {
    /// Not at all: a GPU in MIG mode is offered whole.
    #[default]
    None,
    /// As `nvidia.com/gpu`. All GPUs of the node have devices of one profile.
    Single,
    /// As `nvidia.com/mig-<profile>`.
    Mixed,
}

/// How a container gets its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceList {
    /// By the variable `NVIDIA_VISIBLE_DEVICES`, which NVIDIA's container toolkit reads.
    Envvar,
    /// By mounts below `/var/run/nvidia-container-devices`, which NVIDIA's container toolkit reads.
    VolumeMounts,
    /// By annotations with CDI names.
    CdiAnnotations,
    /// By CDI names in the answer.
    CdiCri,
}

/// Device nodes beside those of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExtraNodes {
    /// Of `GDRCopy`.
    Gdrcopy,
    /// Of GPUDirect Storage.
    Gds,
    /// Of Mellanox's network driver.
    Mofed,
}

/// What names a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceIds {
    /// Its UUID.
    #[default]
    Uuid,
    /// Its index; of a MIG device `<GPU>:<MIG device>`.
    Index,
}

/// Which replicas of shared devices a container should get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocationPolicy {
    /// Of the devices with the fewest containers.
    #[default]
    Distributed,
    /// Of the devices with the most containers.
    Packed,
}

/// IMEX channel 0 for all containers with a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImexChannel {
    /// It is not given.
    #[default]
    None,
    /// It is given where it exists.
    IfPresent,
    /// Without it nothing is offered.
    Required,
}

/// The labels of GPU feature discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSettings {
    /// Whether a `NodeFeature` object has the labels, and not a file.
    pub use_node_feature_api: bool,
    /// Whether the label `nvidia.com/gfd.timestamp` is left out.
    pub no_timestamp: bool,
    /// When the same labels are written again.
    pub rewrite: RewriteInterval,
    /// The file with the labels.
    pub output_file: String,
    /// The file with the machine's type.
    pub machine_type_file: String,
}

/// When the same labels are written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriteInterval {
    /// After this time.
    Every(Duration),
    /// Never.
    Never,
}

/// Settings, and what of the input has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The settings.
    pub config: PluginConfig,
    /// What has no effect, or not the effect that its author may expect. Each names its field.
    pub warnings: Vec<String>,
}
