//! `nvmlDeviceGetFieldValues`: values by field number.

use std::ffi::c_int;
use std::time::{SystemTime, UNIX_EPOCH};

use nvml_wrapper_sys::bindings::{self as sys, field_id as id};
use octavo_machine::{NvLink, RecoveryAction};

use crate::code::{Code, supported};
use crate::pointers::Fields;
use crate::session::Device;

use super::links::version_code;
use super::memory::{remapped, remaps_rows};

gpu_calls! {
    /// Each field has its own result; an unknown field does not affect others.
    fn nvmlDeviceGetFieldValues(gpu, count: c_int, values: Fields) {
        let count = u32::try_from(count).ok().filter(|&n| n > 0).ok_or(Code::INVALID_ARGUMENT)?;
        let timestamp = now();
        values.fill(count, &mut |field, scope| {
            let answer = value(gpu, field, scope);
            let value = answer.unwrap_or(Value::Int(0));
            sys::nvmlFieldValue_t {
                fieldId: field,
                scopeId: scope,
                timestamp,
                latencyUsec: 1,
                valueType: value.kind(),
                nvmlReturn: Code::of(answer.map(drop)),
                value: value.pack(),
            }
        })
    }
}

#[derive(Clone, Copy)]
enum Value {
    Int(u32),
    Long(u64),
}

impl Value {
    fn kind(self) -> sys::nvmlValueType_t {
        match self {
            Self::Int(_) => sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT,
            Self::Long(_) => sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
        }
    }

    fn pack(self) -> sys::nvmlValue_t {
        // Writes a whole word in either case, so that no byte is undefined. Machines with these
        // GPUs are little-endian.
        match self {
            Self::Int(value) => sys::nvmlValue_t { ullVal: value.into() },
            Self::Long(value) => sys::nvmlValue_t { ullVal: value },
        }
    }
}

fn value(gpu: &mut Device<'_>, field: u32, scope: u32) -> Result<Value, Code> {
    Ok(match field {
        id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION => Value::Int(gpu.state.recovery_action as u32),
        id::NVML_FI_DEV_RESET_STATUS => {
            Value::Int((gpu.state.recovery_action == RecoveryAction::GpuReset).into())
        }
        id::NVML_FI_DEV_DRAIN_AND_RESET_STATUS => {
            Value::Int((gpu.state.recovery_action == RecoveryAction::DrainAndReset).into())
        }
        id::NVML_FI_DEV_ECC_CURRENT..=id::NVML_FI_DEV_ECC_DBE_AGG_CBU => ecc(gpu, field)?,
        id::NVML_FI_DEV_REMAPPED_COR..=id::NVML_FI_DEV_REMAPPED_FAILURE => remaps(gpu, field)?,
        id::NVML_FI_DEV_PCIE_REPLAY_COUNTER => Value::Int(gpu.state.pcie.replays),
        id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION | id::NVML_FI_DEV_ENERGY => {
            Value::Long(gpu.energy())
        }
        id::NVML_FI_DEV_POWER_AVERAGE | id::NVML_FI_DEV_POWER_INSTANT => Value::Int(gpu.power()),
        id::NVML_FI_DEV_POWER_MAX_LIMIT
        | id::NVML_FI_DEV_POWER_DEFAULT_LIMIT
        | id::NVML_FI_DEV_POWER_CURRENT_LIMIT
        | id::NVML_FI_DEV_POWER_REQUESTED_LIMIT => Value::Int(gpu.power_limit()),
        id::NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED => {
            Value::Int(gpu.model.mig.as_ref().is_some_and(|mig| !mig.mode_needs_reset).into())
        }
        _ => nvlink(gpu, field, scope)?,
    })
}

