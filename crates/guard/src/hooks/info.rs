//! GPU memory as reported to a program: that of its share.

use crate::cuda::{Device, Status};
use crate::devices;
use crate::platform::ffi::Out;
use crate::process;
use crate::tracking::pools;

hooks! {
    CUDA, Status;

    /// Free and total memory, before CUDA 3.2.
    fn cuMemGetInfo(free: Out<u32>, total: Out<u32>) -> Status {
        let status = real::cuMemGetInfo(free, total);
        if !status.is_success() {
            return status;
        }
        adjust_answer(|view| {
            if let (Some(driver_free), Some(driver_total)) = (free.read(), total.read()) {
                let (left, all) = view.of(u64::from(driver_free), u64::from(driver_total));
                free.put(u32::try_from(left).unwrap_or(u32::MAX));
                total.put(u32::try_from(all).unwrap_or(u32::MAX));
            }
        })
    }

    /// Free and total memory of the share.
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> Status {
        let status = real::cuMemGetInfo_v2(free, total);
        if !status.is_success() {
            return status;
        }
        adjust_answer(|view| {
            if let (Some(driver_free), Some(driver_total)) = (free.read(), total.read()) {
                let (left, all) = view.of(driver_free as u64, driver_total as u64);
                free.put(usize::try_from(left).unwrap_or(usize::MAX));
                total.put(usize::try_from(all).unwrap_or(usize::MAX));
            }
        })
    }

    /// Total memory, before CUDA 3.2.
    fn cuDeviceTotalMem(bytes: Out<u32>, device: Device) -> Status {
        let status = real::cuDeviceTotalMem(bytes, device);
        if !status.is_success() {
            return status;
        }
        match View::of_device(device) {
            Ok(Some(view)) => {
                if let Some(driver_total) = bytes.read() {
                    let all = view.limit.min(u64::from(driver_total));
                    bytes.put(u32::try_from(all).unwrap_or(u32::MAX));
                }
                status
            }
            Ok(None) => status,
            Err(status) => status,
        }
    }

    /// Total memory of the share.
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: Device) -> Status {
        let status = real::cuDeviceTotalMem_v2(bytes, device);
        if !status.is_success() {
            return status;
        }
        match View::of_device(device) {
            Ok(Some(view)) => {
                if let Some(driver_total) = bytes.read() {
                    let all = view.limit.min(driver_total as u64);
                    bytes.put(usize::try_from(all).unwrap_or(usize::MAX));
                }
                status
            }
            Ok(None) => status,
            Err(status) => status,
        }
    }
}

/// Free memory of the current GPU.
pub(crate) fn free_memory() -> Option<u64> {
    let (mut free, mut total) = (0, 0);
    let status = real::cuMemGetInfo_v2(Out::to(&mut free), Out::to(&mut total));
    status.is_success().then_some(free as u64)
}

/// Adjusts the driver's report about the current GPU, if it has shares.
fn adjust_answer(adjust: impl FnOnce(View)) -> Status {
    // Pool memory that the driver freed at a synchronisation is free as well.
    match devices::current().inspect(|device| pools::settle_all(*device)).and_then(View::of_device)
    {
        Ok(view) => {
            if let Some(view) = view {
                adjust(view);
            }
            Status::SUCCESS
        }
        Err(status) => status,
    }
}

/// Limit and usage of all shares of a GPU together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Their limits in bytes.
    pub(crate) limit: u64,
    /// Their usage in bytes.
    pub(crate) used: u64,
}

impl View {
    /// The view of a GPU; `None` if it has no share.
    pub(crate) fn of_device(device: Device) -> Result<Option<Self>, Status> {
        let process = process::get()?;
        let share_indices = process.shares_of(device)?;
        if share_indices.is_empty() {
            return Ok(None);
        }
        process.discover_primary(device);
        let shares = share_indices.filter_map(|share_index| process.shares.get(share_index));
        Ok(Some(shares.fold(Self { limit: 0, used: 0 }, |view, share| Self {
            limit: view.limit.saturating_add(share.limit()),
            // A share over its limit takes nothing from its sibling.
            used: view.used.saturating_add(share.total().min(share.limit())),
        })))
    }

    /// Free and total bytes, never more than the driver's. A share over its limit has nothing free,
    /// which is no error.
    pub(crate) fn of(self, driver_free: u64, driver_total: u64) -> (u64, u64) {
        let left = self.limit.saturating_sub(self.used);
        (left.min(driver_free), self.limit.min(driver_total))
    }
}
