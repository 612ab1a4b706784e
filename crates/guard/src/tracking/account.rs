//! Counting: every hook that takes memory asks here before the driver is asked, and gives back here after
//! the driver has.

use crate::cuda::{Device, Status};
use crate::process::{self, Process};

pub(crate) mod reclaim;
pub(crate) mod reserve;

/// Bytes that are counted, and in which share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    /// One more than the share's share_index; 0: a GPU without a share.
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

    fn share_index(self) -> Option<usize> {
        usize::from(self.share).checked_sub(1)
    }

    /// In one word; 0 for nothing.
    pub(crate) fn packed(self) -> u64 {
        if self.share == 0 || self.bytes >> 56 != 0 {
            0
        } else {
            u64::from(self.share) << 56 | self.bytes
        }
    }

    /// From one word.
    pub(crate) fn unpacked(word: u64) -> Self {
        let [share, ..] = word.to_be_bytes();
        Self { share, bytes: word & (u64::MAX >> 8) }
    }

    /// Bytes that are counted.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes
    }
}

/// Counts bytes on a GPU before they are allocated. Waits while the share is held; fails with
/// `OUT_OF_MEMORY` where they do not fit, `NOT_PERMITTED` where the share is fenced, `NO_DEVICE` where the
/// process is closed. A GPU with several shares has the memory of all, but one allocation lies in one.
///
/// What the driver keeps without need is given back before anything is record_refusal, as the driver itself does it.
pub(crate) fn charge(device: Device, bytes: u64) -> Result<Charge, Status> {
    match charge_in(device, 0, bytes) {
        Err(Status::OUT_OF_MEMORY) if reclaim::run(device, bytes) => {}
        result => return result.inspect_err(|_| note_refusal(device)),
    }
    charge_in(device, 0, bytes).inspect_err(|_| note_refusal(device))
}

/// As [`charge`], in a share only (as a charge names it; 0: in any), and without giving anything back first.
fn charge_in(device: Device, share: u8, bytes: u64) -> Result<Charge, Status> {
    let process = process::get()?;
    let share_indices = process.shares_of(device)?;
    if share_indices.is_empty() {
        return Ok(Charge::NONE);
    }
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

/// Notes that an allocation was record_refusal, and tells the agent.
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

/// Counts bytes that are allocated already, in the first share of the GPU.
pub(crate) fn charge_unchecked(device: Device, bytes: u64) -> Result<Charge, Status> {
    let process = process::get()?;
    let Some(share_index) = process.shares_of(device)?.next() else { return Ok(Charge::NONE) };
    if let Some(share) = process.shares.get(share_index) {
        share.charge_unchecked(bytes);
    }
    Ok(Charge::of(share_index, bytes))
}

/// Gives back what was counted, after the driver has taken the memory back.
pub(crate) fn release(charge: Charge) {
    let Ok(process) = process::get() else { return };
    if let Some(share) =
        charge.share_index().and_then(|share_index| process.shares.get(share_index))
    {
        share.release(charge.bytes);
    }
}

/// Makes a charge the size that the driver really took.
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

/// Memory that a context of a GPU is counted for, in bytes; 0 on a GPU without a share.
pub(crate) fn context_bytes(device: Device) -> Result<u64, Status> {
    let process = process::get()?;
    let share_index = process.shares_of(device)?.next();
    let share = share_index.and_then(|share_index| process.shares.get(share_index));
    Ok(share.map_or(0, crate::shares::Share::context_bytes))
}

/// Notes how much of a charge is a context's: counted up or down in the slot for people to see.
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
