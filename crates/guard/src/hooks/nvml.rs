//! NVML's report about a shared GPU: the memory and the processes of the share.

use crate::cuda::Opaque;
use crate::nvml::{self, Status, View};
use crate::platform::ffi::Out;

/// `nvmlMemory_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MemoryV2 {
    version: u32,
    padding: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlProcessInfo_v1_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ProcessV1 {
    pid: u32,
    padding: u32,
    bytes: u64,
}

/// `nvmlProcessInfo_v2_t`, also used by the third version.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ProcessV2 {
    pid: u32,
    padding: u32,
    bytes: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// `nvmlProcessDetail_v1_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Detail {
    pid: u32,
    padding: u32,
    bytes: u64,
    gpu_instance: u32,
    compute_instance: u32,
    protected_bytes: u64,
}

/// `nvmlProcessDetailList_v1_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct DetailList {
    version: u32,
    mode: u32,
    count: u32,
    list: Out<Detail>,
}

/// `nvmlProcessUtilizationSample_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Sample {
    pid: u32,
    time: u64,
    percents: [u32; 4],
}

/// `nvmlProcessUtilizationInfo_v1_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SampleV1 {
    time: u64,
    pid: u32,
    percents: [u32; 6],
}

/// `nvmlProcessesUtilizationInfo_v1_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SampleList {
    version: u32,
    count: u32,
    since: u64,
    list: Out<SampleV1>,
}

/// `nvmlUtilization_t`, in percent of the time.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Utilisation {
    gpu: u32,
    memory: u32,
}

const _: () = {
    assert!(size_of::<MemoryV2>() == 40 && size_of::<ProcessV1>() == 16);
    assert!(
        size_of::<ProcessV2>() == 24 && size_of::<Detail>() == 32 && size_of::<DetailList>() == 24
    );
    assert!(
        size_of::<Sample>() == 32 && size_of::<SampleV1>() == 40 && size_of::<SampleList>() == 24
    );
};

/// No MIG instance.
const NO_INSTANCE: u32 = u32::MAX;

/// Mode of a process list (`nvmlProcessMode_t`).
const COMPUTE: u32 = 0;

