//! Which GPU has which shares.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cuda::{Device, Status};
use crate::driver::call;
use crate::ffi::Out;
use crate::process::Process;
use crate::shares::{MOST, Share};

/// GPUs that a process can see; the driver has fewer.
const DEVICES: usize = 64;

/// Beside the bits of shares: the device was looked at.
const KNOWN: u64 = 1 << 63;

const _: () = assert!(MOST < 63);

/// A word for each GPU: a bit for each of its shares.
#[derive(Debug)]
pub(crate) struct Devices {
    words: [AtomicU64; DEVICES],
}

impl Devices {
    /// The shares of a GPU as bits; none where the driver does not know it.
    fn bits(&self, device: Device, shares: &[Share]) -> Option<u64> {
        let word = self.words.get(usize::try_from(device).ok()?)?;
        let bits = word.load(Ordering::Relaxed);
        if bits & KNOWN != 0 {
            return Some(bits & !KNOWN);
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
            .fold(0, |bits, (place, _)| bits | 1 << place);
        word.store(bits | KNOWN, Ordering::Relaxed);
        Some(bits)
    }
}

impl Process {
    /// Places of the shares of a GPU; none of them for one that is the container's without a share.
    ///
    /// A GPU whose identity the driver does not tell could be anybody's: its calls fail.
    pub(crate) fn shares_of(&self, device: Device) -> Result<Places, Status> {
        if self.shares.is_empty() {
            return Ok(Places(0));
        }
        self.devices.bits(device, self.shares.all()).map(Places).ok_or(Status::INVALID_DEVICE)
    }
}

/// The GPU of this thread's context.
pub(crate) fn current() -> Result<Device, Status> {
    let mut device = 0;
    let status = call::cuCtxGetDevice(Out::to(&mut device));
    if status.is_success() { Ok(device) } else { Err(status) }
}

/// Places of shares.
#[derive(Clone, Debug)]
pub(crate) struct Places(u64);

impl Places {
    /// Those.
    pub(crate) fn of(places: impl Iterator<Item = usize>) -> Self {
        Self(places.fold(0, |places, place| places | 1 << place))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let place = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(place)
    }
}
