//! Counting: every hook that takes memory asks here before the driver is asked, and gives back here after
//! the driver has.

use crate::cuda::{Device, Status};
use crate::process::{self, Process};

pub(crate) mod reclaim;
pub(crate) mod store;

/// Bytes that are counted, and in which share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    /// One more than the share's place; 0: a GPU without a share.
    share: u8,
    bytes: u64,
}

impl Charge {
    /// Nothing, in no share.
    pub(crate) const NONE: Self = Self { share: 0, bytes: 0 };

    fn of(place: usize, bytes: u64) -> Self {
        // There are at most 32 shares.
        Self { share: u8::try_from(place + 1).unwrap_or(0), bytes }
    }

    fn place(self) -> Option<usize> {
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
/// What the driver keeps without need is given back before anything is refused, as the driver itself does it.
pub(crate) fn charge(device: Device, bytes: u64) -> Result<Charge, Status> {
    match charge_in(device, 0, bytes) {
        Err(Status::OUT_OF_MEMORY) if reclaim::run(device, bytes) => {}
        answer => return answer.inspect_err(|_| note_refusal(device)),
    }
    charge_in(device, 0, bytes).inspect_err(|_| note_refusal(device))
}

/// As [`charge`], in a share only (as a charge names it; 0: in any), and without giving anything back first.
fn charge_in(device: Device, share: u8, bytes: u64) -> Result<Charge, Status> {
    let process = process::get()?;
    let places = process.shares_of(device)?;
    if places.is_empty() {
        return Ok(Charge::NONE);
    }
    let mut answer = Status::OUT_OF_MEMORY;
    let wanted = Charge { share, bytes }.place();
    for place in places.filter(|place| wanted.is_none_or(|wanted| wanted == *place)) {
        let Some(share) = process.shares.at(place) else { continue };
        match share.admit(bytes) {
            Ok(()) => return Ok(Charge::of(place, bytes)),
            Err(status) => answer = status,
        }
    }
    Err(answer)
}

/// Notes that an allocation was refused, and tells the agent.
#[cold]
pub(crate) fn note_refusal(device: Device) {
    let Ok(process) = process::get() else { return };
    if let Ok(places) = process.shares_of(device) {
        refused(process, places);
    }
}

#[cold]
fn refused(process: &'static Process, mut places: crate::devices::Places) {
    if let Some(share) = places.next().and_then(|place| process.shares.at(place)) {
        share.slot().refused.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
    process.liaison.ring();
}

/// Counts bytes that are allocated already, in the first share of the GPU.
pub(crate) fn force(device: Device, bytes: u64) -> Result<Charge, Status> {
    let process = process::get()?;
    let Some(place) = process.shares_of(device)?.next() else { return Ok(Charge::NONE) };
    if let Some(share) = process.shares.at(place) {
        share.force(bytes);
    }
    Ok(Charge::of(place, bytes))
}

/// Gives back what was counted, after the driver has taken the memory back.
pub(crate) fn release(charge: Charge) {
    let Ok(process) = process::get() else { return };
    if let Some(share) = charge.place().and_then(|place| process.shares.at(place)) {
        share.release(charge.bytes);
    }
}

/// Makes a charge the size that the driver really took.
pub(crate) fn adjust(charge: &mut Charge, bytes: u64) {
    let Ok(process) = process::get() else { return };
    let Some(share) = charge.place().and_then(|place| process.shares.at(place)) else { return };
    if bytes > charge.bytes {
        share.force(bytes - charge.bytes);
    } else {
        share.release(charge.bytes - bytes);
    }
    charge.bytes = bytes;
}

/// Memory that a context of a GPU is counted for, in bytes; 0 on a GPU without a share.
pub(crate) fn context_bytes(device: Device) -> Result<u64, Status> {
    let process = process::get()?;
    let place = process.shares_of(device)?.next();
    let share = place.and_then(|place| process.shares.at(place));
    Ok(share.map_or(0, crate::shares::Share::context_bytes))
}

/// Notes how much of a charge is a context's: counted up or down in the slot for people to see.
pub(crate) fn note_context(charge: Charge, is_there: bool) {
    let Ok(process) = process::get() else { return };
    let Some(share) = charge.place().and_then(|place| process.shares.at(place)) else { return };
    let word = &share.slot().context_bytes;
    if is_there {
        word.fetch_add(charge.bytes, core::sync::atomic::Ordering::Relaxed);
    } else {
        word.fetch_sub(charge.bytes, core::sync::atomic::Ordering::Relaxed);
    }
}
