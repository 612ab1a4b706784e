//! Opaque configs of `resource.nvidia.com/v1beta1` and `octavo.dev/v1alpha1`: settings of a claim or its class beyond
//! the choice of a device.
//!
//! Decoding is strict: an unknown field, kind or value is an error that names its field, since an ignored misspelt
//! limit would be no limit. The caller passes a function for quantities, so this crate needs only whole bytes.

mod compute;
mod decode;
mod device_nodes;
mod resolve;
mod share;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

pub use compute::{ComputePart, ComputePartError};
pub use decode::decode;
pub use device_nodes::DeviceNodesConfig;
pub use resolve::{
    ConfigMismatch, DecodedConfig, DeviceType, decode_entries, device_nodes_for, for_request,
    for_share,
};
pub use share::{
    GpuShareConfig, OverflowPolicy, OverflowPolicyError, ShareClass, Strictness, SwapUnit,
};

/// Parses a Kubernetes quantity as whole bytes.
pub type ParseBytes = fn(&str) -> Result<i128, String>;

/// One entry of `claim.status.allocation.devices.config`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// Origin of the config.
    pub source: ConfigSource,
    /// Requests to which it applies, `request` or `request/subrequest`; empty means all.
    pub requests: Vec<String>,
    /// Driver to which it applies.
    pub driver: String,
    /// The config as written.
    pub parameters: Value,
}

/// Origin of a config. Later variants take precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigSource {
    /// The `DeviceClass`, written by an administrator.
    Class,
    /// The `ResourceClaim`, written by a user.
    Claim,
}

/// Error of a config: a field and a reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field {path}: {problem}")]
pub struct ConfigError {
    /// JSON path from the config's root, such as `sharing.mpsConfig.multiUser`.
    pub path: String,
    /// The error.
    pub problem: String,
}

/// A decoded and validated config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpaqueConfig {
    /// For a whole GPU.
    Gpu(GpuConfig),
    /// For a share of a GPU. Specific to Octavo.
    GpuShare(GpuShareConfig),
    /// Device nodes beside those of GPUs. Specific to Octavo.
    DeviceNodes(DeviceNodesConfig),
    /// For a MIG device.
    MigDevice(MigDeviceConfig),
    /// For a passed-through GPU.
    VfioDevice(VfioDeviceConfig),
    /// For a channel of a `ComputeDomain`.
    ComputeDomainChannel(ComputeDomainChannelConfig),
    /// For the daemon of a `ComputeDomain`.
    ComputeDomainDaemon(ComputeDomainDaemonConfig),
}

/// Config of a whole GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuConfig {
    /// How the containers of the claim share the GPU.
    pub sharing: Option<Sharing>,
}

/// Config of a MIG device. It has no time slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigDeviceConfig {
    /// How the containers of the claim share the device.
    pub sharing: Option<Sharing>,
}

/// How containers share a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// In turns, with a time slice for each.
    TimeSlicing(TimeSlice),
    /// Concurrently under NVIDIA's Multi-Process Service.
    Mps(MpsConfig),
}

/// Length of a time slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeSlice {
    /// The driver's default.
    #[default]
    Default,
    /// Short.
    Short,
    /// Medium.
    Medium,
    /// Long.
    Long,
}

/// Limits of the Multi-Process Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MpsConfig {
    /// Share of the GPU's threads for each client, 1 to 100 percent.
    pub default_active_thread_percentage: Option<u8>,
    /// Device memory for each client, in bytes.
    pub default_pinned_device_memory_limit: Option<i128>,
    /// Device memory for each client on single devices, in bytes, by UUID or index.
    pub default_per_device_pinned_memory_limit: BTreeMap<String, i128>,
    /// Whether clients of several users may connect.
    pub multi_user: bool,
}

/// Config of a GPU passed through to a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VfioDeviceConfig {
    /// IOMMU settings.
    pub iommu: Option<IommuConfig>,
}

/// IOMMU settings of a passed-through GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IommuConfig {
    /// Kernel interface to use.
    pub backend_policy: IommuBackendPolicy,
    /// Whether the container also gets the interface's own device.
    pub enable_api_device: bool,
}

/// Kernel interface to the IOMMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IommuBackendPolicy {
    /// Only `/dev/vfio/<group>`.
    #[default]
    LegacyOnly,
    /// `/dev/iommu` if available.
    PreferIommuFd,
}

/// Config of a channel of a `ComputeDomain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeDomainChannelConfig {
    /// UID of the `ComputeDomain`.
    pub domain_id: String,
    /// Channels for the claim.
    pub allocation_mode: ChannelAllocationMode,
}

/// Channels of a `ComputeDomain` for a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelAllocationMode {
    /// The allocated channel.
    #[default]
    Single,
    /// All channels of the node.
    All,
}

/// Config of the daemon of a `ComputeDomain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeDomainDaemonConfig {
    /// UID of the `ComputeDomain`.
    pub domain_id: String,
}

impl OpaqueConfig {
    /// The `kind` in a manifest.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Gpu(_) => "GpuConfig",
            Self::GpuShare(_) => "GpuShareConfig",
            Self::DeviceNodes(_) => "DeviceNodesConfig",
            Self::MigDevice(_) => "MigDeviceConfig",
            Self::VfioDevice(_) => "VfioDeviceConfig",
            Self::ComputeDomainChannel(_) => "ComputeDomainChannelConfig",
            Self::ComputeDomainDaemon(_) => "ComputeDomainDaemonConfig",
        }
    }
}

impl ConfigSource {
    /// Kind of the object that contains the config.
    pub fn object(self) -> &'static str {
        match self {
            Self::Class => "DeviceClass",
            Self::Claim => "ResourceClaim",
        }
    }
}
