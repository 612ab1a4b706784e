//! What NVIDIA's management library tells of a GPU that is shared: the share's memory and its processes.

use crate::cuda::Opaque;
use crate::ffi::Out;
use crate::nvml::{self, Status, View};

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

/// `nvmlProcessInfo_v2_t`, which is also the third version's.
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

const _: () = {
    assert!(size_of::<MemoryV2>() == 40 && size_of::<ProcessV1>() == 16);
    assert!(
        size_of::<ProcessV2>() == 24 && size_of::<Detail>() == 32 && size_of::<DetailList>() == 24
    );
    assert!(
        size_of::<Sample>() == 32 && size_of::<SampleV1>() == 40 && size_of::<SampleList>() == 24
    );
};

/// No instance of a divided GPU.
const NO_INSTANCE: u32 = u32::MAX;

/// What a list of processes lists (`nvmlProcessMode_t`).
const COMPUTE: u32 = 0;

hooks! {
    NVML, Status;

    /// Memory of the share.
    fn nvmlDeviceGetMemoryInfo(device: Opaque, memory: Out<Memory>) -> Status {
        shown(device, real::nvmlDeviceGetMemoryInfo(device, memory), |view| {
            if let Some(real) = memory.read() {
                let (total, used) = view.of(real.total);
                memory.put(Memory { total, free: total - used, used });
            }
        })
    }

    /// Memory of the share. Nothing of it is the driver's.
    fn nvmlDeviceGetMemoryInfo_v2(device: Opaque, memory: Out<MemoryV2>) -> Status {
        shown(device, real::nvmlDeviceGetMemoryInfo_v2(device, memory), |view| {
            if let Some(real) = memory.read() {
                let (total, used) = view.of(real.total);
                memory.put(MemoryV2 { total, reserved: 0, free: total - used, used, ..real });
            }
        })
    }

    /// The share's processes that compute.
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

    /// The share's processes that draw: there are none.
    fn nvmlDeviceGetGraphicsRunningProcesses(device: Opaque, count: Out<u32>, list: Out<ProcessV1>) -> Status {
        none(device, count, list, real::nvmlDeviceGetGraphicsRunningProcesses)
    }

    /// As above.
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: Opaque, count: Out<u32>, list: Out<ProcessV2>) -> Status {
        none(device, count, list, real::nvmlDeviceGetGraphicsRunningProcesses_v2)
    }

    /// As above.
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: Opaque, count: Out<u32>, list: Out<ProcessV2>) -> Status {
        none(device, count, list, real::nvmlDeviceGetGraphicsRunningProcesses_v3)
    }

    /// The share's processes that compute through a server of the host: there are none.
    fn nvmlDeviceGetMPSComputeRunningProcesses(device: Opaque, count: Out<u32>, list: Out<ProcessV1>) -> Status {
        none(device, count, list, real::nvmlDeviceGetMPSComputeRunningProcesses)
    }

    /// As above.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: Opaque, count: Out<u32>, list: Out<ProcessV2>) -> Status {
        none(device, count, list, real::nvmlDeviceGetMPSComputeRunningProcesses_v2)
    }

    /// As above.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: Opaque, count: Out<u32>, list: Out<ProcessV2>) -> Status {
        none(device, count, list, real::nvmlDeviceGetMPSComputeRunningProcesses_v3)
    }

    /// The share's processes of a kind.
    fn nvmlDeviceGetRunningProcessDetailList(device: Opaque, list: Out<DetailList>) -> Status {
        let Some(wanted) = list.read() else { return real::nvmlDeviceGetRunningProcessDetailList(device, list) };
        let mut asked = DetailList { count: 0, list: Out::null(), ..wanted };
        let ask = || real::nvmlDeviceGetRunningProcessDetailList(device, Out::to(&mut asked));
        let room = if wanted.list.is_null() { 0 } else { wanted.count };
        let is_compute = wanted.mode == COMPUTE;
        match filled(device, room, is_compute, wanted.list, ask) {
            Ok(Some((status, count))) => {
                list.put(DetailList { count, ..wanted });
                status
            }
            Ok(None) => real::nvmlDeviceGetRunningProcessDetailList(device, list),
            Err(status) => status,
        }
    }

    /// How much of the GPU's time the share's processes had.
    fn nvmlDeviceGetProcessUtilization(device: Opaque, list: Out<Sample>, count: Out<u32>, since: u64) -> Status {
        let status = real::nvmlDeviceGetProcessUtilization(device, list, count, since);
        kept(device, status, list, count.read(), |sample| sample.pid, |left| count.put(left))
    }

    /// As above.
    fn nvmlDeviceGetProcessesUtilizationInfo(device: Opaque, list: Out<SampleList>) -> Status {
        let status = real::nvmlDeviceGetProcessesUtilizationInfo(device, list);
        let Some(told) = list.read() else { return status };
        kept(device, status, told.list, Some(told.count), |sample| sample.pid, |left| {
            list.put(SampleList { count: left, ..told });
        })
    }

    /// Processes of the share that have ended or not, and are accounted for.
    fn nvmlDeviceGetAccountingPids(device: Opaque, count: Out<u32>, list: Out<u32>) -> Status {
        let status = real::nvmlDeviceGetAccountingPids(device, count, list);
        kept(device, status, list, count.read(), |pid| *pid, |left| count.put(left))
    }

    /// What a process of the share has used; others are nobody's here.
    fn nvmlDeviceGetAccountingStats(device: Opaque, pid: u32, stats: Opaque) -> Status {
        match nvml::shares_of(device) {
            Ok((process, places)) if !places.is_empty() && !nvml::is_member(process, &places, pid) => {
                Status::NO_SUCH_PROCESS
            }
            Ok(_) => real::nvmlDeviceGetAccountingStats(device, pid, stats),
            Err(status) => status,
        }
    }
}

