//! NVML, as far as the hooks read it.

use core::sync::atomic::{AtomicU64, Ordering};

use octavo_guard_abi::{state::Slot, uuid};

use crate::cuda::Opaque;
use crate::devices::ShareIndices;
use crate::driver::{self, FunctionAddress};
use crate::process::{self, Process};
use crate::shares::Share;

/// Result of a call (`nvmlReturn_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const NO_PERMISSION: Self = Self(4);
    pub(crate) const NO_SUCH_PROCESS: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    /// The driver has no function of that name.
    pub(crate) const NOT_FOUND: Self = Self(13);

    /// Whether the call succeeded.
    pub(crate) fn is_success(self) -> bool {
        self == Self::SUCCESS
    }
}

/// Size of a UUID's text in NVML's header.
const TEXT: usize = 96;

static UUID: FunctionAddress = FunctionAddress::new();

/// Functions that are called but not hooked, for [`crate::driver`].
pub(crate) const TABLE: &[(&str, &FunctionAddress)] = &[("nvmlDeviceGetUUID", &UUID)];

/// The sixteen bytes of a device's UUID.
fn uuid_of(device: Opaque) -> Option<[u8; 16]> {
    let address = UUID.resolved(&driver::NVML);
    if address == 0 {
        return None;
    }
    // JUSTIFICATION: the driver is C, found at run time.
    // SAFETY: `nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t, char *, unsigned)`.
    let ask: extern "C" fn(Opaque, *mut u8, u32) -> Status =
        unsafe { core::mem::transmute(address) };
    let mut text = [0; TEXT];
    if !ask(device, text.as_mut_ptr(), 96).is_success() {
        return None;
    }
    // A MIG device has a UUID of the same form.
    if text.starts_with(b"MIG-") {
        text[..4].copy_from_slice(b"GPU-");
    }
    let length = text.iter().position(|byte| *byte == 0)?;
    uuid::parse(core::str::from_utf8(text.get(..length)?).ok()?)
}

/// The shares of a device; empty if the container has the device without a share. Fails for a
/// closed process and for a device that does not report its UUID: any share could be on it.
pub(crate) fn shares_of(device: Opaque) -> Result<(&'static Process, ShareIndices), Status> {
    let process = process::get().map_err(|_| Status::NO_PERMISSION)?;
    if process.shares.is_empty() {
        return Ok((process, ShareIndices::of(core::iter::empty())));
    }
    let gpu = uuid_of(device).ok_or(Status::NO_PERMISSION)?;
    let shares = process.shares.all().iter().enumerate();
    let own = shares.filter(|(_, share)| share.gpu == gpu).map(|(share_index, _)| share_index);
    Ok((process, ShareIndices::of(own)))
}

/// Whether this process has shares of GPUs, or is closed.
pub(crate) fn is_sharing() -> bool {
    process::get().map_or(true, |process| !process.shares.is_empty())
}

/// Limit and usage of all shares of a device together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    limit: u64,
    used: u64,
}

impl View {
    /// The view of a device; `None` if it has no share.
    pub(crate) fn of_device(device: Opaque) -> Result<Option<Self>, Status> {
        let (process, share_indices) = shares_of(device)?;
        if share_indices.is_empty() {
            return Ok(None);
        }
        let shares = share_indices.filter_map(|share_index| process.shares.get(share_index));
        Ok(Some(shares.fold(Self { limit: 0, used: 0 }, |view, share| Self {
            limit: view.limit.saturating_add(share.limit()),
            used: view.used.saturating_add(share.total().min(share.limit())),
        })))
    }

    /// Total and used bytes, given the driver's total.
    pub(crate) fn of(self, total: u64) -> (u64, u64) {
        let total = self.limit.min(total);
        (total, self.used.min(total))
    }
}

/// How much of the time a device works for its shares, in percent, rounded up: work is never shown as none. `None` if it has no share, or if the agent does not know it of one.
pub(crate) fn utilisation_percent(device: Opaque) -> Result<Option<u32>, Status> {
    let (process, share_indices) = shares_of(device)?;
    if share_indices.is_empty() {
        return Ok(None);
    }
    let shares = share_indices.filter_map(|share_index| process.shares.get(share_index));
    let permille = shares
        .map(Share::utilisation_permille)
        .try_fold(0_u32, |sum, share| Some(sum.saturating_add(share?)));
    Ok(permille.map(|permille| permille.div_ceil(10).min(100)))
}

/// A process of the share that has memory, as seen from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareProcess {
    /// Its pid in this process's pid namespace.
    pub(crate) pid: u32,
    /// Bytes charged to it.
    pub(crate) bytes: u64,
}

/// Visits the processes of a device's shares that have memory and a pid in this process's pid
/// namespace.
pub(crate) fn for_each_process(
    process: &'static Process,
    share_indices: &ShareIndices,
    mut visit: impl FnMut(ShareProcess),
) {
    for share in share_indices.clone().filter_map(|share_index| process.shares.get(share_index)) {
        share.reap();
    }
    for (order, share_index) in share_indices.clone().enumerate() {
        for slot in slots(process, share_index) {
            let pid = word(&slot.pid);
            let bytes_in = |share_index| {
                let own = slots(process, share_index).filter(|slot| word(&slot.pid) == pid);
                own.map(|slot| word(&slot.used_bytes)).fold(0, u64::saturating_add)
            };
            // It is visited with the first share in which it has memory.
            if share_indices.clone().take(order).any(|share_index| bytes_in(share_index) > 0) {
                continue;
            }
            let bytes = share_indices.clone().map(bytes_in).fold(0, u64::saturating_add);
            visit(ShareProcess { pid: u32::try_from(pid).unwrap_or(0), bytes });
        }
    }
}

/// Whether [`for_each_process`] visits a process.
pub(crate) fn is_share_process(
    process: &'static Process,
    share_indices: &ShareIndices,
    pid: u32,
) -> bool {
    let is_it = |slot: &Slot| word(&slot.pid) == u64::from(pid);
    share_indices.clone().any(|share_index| slots(process, share_index).any(is_it))
}

/// The slots of a share whose processes have memory and are in this process's pid namespace.
fn slots(process: &'static Process, share_index: usize) -> impl Iterator<Item = &'static Slot> {
    let share = process.shares.get(share_index);
    let here = share.map_or(0, |share| word(&share.slot().pid_namespace));
    share
        .into_iter()
        .flat_map(Share::slots)
        .filter(move |slot| word(&slot.used_bytes) > 0 && word(&slot.pid_namespace) == here)
}

fn word(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}
