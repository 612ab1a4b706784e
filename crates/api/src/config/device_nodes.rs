//! `DeviceNodesConfig` of `octavo.dev/v1alpha1`: device nodes for containers beside those of their GPUs.

use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::fields::Fields;

/// Device nodes for the containers of a claim, beside those of its GPUs. They are of the node, not of a GPU, and are not
/// counted. Only a `DeviceClass` may have this config: the administrator decides who gets them.
///
/// It is also in the checkpoints of agents: a new field needs a new version of their format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the manifest")]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeviceNodesConfig {
    /// Of GPUDirect Storage: `/dev/nvidia-fs*`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gds: bool,
    /// Of GDRCopy: `/dev/gdrdrv`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gdrcopy: bool,
    /// Of InfiniBand and RoCE: `/dev/infiniband/uverbs*` and `/dev/infiniband/rdma_cm`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub infiniband: bool,
    /// Of NVSwitches: `/dev/nvidia-nvswitchctl` and `/dev/nvidia-nvswitch*`. With them a container can manage the NVLink
    /// fabric of the whole node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub nvswitch: bool,
}

impl DeviceNodesConfig {
    /// Whether it has no nodes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The nodes of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            gds: self.gds || other.gds,
            gdrcopy: self.gdrcopy || other.gdrcopy,
            infiniband: self.infiniband || other.infiniband,
            nvswitch: self.nvswitch || other.nvswitch,
        }
    }
}

/// Reads the fields of a `DeviceNodesConfig`.
pub(super) fn decode(fields: &mut Fields<'_>) -> Result<DeviceNodesConfig, ConfigError> {
    Ok(DeviceNodesConfig {
        gds: fields.bool("gds")?.unwrap_or_default(),
        gdrcopy: fields.bool("gdrcopy")?.unwrap_or_default(),
        infiniband: fields.bool("infiniband")?.unwrap_or_default(),
        nvswitch: fields.bool("nvswitch")?.unwrap_or_default(),
    })
}
