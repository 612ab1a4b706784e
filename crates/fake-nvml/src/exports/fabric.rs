//! Membership in an `NVLink` fabric.

use nvml_wrapper_sys::bindings as sys;
use octavo_machine::FabricState;

use crate::code::Code;
use crate::pointers::{Out, Versioned, version_of};
use crate::session::Device;

use super::identity::since;

gpu_calls! {
    fn nvmlDeviceGetGpuFabricInfo(gpu, info: Out<sys::nvmlGpuFabricInfo_t>) {
        let Membership { clusterUuid, status, cliqueId, state, .. } = membership(gpu)?;
        info.put(sys::nvmlGpuFabricInfo_t { clusterUuid, status, cliqueId, state })
    }

    fn nvmlDeviceGetGpuFabricInfoV(gpu, info: Versioned) {
        let Membership { clusterUuid, status, cliqueId, state, healthMask } = membership(gpu)?;
        if info.is::<sys::nvmlGpuFabricInfo_v2_t>(2)? {
            let version = version_of::<sys::nvmlGpuFabricInfo_v2_t>(2);
            return info.put(2, sys::nvmlGpuFabricInfo_v2_t {
                version, clusterUuid, status, cliqueId, state, healthMask,
            });
        }
        let version = version_of::<sys::nvmlGpuFabricInfo_v3_t>(3);
        info.put(3, sys::nvmlGpuFabricInfo_v3_t {
            version, clusterUuid, status, cliqueId, state, healthMask,
            healthSummary: summary(healthMask),
        })
    }
}

struct Membership {
    clusterUuid: [u8; 16],
    status: sys::nvmlReturn_t,
    cliqueId: u32,
    state: sys::nvmlGpuFabricState_t,
    healthMask: u32,
}

/// All health fields report no problem, which is 2 in the first four and 1 in the last.
const HEALTHY: u32 = (sys::NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_FALSE
    << sys::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW)
    | (sys::NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_RECOVERY_FALSE
        << sys::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY)
    | (sys::NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_FALSE
        << sys::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY)
    | (sys::NVML_GPU_FABRIC_HEALTH_MASK_ACCESS_TIMEOUT_RECOVERY_FALSE
        << sys::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY)
    | (sys::NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE
        << sys::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION);

/// Fabrics are managed since Hopper; the state of a Hopper without a fabric says so.
fn membership(gpu: &Device<'_>) -> Result<Membership, Code> {
    since(gpu, sys::NVML_DEVICE_ARCH_HOPPER)?;
    let Some(fabric) = &gpu.machine.fabric else {
        return Ok(Membership {
            clusterUuid: [0; 16],
            status: sys::nvmlReturn_enum_NVML_SUCCESS,
            cliqueId: 0,
            state: nvml_state(FabricState::NotSupported),
            healthMask: 0,
        });
    };
    let joined = fabric.state == FabricState::Completed;
    Ok(Membership {
        clusterUuid: if joined { uuid_bytes(&fabric.cluster_uuid)? } else { [0; 16] },
        status: sys::nvmlReturn_enum_NVML_SUCCESS,
        cliqueId: if joined { fabric.clique_id } else { 0 },
        state: nvml_state(fabric.state),
        healthMask: if joined { gpu.state.fabric_health.unwrap_or(HEALTHY) } else { 0 },
    })
}

fn nvml_state(state: FabricState) -> sys::nvmlGpuFabricState_t {
    let value: u32 = match state {
        FabricState::NotSupported => sys::NVML_GPU_FABRIC_STATE_NOT_SUPPORTED,
        FabricState::NotStarted => sys::NVML_GPU_FABRIC_STATE_NOT_STARTED,
        FabricState::InProgress => sys::NVML_GPU_FABRIC_STATE_IN_PROGRESS,
        FabricState::Completed => sys::NVML_GPU_FABRIC_STATE_COMPLETED,
    };
    // One byte in the header, though its values are plain numbers.
    sys::nvmlGpuFabricState_t::try_from(value).unwrap_or(0)
}

fn summary(mask: u32) -> u8 {
    let field = |shift: u32, width: u32| (mask >> shift) & width;
    let trouble = [0, 2, 4, 6].iter().any(|&shift| field(shift, 3) == 1);
    let misconfigured =
        field(sys::NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION, 15) > 1;
    let summary = if mask == 0 {
        sys::NVML_GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED
    } else if trouble || misconfigured {
        sys::NVML_GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY
    } else {
        sys::NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY
    };
    u8::try_from(summary).unwrap_or(0)
}

fn uuid_bytes(text: &str) -> Result<[u8; 16], Code> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    u128::from_str_radix(&digits, 16).map(u128::to_be_bytes).map_err(|_| Code::UNKNOWN)
}
