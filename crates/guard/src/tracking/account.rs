//! Accounting: every hook that allocates memory charges it here before it calls the driver, and
//! releases the charge after the driver has freed the memory.

use crate::cuda::{Device, Status};
use crate::leases::wait_while_suspended;
use crate::process::{self, Process};

pub(crate) mod advances;
pub(crate) mod reclaim;
pub(crate) mod reserve;

/// Bytes that are charged, and the share they are charged to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    /// Index of the share plus one; 0 for a GPU without a share.
    share: u8,
    bytes: u64,
}

impl Charge {
    /// Nothing, in no share.
    pub(crate) const NONE: Self = Self { share: 0, bytes: 0 };

    fn of(share_index: usize, bytes: u64) -> Self {
        // There are at most 32 shares.
        Self { share: u8::try_from(share_index + 1).unwrap_or(0), bytes }
    }

    /// Index of the share; `None` for a GPU without one.
    pub(crate) fn share_index(self) -> Option<usize> {
        usize::from(self.share).checked_sub(1)
    }

    /// Packs the charge into one word; 0 for nothing.
    pub(crate) fn packed(self) -> u64 {
        if self.share == 0 || self.bytes >> 56 != 0 {
            0
        } else {
            u64::from(self.share) << 56 | self.bytes
        }
    }

    /// Unpacks a word.
    pub(crate) fn unpacked(word: u64) -> Self {
        let [share, ..] = word.to_be_bytes();
        Self { share, bytes: word & (u64::MAX >> 8) }
    }

    /// Bytes that are charged.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes
    }
}

/// Charges bytes on a GPU before they are allocated. Waits while the share is paused.
///
/// Fails with `OUT_OF_MEMORY` if they do not fit, `NOT_PERMITTED` if the share is fenced and
/// `NO_DEVICE` if the process is closed. A GPU with several shares offers the memory of all of
/// them, but one allocation lies in one share.
///
/// Memory that the driver keeps idle is reclaimed before a refusal, as the driver itself does.
pub(crate) fn charge(device: Device, bytes: u64) -> Result<Charge, Status> {
    match charge_in(device, 0, bytes) {
        Err(Status::OUT_OF_MEMORY) if reclaim::run(device, bytes) => {}
        result => return result.inspect_err(|_| note_refusal(device)),
    }
    charge_in(device, 0, bytes).inspect_err(|_| note_refusal(device))
}

/// Like [`charge`], but without reclaiming. `share` selects a share, encoded as in [`Charge`]; 0
/// means any.
pub(crate) fn charge_in(device: Device, share: u8, bytes: u64) -> Result<Charge, Status> {
    // A process whose memory is on the host takes none of the GPU's.
    wait_while_suspended();
    process::get()?.advances.retry(|| charge_once(device, share, bytes))
}

/// Like [`charge_in`], beside the advances of other threads.
pub(crate) fn charge_once(device: Device, share: u8, bytes: u64) -> Result<Charge, Status> {
    let process = process::get()?;
    let share_indices = process.shares_of(device)?;
    if share_indices.is_empty() {
        return Ok(Charge::NONE);
    }
    process.discover_primary(device);
    let mut result = Status::OUT_OF_MEMORY;
    let wanted_index = Charge { share, bytes }.share_index();
    for share_index in share_indices
        .filter(|share_index| wanted_index.is_none_or(|wanted_index| wanted_index == *share_index))
    {
        let Some(share) = process.shares.get(share_index) else { continue };
        match share.charge(bytes) {
            Ok(()) => return Ok(Charge::of(share_index, bytes)),
            Err(status) => result = status,
        }
    }
    Err(result)
}

/// Counts a refused allocation and wakes the agent link.
#[cold]
pub(crate) fn note_refusal(device: Device) {
    let Ok(process) = process::get() else { return };
    if let Ok(share_indices) = process.shares_of(device) {
        record_refusal(process, share_indices);
    }
}

#[cold]
fn record_refusal(process: &'static Process, mut share_indices: crate::devices::ShareIndices) {
    if let Some(share) =
        share_indices.next().and_then(|share_index| process.shares.get(share_index))
    {
        share.slot().refused.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
    process.agent_link.wake();
}

/// Charges bytes that are allocated already, to the first share of the GPU.
pub(crate) fn charge_unchecked(device: Device, bytes: u64) -> Result<Charge, Status> {
    let process = process::get()?;
    let Some(share_index) = process.shares_of(device)?.next() else { return Ok(Charge::NONE) };
    if let Some(share) = process.shares.get(share_index) {
        share.charge_unchecked(bytes);
    }
    Ok(Charge::of(share_index, bytes))
}

/// Releases a charge, after the driver has freed the memory.
pub(crate) fn release(charge: Charge) {
    let Ok(process) = process::get() else { return };
    if let Some(share) =
        charge.share_index().and_then(|share_index| process.shares.get(share_index))
    {
        share.release(charge.bytes);
    }
}

/// Changes a charge to the size that the driver really allocated.
pub(crate) fn adjust(charge: &mut Charge, bytes: u64) {
    let Ok(process) = process::get() else { return };
    let Some(share) = charge.share_index().and_then(|share_index| process.shares.get(share_index))
    else {
        return;
    };
    if bytes > charge.bytes {
        share.charge_unchecked(bytes - charge.bytes);
    } else {
        share.release(charge.bytes - bytes);
    }
    charge.bytes = bytes;
}

/// Charge for a context on a GPU, in bytes; 0 on a GPU without a share.
pub(crate) fn context_bytes(device: Device) -> Result<u64, Status> {
    let process = process::get()?;
    let share_index = process.shares_of(device)?.next();
    let share = share_index.and_then(|share_index| process.shares.get(share_index));
    Ok(share.map_or(0, crate::shares::Share::context_bytes))
}

/// Records how much of a charge belongs to a context. The slot shows it to observers.
pub(crate) fn note_context(charge: Charge, is_there: bool) {
    let Ok(process) = process::get() else { return };
    let Some(share) = charge.share_index().and_then(|share_index| process.shares.get(share_index))
    else {
        return;
    };
    let word = &share.slot().context_bytes;
    if is_there {
        word.fetch_add(charge.bytes, core::sync::atomic::Ordering::Relaxed);
    } else {
        word.fetch_sub(charge.bytes, core::sync::atomic::Ordering::Relaxed);
    }
}