hooks! {
    NVML, Status;

    /// Memory of the share.
    fn nvmlDeviceGetMemoryInfo(device: Opaque, memory: Out<Memory>) -> Status {
        adjust(device, real::nvmlDeviceGetMemoryInfo(device, memory), |view| {
            if let Some(real) = memory.read() {
                let (total, used) = view.of(real.total);
                memory.put(Memory { total, free: total - used, used });
            }
        })
    }

    /// Memory of the share. None of it is reserved by the driver.
    fn nvmlDeviceGetMemoryInfo_v2(device: Opaque, memory: Out<MemoryV2>) -> Status {
        adjust(device, real::nvmlDeviceGetMemoryInfo_v2(device, memory), |view| {
            if let Some(real) = memory.read() {
                let (total, used) = view.of(real.total);
                memory.put(MemoryV2 { total, reserved: 0, free: total - used, used, ..real });
            }
        })
    }

    /// How much of the time the GPU works for the share. The driver reports its memory only as a whole: the share gets the same part of it.
    fn nvmlDeviceGetUtilizationRates(device: Opaque, rates: Out<Utilisation>) -> Status {
        let status = real::nvmlDeviceGetUtilizationRates(device, rates);
        if !status.is_success() {
            return status;
        }
        match nvml::utilisation_percent(device) {
            Ok(Some(percent)) => {
                if let Some(real) = rates.read() {
                    let gpu = percent.min(real.gpu);
                    rates.put(Utilisation { gpu, memory: real.memory * gpu / real.gpu.max(1) });
                }
                status
            }
            Ok(None) => status,
            Err(status) => status,
        }
    }

    /// Compute processes of the share.
    fn nvmlDeviceGetComputeRunningProcesses(device: Opaque, count: Out<u32>, list: Out<ProcessV1>) -> Status {
        processes(device, count, list, real::nvmlDeviceGetComputeRunningProcesses)
    }

    /// As above.
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: Opaque, count: Out<u32>, list: Out<ProcessV2>) -> Status {
        processes(device, count, list, real::nvmlDeviceGetComputeRunningProcesses_v2)
    }

    /// As above.
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Opaque, count: Out<u32>, list: Out<ProcessV2>) -> Status {
        processes(device, count, list, real::nvmlDeviceGetComputeRunningProcesses_v3)
    }

    /// Graphics processes of the share: there are none.
    fn nvmlDeviceGetGraphicsRunningProcesses(device: Opaque, count: Out<u32>, list: Out<ProcessV1>) -> Status {
        no_processes(device, count, list, real::nvmlDeviceGetGraphicsRunningProcesses)
    }

    /// As above.
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: Opaque, count: Out<u32>, list: Out<ProcessV2>) -> Status {
        no_processes(device, count, list, real::nvmlDeviceGetGraphicsRunningProcesses_v2)
    }

    /// As above.
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: Opaque, count: Out<u32>, list: Out<ProcessV2>) -> Status {
        no_processes(device, count, list, real::nvmlDeviceGetGraphicsRunningProcesses_v3)
    }

    /// MPS client processes of the share: there are none.
    fn nvmlDeviceGetMPSComputeRunningProcesses(device: Opaque, count: Out<u32>, list: Out<ProcessV1>) -> Status {
        no_processes(device, count, list, real::nvmlDeviceGetMPSComputeRunningProcesses)
    }

    /// As above.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: Opaque, count: Out<u32>, list: Out<ProcessV2>) -> Status {
        no_processes(device, count, list, real::nvmlDeviceGetMPSComputeRunningProcesses_v2)
    }

    /// As above.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: Opaque, count: Out<u32>, list: Out<ProcessV2>) -> Status {
        no_processes(device, count, list, real::nvmlDeviceGetMPSComputeRunningProcesses_v3)
    }

    /// Processes of the share in a given mode.
    fn nvmlDeviceGetRunningProcessDetailList(device: Opaque, list: Out<DetailList>) -> Status {
        let Some(requested) = list.read() else { return real::nvmlDeviceGetRunningProcessDetailList(device, list) };
        let mut request = DetailList { count: 0, list: Out::null(), ..requested };
        let query = || real::nvmlDeviceGetRunningProcessDetailList(device, Out::to(&mut request));
        let room = if requested.list.is_null() { 0 } else { requested.count };
        let is_compute = requested.mode == COMPUTE;
        match fill_list(device, room, is_compute, requested.list, query) {
            Ok(Some((status, count))) => {
                list.put(DetailList { count, ..requested });
                status
            }
            Ok(None) => real::nvmlDeviceGetRunningProcessDetailList(device, list),
            Err(status) => status,
        }
    }

    /// Utilisation by the processes of the share.
    fn nvmlDeviceGetProcessUtilization(device: Opaque, list: Out<Sample>, count: Out<u32>, since: u64) -> Status {
        let status = real::nvmlDeviceGetProcessUtilization(device, list, count, since);
        keep_own_processes(device, status, list, count.read(), |sample| sample.pid, |left| count.put(left))
    }

    /// As above.
    fn nvmlDeviceGetProcessesUtilizationInfo(device: Opaque, list: Out<SampleList>) -> Status {
        let status = real::nvmlDeviceGetProcessesUtilizationInfo(device, list);
        let Some(answer) = list.read() else { return status };
        keep_own_processes(device, status, answer.list, Some(answer.count), |sample| sample.pid, |left| {
            list.put(SampleList { count: left, ..answer });
        })
    }

    /// Accounted processes of the share, running or ended.
    fn nvmlDeviceGetAccountingPids(device: Opaque, count: Out<u32>, list: Out<u32>) -> Status {
        let status = real::nvmlDeviceGetAccountingPids(device, count, list);
        keep_own_processes(device, status, list, count.read(), |pid| *pid, |left| count.put(left))
    }

    /// Accounting of a process of the share; other processes do not exist here.
    fn nvmlDeviceGetAccountingStats(device: Opaque, pid: u32, stats: Opaque) -> Status {
        match nvml::shares_of(device) {
            Ok((process, share_indices)) if !share_indices.is_empty() && !nvml::is_share_process(process, &share_indices, pid) => {
                Status::NO_SUCH_PROCESS
            }
            Ok(_) => real::nvmlDeviceGetAccountingStats(device, pid, stats),
            Err(status) => status,
        }
    }
}

