//! A GPU's health as the driver reports it.

use nvml_wrapper_sys::bindings as sys;

use super::call::{self, Call, call};
use super::device::Device;
use super::fields::fields;
use super::read::{optional, supported};
use crate::{DriverError, GpuHealth, RecoveryAction};

/// The GPU does no work before it is reset.
const RESET_REQUIRED: u32 = sys::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED;
/// Recover the IMEX domain: an advice without a name in the bindings.
const RECOVER_IMEX_DOMAIN: u32 = 5;

/// Health of a GPU; facts that the GPU or driver does not report are absent. Fails if the GPU is
/// lost. It also fails if a driver that gives advice fails to. The missing advice would look like
/// that of an old driver, and so like good news.
pub(super) fn health(device: Device<'_>) -> Result<GpuHealth, DriverError> {
    let recovery_action = match recovery_action(device) {
        Err(DriverError::Failed { code: RESET_REQUIRED, .. }) => Some(RecoveryAction::GpuReset),
        answer => supported(answer)?,
    };
    let corrected = sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_CORRECTED;
    let uncorrected = sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_UNCORRECTED;
    let remapped = optional(remapped_rows(device))?;
    Ok(GpuHealth {
        recovery_action,
        uncorrected_errors: optional(memory_errors(device, uncorrected))?,
        corrected_errors: optional(memory_errors(device, corrected))?,
        remap_failed: remapped.map(|(_, failed)| failed),
        remap_pending: remapped.map(|(pending, _)| pending),
    })
}

fn recovery_action(device: Device<'_>) -> Result<RecoveryAction, DriverError> {
    let [action] = fields(device, [(sys::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0)])?;
    let action = u32::try_from(action?).unwrap_or(u32::MAX);
    Ok(match action {
        sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_NONE => RecoveryAction::None,
        sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_GPU_RESET => {
            RecoveryAction::GpuReset
        }
        sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_NODE_REBOOT => {
            RecoveryAction::NodeReboot
        }
        sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_DRAIN_P2P => {
            RecoveryAction::DrainP2p
        }
        sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET => {
            RecoveryAction::DrainAndReset
        }
        RECOVER_IMEX_DOMAIN => RecoveryAction::RecoverImexDomain,
        other => RecoveryAction::Other(other),
    })
}

/// Errors of one type since the driver was loaded.
fn memory_errors(device: Device<'_>, kind: u32) -> Result<u64, DriverError> {
    let call = call!(device.library(), nvmlDeviceGetTotalEccErrors)?;
    let since_load = sys::nvmlEccCounterType_enum_NVML_VOLATILE_ECC;
    let mut count = 0;
    let code = call::three_keyed_out(call, device.handle(), kind, since_load, &mut count);
    device.library().check(call.name, code)?;
    Ok(count)
}

/// Whether a row remap is pending until a reset, and whether one failed.
fn remapped_rows(device: Device<'_>) -> Result<(bool, bool), DriverError> {
    let call: Call<call::DeviceOutFour> = call!(device.library(), nvmlDeviceGetRemappedRows)?;
    let mut values = [0; 4];
    let code = call::device_out_four(call, device.handle(), &mut values);
    device.library().check(call.name, code)?;
    let [_corrected, _uncorrected, pending, failed] = values;
    Ok((pending != 0, failed != 0))
}
