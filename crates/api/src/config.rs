//! Opaque configs of `resource.nvidia.com/v1beta1` and `octavo.dev/v1alpha1`: what a claim or its class asks
//! of a device beyond the device itself.
//!
//! Decoding is strict: an unknown field, kind or value is an error that names its field, because a
//! misspelt limit that is ignored is no limit. Quantities are read by a function that the caller passes
//! in, so that this crate needs no notion of them beyond whole bytes.

mod decode;
mod fields;
mod resolve;
mod share;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

pub use decode::decode;
pub use resolve::{
    ConfigMismatch, DecodedConfig, DeviceType, decode_entries, for_request, for_share,
};
pub use share::{GpuShareConfig, OverflowPolicy, ShareClass, Strictness};

/// Reads a Kubernetes quantity as whole bytes, or says what is wrong with it.
pub type ParseBytes = fn(&str) -> Result<i128, String>;

/// One entry of `claim.status.allocation.devices.config`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// Who gave it.
    pub source: ConfigSource,
    /// Requests that it is for, `request` or `request/subrequest`; empty means all.
    pub requests: Vec<String>,
    /// Driver that it is for.
    pub driver: String,
    /// The config as written.
    pub parameters: Value,
}

/// Who gave a config; later ones win over earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigSource {
    /// The `DeviceClass`, written by an administrator.
    Class,
    /// The `ResourceClaim`, written by a user.
    Claim,
}

/// Why a config is refused: a field and a reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field {path}: {problem}")]
pub struct ConfigError {
    /// JSON path from the config's root, such as `sharing.mpsConfig.multiUser`.
    pub path: String,
    /// What is wrong with it.
    pub problem: String,
}

/// A decoded and validated config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpaqueConfig {
    /// For a whole GPU.
    Gpu(GpuConfig),
    /// For a share of a GPU; Octavo's own.
    GpuShare(GpuShareConfig),
    /// For a MIG device.
    MigDevice(MigDeviceConfig),
    /// For a GPU passed through.
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

/// Config of a MIG device; it has no time slice of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigDeviceConfig {
    /// How the containers of the claim share the device.
    pub sharing: Option<Sharing>,
}

/// How containers share a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One after the other, for a time slice each.
    TimeSlicing(TimeSlice),
    /// Side by side under NVIDIA's Multi-Process Service.
    Mps(MpsConfig),
}

/// Length of a time slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeSlice {
    /// The driver's own choice.
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
    /// The same for single devices, in bytes, by UUID or index.
    pub default_per_device_pinned_memory_limit: BTreeMap<String, i128>,
    /// Whether clients of several users may connect.
    pub multi_user: bool,
}

/// Config of a GPU passed through to a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VfioDeviceConfig {
    /// What is wanted of the IOMMU.
    pub iommu: Option<IommuConfig>,
}

/// What a passed-through GPU wants of the IOMMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IommuConfig {
    /// Which kernel interface to use.
    pub backend_policy: IommuBackendPolicy,
    /// Whether the interface's own device goes to the container, too.
    pub enable_api_device: bool,
}

/// Kernel interface to the IOMMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IommuBackendPolicy {
    /// Only `/dev/vfio/<group>`.
    #[default]
    LegacyOnly,
    /// `/dev/iommu` where there is one.
    PreferIommuFd,
}

/// Config of a channel of a `ComputeDomain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeDomainChannelConfig {
    /// UID of the `ComputeDomain`.
    pub domain_id: String,
    /// Which channels the claim gets.
    pub allocation_mode: ChannelAllocationMode,
}

/// Which channels of a `ComputeDomain` a claim gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelAllocationMode {
    /// The one that was allocated.
    #[default]
    Single,
    /// All that the node has.
    All,
}

/// Config of the daemon of a `ComputeDomain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeDomainDaemonConfig {
    /// UID of the `ComputeDomain`.
    pub domain_id: String,
}

impl OpaqueConfig {
    /// The `kind` that it has in a manifest.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Gpu(_) => "GpuConfig",
            Self::GpuShare(_) => "GpuShareConfig",
            Self::MigDevice(_) => "MigDeviceConfig",
            Self::VfioDevice(_) => "VfioDeviceConfig",
            Self::ComputeDomainChannel(_) => "ComputeDomainChannelConfig",
            Self::ComputeDomainDaemon(_) => "ComputeDomainDaemonConfig",
        }
    }
}

impl ConfigSource {
    /// The kind of object that the config was written in.
    pub fn object(self) -> &'static str {
        match self {
            Self::Class => "DeviceClass",
            Self::Claim => "ResourceClaim",
        }
    }
}
