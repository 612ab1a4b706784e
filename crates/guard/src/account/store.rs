//! Stores: memory that the driver takes and keeps on its own, and tells the size of: pools, the memory of a
//! GPU's graphs, what a context's limits reserve.
//!
//! Before a call that may make a store grow, what it may grow by is counted as an *advance*. After the call the
//! driver is asked how large the store is; that is counted from then on, and the advance is over.
//!
//! Several threads may be at this at once, and no lock is held while the driver is asked. What an answer is
//! worth is told by tickets: a thread takes one after its call and before it asks, and an answer is dropped if
//! one with a later ticket was entered already. Whoever has the latest ticket asked after everybody else's
//! calls, so the last answer that is entered is right; until then the advances make up for what is missing.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{Charge, charge_in, force, release};
use crate::cuda::{Device, Opaque, Status};
use crate::process;
use crate::shares::Share;
use crate::table::{Entry, Kind};

/// A store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    /// What it is an entry of.
    pub(crate) kind: Kind,
    /// What the driver calls it.
    pub(crate) key: u64,
    /// The GPU whose memory it has.
    pub(crate) device: Device,
}

static TICKETS: AtomicU64 = AtomicU64::new(0);

/// Places in the entry of a store: the latest ticket and beside it [`KEPT`], and all advances together.
const TICKET: usize = 0;
const ADVANCED: usize = 1;

/// Whoever else may have what it once had: it counts for the most that it ever was.
const KEPT: u64 = 1 << 63;

/// A growth that does not fit: what is counted as an advance for it.
#[derive(Debug)]
pub(crate) struct Overgrown(pub(crate) Charge);

impl Store {
    /// Has an entry for it, which counts for nothing yet if it is new.
    pub(crate) fn open(&self, context: Opaque) -> Result<(), Status> {
        let entry = Entry { charge: Charge::NONE, context, extra: [0; 2] };
        let kept = process::get()?.table.or_insert(self.kind, self.key, entry);
        kept.map_err(|_| Status::OUT_OF_MEMORY)
    }

    /// Takes it out and gives back what it counts for: the driver has it back. What is [kept](Self::keep) stays
    /// counted.
    pub(crate) fn close(&self) {
        let Ok(process) = process::get() else { return };
        let entry = process.table.remove(self.kind, self.key);
        if let Some(entry) = entry.filter(|entry| entry.extra[TICKET] & KEPT == 0) {
            release(entry.charge);
        }
    }

    /// From now on it counts for the most that it ever is, to the end of the process: others may have its memory,
    /// and nobody tells when they do not any more.
    pub(crate) fn keep(&self) {
        self.change(|entry| entry.extra[TICKET] |= KEPT);
    }

    /// Bytes that it counts for.
    pub(crate) fn counted(&self) -> u64 {
        self.change(|entry| entry.charge.bytes).unwrap_or(0)
    }

    /// Counts bytes that it may grow by. They lie in the share that the store lies in. A share that has too
    /// much already may go on with what it has.
    pub(crate) fn advance(&self, bytes: u64) -> Result<Charge, Status> {
        if bytes == 0 {
            return Ok(Charge::NONE);
        }
        let share = self.change(|entry| entry.charge.share).unwrap_or(0);
        let advance = charge_in(self.device, share, bytes)?;
        self.change(|entry| entry.extra[ADVANCED] += advance.bytes);
        Ok(advance)
    }

    /// Counts it for the size that the driver says, whatever that is; the advance is over.
    pub(crate) fn settle(&self, advance: Charge, size: impl FnOnce() -> Option<u64>) {
        self.settle_unless(advance, size, || false);
    }

    /// As [`Self::settle`], unless something relies on what it has, as is looked up after the driver was asked:
    /// then it counts for no less than before, and for the advance, which may have served in the other's place.
    /// Whether it was so.
    pub(crate) fn settle_unless(
        &self,
        advance: Charge,
        size: impl FnOnce() -> Option<u64>,
        is_relied_on: impl FnOnce() -> bool,
    ) -> bool {
        let ticket = ticket();
        let size = size();
        let is_relied_on = is_relied_on();
        let spare = self.change(|entry| {
            if is_relied_on {
                entered_beside(entry, self.device, advance, ticket, size)
            } else {
                entered(entry, self.device, advance, ticket, size)
            }
        });
        release(spare.unwrap_or(advance));
        is_relied_on
    }