/// Adjusts the driver's report about a device that has shares. A query that the driver answered
/// must not fail for any other reason: frameworks take a failure for a broken GPU.
fn adjust(device: Opaque, status: Status, change: impl FnOnce(View)) -> Status {
    if !status.is_success() {
        return status;
    }
    match View::of_device(device) {
        Ok(Some(view)) => change(view),
        Ok(None) => {}
        Err(status) => return status,
    }
    status
}

/// Elements of process lists.
trait FromShareProcess: Copy {
    fn of(process_of_share: nvml::ShareProcess) -> Self;
}

impl FromShareProcess for ProcessV1 {
    fn of(process_of_share: nvml::ShareProcess) -> Self {
        Self { pid: process_of_share.pid, padding: 0, bytes: process_of_share.bytes }
    }
}

impl FromShareProcess for ProcessV2 {
    fn of(nvml::ShareProcess { pid, bytes }: nvml::ShareProcess) -> Self {
        Self { pid, padding: 0, bytes, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE }
    }
}

impl FromShareProcess for Detail {
    fn of(nvml::ShareProcess { pid, bytes }: nvml::ShareProcess) -> Self {
        let (gpu_instance, compute_instance) = (NO_INSTANCE, NO_INSTANCE);
        Self { pid, padding: 0, bytes, gpu_instance, compute_instance, protected_bytes: 0 }
    }
}

type ListProcesses<T> = fn(Opaque, Out<u32>, Out<T>) -> Status;

fn processes<T: FromShareProcess>(
    device: Opaque,
    count: Out<u32>,
    list: Out<T>,
    real: ListProcesses<T>,
) -> Status {
    list_processes(device, count, list, true, real)
}

fn no_processes<T: FromShareProcess>(
    device: Opaque,
    count: Out<u32>,
    list: Out<T>,
    real: ListProcesses<T>,
) -> Status {
    list_processes(device, count, list, false, real)
}

fn list_processes<T: FromShareProcess>(
    device: Opaque,
    count: Out<u32>,
    list: Out<T>,
    has_processes: bool,
    real: ListProcesses<T>,
) -> Status {
    let Some(room) = count.read() else { return real(device, count, list) };
    let room = if list.is_null() { 0 } else { room };
    let mut others = 0;
    match fill_list(device, room, has_processes, list, || {
        real(device, Out::to(&mut others), Out::null())
    }) {
        Ok(Some((status, found))) => {
            count.put(found);
            status
        }
        Ok(None) => real(device, count, list),
        Err(status) => status,
    }
}

/// Fills a list of limited size with the processes of the share. Returns the status and their
/// number; `None` for a device without a share. `query` asks the driver for its number, for errors
/// that only the driver can report.
fn fill_list<T: FromShareProcess>(
    device: Opaque,
    room: u32,
    has_processes: bool,
    list: Out<T>,
    query: impl FnOnce() -> Status,
) -> Result<Option<(Status, u32)>, Status> {
    let (process, share_indices) = nvml::shares_of(device)?;
    if share_indices.is_empty() {
        return Ok(None);
    }
    match query() {
        Status::SUCCESS | Status::INSUFFICIENT_SIZE => {}
        status => return Err(status),
    }
    let mut found = 0;
    if has_processes {
        nvml::for_each_process(process, &share_indices, |process_of_share| {
            if found < room {
                list.at(found as usize).put(T::of(process_of_share));
            }
            found += 1;
        });
    }
    let status = if found > room { Status::INSUFFICIENT_SIZE } else { Status::SUCCESS };
    Ok(Some((status, found)))
}

/// Removes other processes from a list that the driver filled.
fn keep_own_processes<T: Copy>(
    device: Opaque,
    status: Status,
    list: Out<T>,
    count: Option<u32>,
    pid: impl Fn(&T) -> u32,
    set_count: impl FnOnce(u32),
) -> Status {
    if !status.is_success() || list.is_null() {
        return status;
    }
    let (process, share_indices) = match nvml::shares_of(device) {
        Ok(shares) => shares,
        Err(status) => return status,
    };
    if share_indices.is_empty() {
        return status;
    }
    let mut left = 0;
    for entry in (0..count.unwrap_or(0)).filter_map(|index| list.at(index as usize).read()) {
        if nvml::is_share_process(process, &share_indices, pid(&entry)) {
            list.at(left as usize).put(entry);
            left += 1;
        }
    }
    set_count(left);
    status
}
