//! What a GPU measures and counts, in few calls.

use nvml_wrapper_sys::bindings::{self as sys, field_id as id};

use super::call::call;
use super::device::{Device, struct_version};
use super::fields::fields;
use super::read::optional;
use crate::{DriverError, GpuTelemetry, NvLinkTelemetry, PcieLink, Slowdown};

/// Fields of `NVLink`s up to the fourth generation: sums of all links.
const SUMS: [(u32, u32); 4] = [
    (id::NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, 0),
    (id::NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, 0),
    (id::NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, 0),
    (id::NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, 0),
];

/// Measurements and counters of a GPU. Fails if it is lost.
pub(super) fn telemetry(device: Device<'_>) -> Result<GpuTelemetry, DriverError> {
    let [replays, links] = match optional(fields(
        device,
        [(id::NVML_FI_DEV_PCIE_REPLAY_COUNTER, 0), (id::NVML_FI_DEV_NVLINK_LINK_COUNT, 0)],
    ))? {
        Some(values) => values.map(optional),
        None => [Ok(None), Ok(None)],
    };
    let nvlink = match links?.and_then(|links| u32::try_from(links).ok()) {
        Some(links @ 1..) => optional(nvlink(device, links.min(sys::NVML_NVLINK_MAX_LINKS)))?,
        _ => None,
    };
    let reasons = optional(clocks_event_reasons(device))?;
    Ok(GpuTelemetry {
        margin_celsius: optional(margin(device))?,
        is_idle: reasons.map(|reasons| has(reasons, sys::nvmlClocksEventReasonGpuIdle)),
        slowdown: reasons.map(slowdown),
        pcie: optional(pcie(device))?,
        pcie_replays: replays?,
        nvlink,
    })
}

fn margin(device: Device<'_>) -> Result<i32, DriverError> {
    let version = struct_version::<sys::nvmlMarginTemperature_v1_t>(1);
    let zero = sys::nvmlMarginTemperature_v1_t { version, marginTemperature: 0 };
    let call = call!(device.library(), nvmlDeviceGetMarginTemperature)?;
    Ok(device.get(call, zero)?.marginTemperature)
}

/// Bits of `nvmlClocksEventReason...`.
fn clocks_event_reasons(device: Device<'_>) -> Result<u64, DriverError> {
    match call!(device.library(), nvmlDeviceGetCurrentClocksEventReasons) {
        Ok(call) => device.get(call, 0),
        // The name before r535.
        Err(_) => {
            device.get(call!(device.library(), nvmlDeviceGetCurrentClocksThrottleReasons)?, 0)
        }
    }
}

/// Whether the reasons have one of these bits.
fn has(reasons: u64, bits: u32) -> bool {
    reasons & u64::from(bits) != 0
}

fn slowdown(reasons: u64) -> Slowdown {
    let heat = sys::nvmlClocksThrottleReasonHwThermalSlowdown;
    let brake = sys::nvmlClocksThrottleReasonHwPowerBrakeSlowdown;
    Slowdown {
        is_by_hardware: has(reasons, sys::nvmlClocksThrottleReasonHwSlowdown | heat | brake),
        is_hot: has(reasons, sys::nvmlClocksEventReasonSwThermalSlowdown | heat),
        is_power_brake: has(reasons, brake),
    }
}

fn pcie(device: Device<'_>) -> Result<PcieLink, DriverError> {
    let library = device.library();
    Ok(PcieLink {
        generation: device.get(call!(library, nvmlDeviceGetCurrPcieLinkGeneration)?, 0)?,
        max_generation: device.get(call!(library, nvmlDeviceGetMaxPcieLinkGeneration)?, 0)?,
        width: device.get(call!(library, nvmlDeviceGetCurrPcieLinkWidth)?, 0)?,
        max_width: device.get(call!(library, nvmlDeviceGetMaxPcieLinkWidth)?, 0)?,
    })
}

fn nvlink(device: Device<'_>, links: u32) -> Result<NvLinkTelemetry, DriverError> {
    let mut found = NvLinkTelemetry { links, ..NvLinkTelemetry::default() };
    // One call for the state and the counters of a link of the fifth generation.
    for link in 0..links {
        let wanted = [
            (id::NVML_FI_DEV_NVLINK_GET_STATE, link),
            (id::NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, link),
            (id::NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, link),
            (id::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS, link),
        ];
        let [state, errors, replays, recoveries] = fields(device, wanted)?;
        let is_active = if let Some(state) = optional(state)? {
            // One that sleeps has no work.
            state != u64::from(sys::NVML_NVLINK_STATE_INACTIVE)
        } else {
            // A driver older than the field.
            let call = call!(device.library(), nvmlDeviceGetNvLinkState)?;
            optional(device.get_at(call, link, 0))?.unwrap_or(0) != 0
        };
        found.active += u32::from(is_active);
        found.errors += optional(errors)?.unwrap_or(0);
        found.replays += optional(replays)?.unwrap_or(0);
        found.recoveries += optional(recoveries)?.unwrap_or(0);
    }
    let [flits, data, replays, recoveries] = fields(device, SUMS)?;
    found.errors += optional(flits)?.unwrap_or(0) + optional(data)?.unwrap_or(0);
    found.replays += optional(replays)?.unwrap_or(0);
    found.recoveries += optional(recoveries)?.unwrap_or(0);
    Ok(found)
}