    /// As [`Self::settle`], but growth beyond the advances has to be admitted first. If it is not, nothing is
    /// entered: the caller undoes what it did and settles.
    pub(crate) fn grown(
        &self,
        mut advance: Charge,
        size: impl FnOnce() -> Option<u64>,
    ) -> Result<(), Overgrown> {
        let ticket = ticket();
        let size = size();
        let lacking = self.change(|entry| {
            // Other threads' advances are for growth that this answer may show already.
            let covered = entry.charge.bytes + entry.extra[ADVANCED];
            if latest(entry) > ticket { 0 } else { size.unwrap_or(0).saturating_sub(covered) }
        });
        if let Some(lacking) = lacking.filter(|lacking| *lacking > 0) {
            match self.advance(lacking) {
                Ok(more) => {
                    if advance.share == 0 || advance.share == more.share {
                        advance = Charge { share: more.share, bytes: advance.bytes + more.bytes };
                    } else {
                        // Of another share: the rest is forced where the store lies.
                        self.over(more);
                    }
                }
                Err(_) => return Err(Overgrown(advance)),
            }
        }
        self.enter(advance, ticket, size);
        Ok(())
    }

    fn enter(&self, advance: Charge, ticket: u64, size: Option<u64>) {
        let spare = self.change(|entry| entered(entry, self.device, advance, ticket, size));
        release(spare.unwrap_or(advance));
    }

    /// Gives an advance back unused.
    fn over(&self, advance: Charge) {
        self.change(|entry| {
            entry.extra[ADVANCED] = entry.extra[ADVANCED].saturating_sub(advance.bytes);
        });
        release(advance);
    }

    fn change<R>(&self, change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        process::get().ok()?.table.change(self.kind, self.key, change)
    }
}

/// Enters what the driver said to the owner of a ticket, whose advance is over; gives what is left of that.
fn entered(
    entry: &mut Entry,
    device: Device,
    advance: Charge,
    ticket: u64,
    size: Option<u64>,
) -> Charge {
    entry.extra[ADVANCED] = entry.extra[ADVANCED].saturating_sub(advance.bytes);
    match size {
        Some(size) if latest(entry) <= ticket => {
            let kept = entry.extra[TICKET] & KEPT;
            entry.extra[TICKET] = ticket | kept;
            let size = if kept == 0 { size } else { size.max(entry.charge.bytes) };
            resized(&mut entry.charge, device, size, advance)
        }
        // A later answer is entered, which shows what the advance was for.
        Some(_) => advance,
        // The driver does not say: what was wished for was had.
        None => {
            let bytes = entry.charge.bytes + advance.bytes;
            resized(&mut entry.charge, device, bytes, advance)
        }
    }
}

/// As [`entered`], while something relies on what the store has.
fn entered_beside(
    entry: &mut Entry,
    device: Device,
    advance: Charge,
    ticket: u64,
    size: Option<u64>,
) -> Charge {
    let latest = latest(entry);
    let least = entry.charge.bytes + advance.bytes;
    let seen = size.filter(|_| latest <= ticket).unwrap_or(0);
    entered(entry, device, advance, ticket.max(latest), Some(least.max(seen)))
}

/// The latest ticket whose answer was entered.
fn latest(entry: &Entry) -> u64 {
    entry.extra[TICKET] & !KEPT
}

/// Taken after a call and before the driver is asked what it came to.
fn ticket() -> u64 {
    TICKETS.fetch_add(1, Ordering::SeqCst) + 1
}

/// Makes a store's charge so large, with bytes of an advance as far as they go; gives what is left of that.
fn resized(charge: &mut Charge, device: Device, bytes: u64, mut advance: Charge) -> Charge {
    let Some(more) = bytes.checked_sub(charge.bytes) else {
        release(Charge { bytes: charge.bytes - bytes, ..*charge });
        charge.bytes = bytes;
        return advance;
    };
    if charge.share == 0 {
        charge.share = advance.share;
    }
    let taken = if charge.share == advance.share { more.min(advance.bytes) } else { 0 };
    let lacking = more - taken;
    if lacking > 0 && charge.share == 0 {
        charge.share = force(device, lacking).unwrap_or(Charge::NONE).share;
    } else if let Some(share) = share_of(*charge) {
        share.force(lacking);
    }
    advance.bytes -= taken;
    charge.bytes = bytes;
    advance
}

fn share_of(charge: Charge) -> Option<&'static Share> {
    process::get().ok()?.shares.at(charge.place()?)
}

#[cfg(test)]
mod tests;
