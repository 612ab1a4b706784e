//! Processes that use a GPU.

use std::ffi::{c_uint, c_ulonglong};
use std::time::{SystemTime, UNIX_EPOCH};

use nvml_wrapper_sys::bindings as sys;

use crate::code::{CallResult, Code};
use crate::pointers::{ListOut, Out};
use crate::session::Device;

gpu_calls! {
    fn nvmlDeviceGetComputeRunningProcesses(
        gpu,
        count: Out<c_uint>,
        processes: ListOut<sys::nvmlProcessInfo_v1_t>,
    ) {
        let users = gpu.usage.users();
        put(count, processes, users.iter().map(|user| sys::nvmlProcessInfo_v1_t {
            pid: user.pid,
            usedGpuMemory: user.used,
        }))
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(
        gpu,
        count: Out<c_uint>,
        processes: ListOut<sys::nvmlProcessInfo_t>,
    ) {
        put(count, processes, infos(gpu))
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(
        gpu,
        count: Out<c_uint>,
        processes: ListOut<sys::nvmlProcessInfo_t>,
    ) {
        put(count, processes, infos(gpu))
    }

    /// A simulated GPU has no graphics processes.
    fn nvmlDeviceGetGraphicsRunningProcesses(
        gpu,
        count: Out<c_uint>,
        _processes: ListOut<sys::nvmlProcessInfo_v1_t>,
    ) {
        let _ = gpu;
        count.put(0)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v2(
        gpu,
        count: Out<c_uint>,
        _processes: ListOut<sys::nvmlProcessInfo_t>,
    ) {
        let _ = gpu;
        count.put(0)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3(
        gpu,
        count: Out<c_uint>,
        _processes: ListOut<sys::nvmlProcessInfo_t>,
    ) {
        let _ = gpu;
        count.put(0)
    }

    /// There is no MPS server.
    fn nvmlDeviceGetMPSComputeRunningProcesses(
        gpu,
        count: Out<c_uint>,
        _processes: ListOut<sys::nvmlProcessInfo_v1_t>,
    ) {
        let _ = gpu;
        count.put(0)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
        gpu,
        count: Out<c_uint>,
        _processes: ListOut<sys::nvmlProcessInfo_t>,
    ) {
        let _ = gpu;
        count.put(0)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
        gpu,
        count: Out<c_uint>,
        _processes: ListOut<sys::nvmlProcessInfo_t>,
    ) {
        let _ = gpu;
        count.put(0)
    }

    /// One sample per process: its share of the time since the last query.
    fn nvmlDeviceGetProcessUtilization(
        gpu,
        samples: ListOut<sys::nvmlProcessUtilizationSample_t>,
        count: Out<c_uint>,
        _since: c_ulonglong,
    ) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let busy: Vec<_> =
            gpu.usage.shares().into_iter().filter(|(_, percent)| *percent > 0).collect();
        if busy.is_empty() {
            count.put(0)?;
            return Err(Code::NOT_FOUND);
        }
        put(count, samples, busy.into_iter().map(|(user, percent)| {
            sys::nvmlProcessUtilizationSample_t {
                pid: user.pid,
                timeStamp: now,
                smUtil: percent,
                memUtil: percent / 2,
                encUtil: 0,
                decUtil: 0,
            }
        }))
    }
}

/// No instance.
const NO_INSTANCE: c_uint = c_uint::MAX;

fn infos(gpu: &Device<'_>) -> impl ExactSizeIterator<Item = sys::nvmlProcessInfo_t> {
    gpu.usage.users().into_iter().map(|user| sys::nvmlProcessInfo_t {
        pid: user.pid,
        usedGpuMemory: user.used,
        gpuInstanceId: NO_INSTANCE,
        computeInstanceId: NO_INSTANCE,
    })
}

/// Writes a list into the caller's array, whose capacity is in `count`; `count` receives the true
/// length in any case.
fn put<T>(
    count: Out<c_uint>,
    list: ListOut<T>,
    values: impl ExactSizeIterator<Item = T>,
) -> CallResult {
    let room = count.read()?;
    let length = c_uint::try_from(values.len()).unwrap_or(c_uint::MAX);
    count.put(length)?;
    if length > room {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    list.put(values);
    Ok(())
}
