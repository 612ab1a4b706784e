//! The GPUs that a process sees, and the shares of each.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cuda::{Device, Status};
use crate::driver::call;
use crate::platform::ffi::Out;
use crate::process::Process;
use crate::shares::{MAX_SHARES, Share};

/// Maximum number of GPUs visible to a process; the driver has fewer.
const MAX_DEVICES: usize = 64;

/// Flag beside the bits of shares: the device was resolved.
const RESOLVED: u64 = 1 << 63;

const _: () = assert!(MAX_SHARES < 63);

/// The number of GPUs is not known.
const UNKNOWN: u32 = 0;
/// The process sees one GPU.
const ONE: u32 = 1;
/// It sees several.
const SEVERAL: u32 = 2;

/// The GPUs that a process sees. Zero bytes are those of which nothing is known.
#[derive(Debug)]
pub(crate) struct Devices {
    /// One word per GPU, with a bit for each of its shares.
    words: [AtomicU64; MAX_DEVICES],
    /// How many there are, as one of the values above.
    number: AtomicU32,
}

impl Devices {
    /// Whether the process sees one GPU.
    pub(crate) fn is_one(&self) -> bool {
        if self.number.load(Ordering::Relaxed) == UNKNOWN {
            let mut count = 0;
            if !call::cuDeviceGetCount(Out::to(&mut count)).is_success() {
                return false;
            }
            self.number.store(if count == 1 { ONE } else { SEVERAL }, Ordering::Relaxed);
        }
        self.number.load(Ordering::Relaxed) == ONE
    }

    /// The shares of a GPU as bits; `None` if the driver does not know the GPU.
    fn bits(&self, device: Device, shares: &[Share]) -> Option<u64> {
        let word = self.words.get(usize::try_from(device).ok()?)?;
        let bits = word.load(Ordering::Relaxed);
        if bits & RESOLVED != 0 {
            return Some(bits & !RESOLVED);
        }
        let mut gpu = [0; 16];
        let mut status = call::cuDeviceGetUuid_v2(Out::to(&mut gpu), device);
        if status == Status::NOT_FOUND {
            status = call::cuDeviceGetUuid(Out::to(&mut gpu), device);
        }
        if !status.is_success() {
            return None;
        }
        let bits = shares
            .iter()
            .enumerate()
            .filter(|(_, share)| share.gpu == gpu)
            .fold(0, |bits, (share_index, _)| bits | 1 << share_index);
        word.store(bits | RESOLVED, Ordering::Relaxed);
        Some(bits)
    }
}

impl Process {
    /// Indices of the shares of a GPU; empty for a GPU that the container has without a share.
    ///
    /// Calls on a GPU whose UUID the driver does not report fail, because any share could be on it.
    pub(crate) fn shares_of(&self, device: Device) -> Result<ShareIndices, Status> {
        if self.shares.is_empty() {
            return Ok(ShareIndices(0));
        }
        self.devices.bits(device, self.shares.all()).map(ShareIndices).ok_or(Status::INVALID_DEVICE)
    }
}

/// The GPU of this thread's context.
pub(crate) fn current() -> Result<Device, Status> {
    let mut device = 0;
    let status = call::cuCtxGetDevice(Out::to(&mut device));
    if status.is_success() { Ok(device) } else { Err(status) }
}

/// A set of indices of shares.
#[derive(Clone, Debug)]
pub(crate) struct ShareIndices(u64);

impl ShareIndices {
    /// Collects indices.
    pub(crate) fn of(share_indices: impl Iterator<Item = usize>) -> Self {
        Self(share_indices.fold(0, |share_indices, share_index| share_indices | 1 << share_index))
    }

    /// Whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

impl Iterator for ShareIndices {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let share_index = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(share_index)
    }
}