fn ecc(gpu: &Device<'_>, field: u32) -> Result<Value, Code> {
    supported(gpu.model.ecc)?;
    let ecc = gpu.state.ecc;
    Ok(match field {
        id::NVML_FI_DEV_ECC_CURRENT | id::NVML_FI_DEV_ECC_PENDING => Value::Int(1),
        id::NVML_FI_DEV_ECC_SBE_VOL_TOTAL | id::NVML_FI_DEV_ECC_SBE_VOL_DEV => {
            Value::Long(ecc.volatile_corrected)
        }
        id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL | id::NVML_FI_DEV_ECC_DBE_VOL_DEV => {
            Value::Long(ecc.volatile_uncorrected)
        }
        id::NVML_FI_DEV_ECC_SBE_AGG_TOTAL | id::NVML_FI_DEV_ECC_SBE_AGG_DEV => {
            Value::Long(ecc.aggregate_corrected)
        }
        id::NVML_FI_DEV_ECC_DBE_AGG_TOTAL | id::NVML_FI_DEV_ECC_DBE_AGG_DEV => {
            Value::Long(ecc.aggregate_uncorrected)
        }
        // Caches and registers: all simulated errors occur in DRAM.
        _ => Value::Long(0),
    })
}

fn remaps(gpu: &Device<'_>, field: u32) -> Result<Value, Code> {
    remaps_rows(gpu)?;
    Ok(Value::Int(match field {
        id::NVML_FI_DEV_REMAPPED_UNC => remapped(gpu),
        id::NVML_FI_DEV_REMAPPED_PENDING => gpu.state.remap_pending.into(),
        id::NVML_FI_DEV_REMAPPED_FAILURE => gpu.state.remap_failed.into(),
        _ => 0,
    }))
}

/// `NVLink` fields; the scope is the link if a field is about one link.
fn nvlink(gpu: &Device<'_>, field: u32, scope: u32) -> Result<Value, Code> {
    let nvlink = gpu.model.nvlink.ok_or(Code::NOT_SUPPORTED)?;
    let of_link = |value| {
        if scope < nvlink.links { Ok(Value::Int(value)) } else { Err(Code::INVALID_ARGUMENT) }
    };
    // Megabytes per second of one link in one direction, as the driver reports them.
    let speed = match nvlink.version {
        ..=3 => 25_781,
        4 => 26_562,
        _ => 53_125,
    };
    match field {
        id::NVML_FI_DEV_NVLINK_LINK_COUNT => Ok(Value::Int(nvlink.links)),
        id::NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT => {
            Ok(Value::Int(if nvlink.switched { nvlink.links } else { 0 }))
        }
        id::NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON => Ok(Value::Int(speed)),
        id::NVML_FI_DEV_NVLINK_GET_SPEED => of_link(speed),
        id::NVML_FI_DEV_NVLINK_GET_STATE => {
            let is_inactive = gpu.state.nvlink.inactive.contains(&scope);
            of_link(if is_inactive {
                sys::NVML_NVLINK_STATE_INACTIVE
            } else {
                sys::NVML_NVLINK_STATE_ACTIVE
            })
        }
        id::NVML_FI_DEV_NVLINK_GET_VERSION => of_link(version_code(nvlink)),
        id::NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY
        | id::NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY
        | id::NVML_FI_DEV_NVLINK_ERROR_DL_CRC => of_link(0),
        _ => counter(gpu, nvlink, field, scope),
    }
}

/// Error counters of the links. Up to the fourth generation there is a sum of all links, later one counter a link: there, the first
/// link has all errors.
fn counter(gpu: &Device<'_>, nvlink: NvLink, field: u32, scope: u32) -> Result<Value, Code> {
    let state = &gpu.state.nvlink;
    if nvlink.version < 5 {
        return Ok(Value::Long(match field {
            id::NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL => state.crc_errors,
            id::NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL => 0,
            id::NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL => state.replays,
            id::NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL => state.recoveries,
            _ => return Err(Code::NOT_SUPPORTED),
        }));
    }
    let all = match field {
        id::NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS => state.crc_errors,
        id::NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS => state.replays,
        id::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS => state.recoveries,
        _ => return Err(Code::NOT_SUPPORTED),
    };
    match scope {
        0 => Ok(Value::Long(all)),
        _ if scope < nvlink.links => Ok(Value::Long(0)),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

/// Microseconds since 1970.
fn now() -> i64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(passed.as_micros()).unwrap_or(i64::MAX)
}
