//! A GPU's membership in an NVLink fabric.

use std::fmt::Write;

use nvml_wrapper_sys::bindings as sys;

use super::call::call;
use super::device::{Device, struct_version};
use crate::{Clique, DriverError, Fabric, FabricState};

/// Fabric information in the newest supported form: version 3, version 2, or the call without
/// versions, which reports no health.
pub(super) fn fabric(device: Device<'_>) -> Result<Fabric, DriverError> {
    let newest = struct_version::<sys::nvmlGpuFabricInfo_v3_t>(3);
    let older = struct_version::<sys::nvmlGpuFabricInfo_v2_t>(2);
    for version in [newest, older] {
        match versioned(device, version) {
            Ok(info) => {
                let health = Some(info.healthMask);
                return Ok(membership(
                    info.state,
                    info.status,
                    info.clusterUuid,
                    info.cliqueId,
                    health,
                ));
            }
            Err(error @ DriverError::GpuLost { .. }) => return Err(error),
            Err(_) => {}
        }
    }
    let zero = sys::nvmlGpuFabricInfo_t { clusterUuid: [0; 16], status: 0, cliqueId: 0, state: 0 };
    let info = device.get(call!(device.library(), nvmlDeviceGetGpuFabricInfo)?, zero)?;
    Ok(membership(info.state, info.status, info.clusterUuid, info.cliqueId, None))
}

/// Version 2 is a prefix of version 3, so one structure serves both. Its version field tells the
/// driver how much to fill.
fn versioned(device: Device<'_>, version: u32) -> Result<sys::nvmlGpuFabricInfo_v3_t, DriverError> {
    let zero = sys::nvmlGpuFabricInfo_v3_t {
        version,
        clusterUuid: [0; 16],
        status: 0,
        cliqueId: 0,
        state: 0,
        healthMask: 0,
        healthSummary: 0,
    };
    device.get(call!(device.library(), nvmlDeviceGetGpuFabricInfoV)?, zero)
}

fn membership(
    state: u8,
    status: u32,
    cluster: [u8; 16],
    clique_id: u32,
    health_mask: Option<u32>,
) -> Fabric {
    let state = match u32::from(state) {
        sys::NVML_GPU_FABRIC_STATE_COMPLETED => FabricState::Completed,
        sys::NVML_GPU_FABRIC_STATE_IN_PROGRESS => FabricState::InProgress,
        sys::NVML_GPU_FABRIC_STATE_NOT_STARTED => FabricState::NotStarted,
        _ => FabricState::NotSupported,
    };
    let cluster_uuid = uuid(cluster);
    // Within one chassis the cluster UUID is all zero. Such cliques do not connect different nodes.
    let member = state == FabricState::Completed && status == 0 && cluster != [0; 16];
    Fabric {
        state,
        status,
        clique: member.then(|| Clique { cluster: cluster_uuid.clone(), id: clique_id }),
        cluster_uuid,
        clique_id,
        health_mask,
    }
}

impl Fabric {
    /// Why programs cannot use the fabric; `None` if they can, or the GPU supports none.
    ///
    /// While a GPU registers, CUDA does not start on it (`CUDA_ERROR_SYSTEM_NOT_READY`). One that failed to register has
    /// no peers (Fabric Manager user guide).
    pub fn problem(&self) -> Option<&'static str> {
        const FIELD: u32 = 3;
        let routes = self
            .health_mask
            .map(|mask| (mask >> sys::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY) & FIELD);
        match self.state {
            FabricState::NotSupported => None,
            FabricState::NotStarted => Some("not-started"),
            FabricState::InProgress => Some("in-progress"),
            FabricState::Completed if self.status != 0 => Some("failed"),
            FabricState::Completed => {
                let is_unhealthy =
                    routes == Some(sys::NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_TRUE);
                is_unhealthy.then_some("route-unhealthy")
            }
        }
    }
}

/// Sixteen bytes in the form `8-4-4-4-12`.
fn uuid(bytes: [u8; 16]) -> String {
    bytes.iter().enumerate().fold(String::with_capacity(36), |mut text, (i, byte)| {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