/// Changes what the driver said of a device that has shares. Nothing else makes a question fail that the driver
/// has answered: frameworks take that for a broken GPU.
fn shown(device: Opaque, status: Status, tell: impl FnOnce(View)) -> Status {
    if !status.is_success() {
        return status;
    }
    match View::of_device(device) {
        Ok(Some(view)) => tell(view),
        Ok(None) => {}
        Err(status) => return status,
    }
    status
}

/// What lists of processes are made of.
trait Listed: Copy {
    fn of(member: nvml::Member) -> Self;
}

impl Listed for ProcessV1 {
    fn of(member: nvml::Member) -> Self {
        Self { pid: member.pid, padding: 0, bytes: member.bytes }
    }
}

impl Listed for ProcessV2 {
    fn of(nvml::Member { pid, bytes }: nvml::Member) -> Self {
        Self { pid, padding: 0, bytes, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE }
    }
}

impl Listed for Detail {
    fn of(nvml::Member { pid, bytes }: nvml::Member) -> Self {
        let (gpu_instance, compute_instance) = (NO_INSTANCE, NO_INSTANCE);
        Self { pid, padding: 0, bytes, gpu_instance, compute_instance, protected_bytes: 0 }
    }
}

type Ask<T> = fn(Opaque, Out<u32>, Out<T>) -> Status;

fn processes<T: Listed>(device: Opaque, count: Out<u32>, list: Out<T>, real: Ask<T>) -> Status {
    listed(device, count, list, true, real)
}

fn none<T: Listed>(device: Opaque, count: Out<u32>, list: Out<T>, real: Ask<T>) -> Status {
    listed(device, count, list, false, real)
}

fn listed<T: Listed>(
    device: Opaque,
    count: Out<u32>,
    list: Out<T>,
    are_any: bool,
    real: Ask<T>,
) -> Status {
    let Some(room) = count.read() else { return real(device, count, list) };
    let room = if list.is_null() { 0 } else { room };
    let mut others = 0;
    match filled(device, room, are_any, list, || real(device, Out::to(&mut others), Out::null())) {
        Ok(Some((status, found))) => {
            count.put(found);
            status
        }
        Ok(None) => real(device, count, list),
        Err(status) => status,
    }
}

/// Puts the share's processes into a list with some room; gives the answer and how many there are. None for a
/// device without a share. `ask` asks the driver how many it knows, for errors that only the driver can tell.
fn filled<T: Listed>(
    device: Opaque,
    room: u32,
    are_any: bool,
    list: Out<T>,
    ask: impl FnOnce() -> Status,
) -> Result<Option<(Status, u32)>, Status> {
    let (process, places) = nvml::shares_of(device)?;
    if places.is_empty() {
        return Ok(None);
    }
    match ask() {
        Status::SUCCESS | Status::INSUFFICIENT_SIZE => {}
        status => return Err(status),
    }
    let mut found = 0;
    if are_any {
        nvml::each_member(process, &places, |member| {
            if found < room {
                list.at(found as usize).put(T::of(member));
            }
            found += 1;
        });
    }
    let status = if found > room { Status::INSUFFICIENT_SIZE } else { Status::SUCCESS };
    Ok(Some((status, found)))
}

/// Takes other processes out of a list that the driver has filled.
fn kept<T: Copy>(
    device: Opaque,
    status: Status,
    list: Out<T>,
    count: Option<u32>,
    pid: impl Fn(&T) -> u32,
    tell: impl FnOnce(u32),
) -> Status {
    if !status.is_success() || list.is_null() {
        return status;
    }
    let (process, places) = match nvml::shares_of(device) {
        Ok(shares) => shares,
        Err(status) => return status,
    };
    if places.is_empty() {
        return status;
    }
    let mut left = 0;
    for entry in (0..count.unwrap_or(0)).filter_map(|index| list.at(index as usize).read()) {
        if nvml::is_member(process, &places, pid(&entry)) {
            list.at(left as usize).put(entry);
            left += 1;
        }
    }
    tell(left);
    status
}
