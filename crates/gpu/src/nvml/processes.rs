//! The processes that hold memory on a GPU.

use std::collections::BTreeMap;

use nvml_wrapper_sys::bindings as sys;

use super::call::{self, Call, call};
use super::device::Device;
use super::read::optional;
use crate::{DriverError, GpuProcess};

/// Limit of attempts. Processes may start between the call that counts them and the next.
const MAX_ATTEMPTS: usize = 4;
/// Spare buffer entries beyond the count.
const SPARE_ENTRIES: usize = 8;
/// Greater counts are not plausible for any GPU.
const MAX_PROCESSES: usize = 1 << 16;
/// NVML's value for unknown memory (`NVML_VALUE_NOT_AVAILABLE`).
const NOT_AVAILABLE: u64 = u64::MAX;

/// The processes of a GPU, each once. A process with graphics and compute is in both lists, each
/// with all of its memory.
pub(super) fn processes(device: Device<'_>) -> Result<Vec<GpuProcess>, DriverError> {
    let library = device.library();
    // Compute processes are mandatory; some drivers and GPUs lack the other lists. Drivers before r510
    // have the second version, with the same structure.
    let third = call!(library, nvmlDeviceGetComputeRunningProcesses_v3);
    let second = || call!(library, nvmlDeviceGetComputeRunningProcesses_v2);
    let compute = third.or_else(|missing| second().map_err(|_| missing))?;
    let mut found = list(device, compute)?;
    let graphics = call!(library, nvmlDeviceGetGraphicsRunningProcesses_v3)
        .or_else(|_| call!(library, nvmlDeviceGetGraphicsRunningProcesses_v2));
    let mps = call!(library, nvmlDeviceGetMPSComputeRunningProcesses_v3)
        .or_else(|_| call!(library, nvmlDeviceGetMPSComputeRunningProcesses_v2));
    for call in [graphics, mps] {
        found.extend(optional(call.and_then(|call| list(device, call)))?.unwrap_or_default());
    }
    Ok(merged(found))
}

/// One list.
fn list(device: Device<'_>, call: Call<call::Processes>) -> Result<Vec<GpuProcess>, DriverError> {
    let empty =
        sys::nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    let mut buffer = vec![empty; SPARE_ENTRIES];
    for _ in 0..MAX_ATTEMPTS {
        let mut count = 0;
        let code = call::processes(call, device.handle(), &mut buffer, &mut count);
        if code == sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE {
            buffer.resize(count.min(MAX_PROCESSES) + SPARE_ENTRIES, empty);
            continue;
        }
        device.library().check(call.name, code)?;
        buffer.truncate(count);
        return Ok(buffer.iter().map(process).collect());
    }
    device.library().check(call.name, sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE)?;
    Ok(Vec::new())
}

fn process(info: &sys::nvmlProcessInfo_t) -> GpuProcess {
    let used_bytes = (info.usedGpuMemory != NOT_AVAILABLE).then_some(info.usedGpuMemory);
    GpuProcess { pid: info.pid, used_bytes }
}

/// The processes by PID, each with the greatest memory of any list.
fn merged(found: Vec<GpuProcess>) -> Vec<GpuProcess> {
    let mut by_pid: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for GpuProcess { pid, used_bytes } in found {
        let known = by_pid.entry(pid).or_default();
        *known = (*known).max(used_bytes);
    }
    by_pid.into_iter().map(|(pid, used_bytes)| GpuProcess { pid, used_bytes }).collect()
}

#[cfg(test)]
mod tests;
