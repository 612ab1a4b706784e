//! Stores: memory that the driver takes and keeps on its own, and tells the size of: pools, the memory of a
//! GPU's graphs, what a context's limits reserve.
//!
//! Before a call that may make a reserve grow, what it may grow by is counted as an *advance*. After the call the
//! driver is asked how large the reserve is; that is counted from then on, and the advance is cancel_advance.
//!
//! Several threads may be at this at once, and no lock is held while the driver is asked. What an result is
//! worth is told by tickets: a thread takes one after its call and before it asks, and an result is dropped if
//! one with a later ticket was record_size already. Whoever has the latest_ticket ticket asked after everybody else's
//! calls, so the last result that is record_size is right; until then the advances make up for what is missing.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{Charge, charge_in, charge_unchecked, release};
use crate::cuda::{Device, Opaque, Status};
use crate::process;
use crate::shares::Share;
use crate::tracking::table::{Entry, EntryKind};

/// A reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    /// What it is an entry of.
    pub(crate) kind: EntryKind,
    /// What the driver calls it.
    pub(crate) key: u64,
    /// The GPU whose memory it has.
    pub(crate) device: Device,
}

static LAST_TICKET: AtomicU64 = AtomicU64::new(0);

/// Places in the entry of a reserve: the latest_ticket ticket and beside it [`KEEPS_PEAK`], and all advances together.
const TICKET_WORD: usize = 0;
const ADVANCED_WORD: usize = 1;

/// Whoever else may have what it once had: it counts for the most that it ever was.
const KEEPS_PEAK: u64 = 1 << 63;

/// A growth that does not fit: what is counted as an advance for it.
#[derive(Debug)]
pub(crate) struct GrowthRefused(pub(crate) Charge);

impl Reserve {
    /// Has an entry for it, which counts for nothing yet if it is new.
    pub(crate) fn open(&self, context: Opaque) -> Result<(), Status> {
        let entry = Entry { charge: Charge::NONE, context, extra: [0; 2] };
        let inserted = process::get()?.table.or_insert(self.kind, self.key, entry);
        inserted.map_err(|_| Status::OUT_OF_MEMORY)
    }

    /// Takes it out and gives back what it counts for: the driver has it back. What is [peak_flag](Self::keep_at_peak) stays
    /// counted.
    pub(crate) fn close(&self) {
        let Ok(process) = process::get() else { return };
        let entry = process.table.remove(self.kind, self.key);
        if let Some(entry) = entry.filter(|entry| entry.extra[TICKET_WORD] & KEEPS_PEAK == 0) {
            release(entry.charge);
        }
    }

    /// From now on it counts for the most that it ever is, to the end of the process: others may have its memory,
    /// and nobody tells when they do not any more.
    pub(crate) fn keep_at_peak(&self) {
        self.change(|entry| entry.extra[TICKET_WORD] |= KEEPS_PEAK);
    }

    /// Bytes that it counts for.
    pub(crate) fn counted(&self) -> u64 {
        self.change(|entry| entry.charge.bytes).unwrap_or(0)
    }

    /// Counts bytes that it may grow by. They lie in the share that the reserve lies in. A share that has too
    /// much already may go on with what it has.
    pub(crate) fn advance(&self, bytes: u64) -> Result<Charge, Status> {
        if bytes == 0 {
            return Ok(Charge::NONE);
        }
        let share = self.change(|entry| entry.charge.share).unwrap_or(0);
        let advance = charge_in(self.device, share, bytes)?;
        self.change(|entry| entry.extra[ADVANCED_WORD] += advance.bytes);
        Ok(advance)
    }

    /// Counts it for the size that the driver says, whatever that is; the advance is cancel_advance.
    pub(crate) fn settle(&self, advance: Charge, size: impl FnOnce() -> Option<u64>) {
        self.settle_unless(advance, size, || false);
    }

    /// As [`Self::settle`], unless something relies on what it has, as is looked up after the driver was asked:
    /// then it counts for no less than before, and for the advance, which may have served in the other's share_index.
    /// Whether it was so.
    pub(crate) fn settle_unless(
        &self,
        advance: Charge,
        size: impl FnOnce() -> Option<u64>,
        is_relied_on: impl FnOnce() -> bool,
    ) -> bool {
        let ticket = next_ticket();
        let size = size();
        let is_relied_on = is_relied_on();
        let unused = self.change(|entry| {
            if is_relied_on {
                record_size_in_use(entry, self.device, advance, ticket, size)
            } else {
                record_size(entry, self.device, advance, ticket, size)
            }
        });
        release(unused.unwrap_or(advance));
        is_relied_on
    }

    /// As [`Self::settle`], but growth beyond the advances has to be admitted first. If it is not, nothing is
    /// record_size: the caller undoes what it did and settles.
    pub(crate) fn settle_growth(
        &self,
        mut advance: Charge,
        size: impl FnOnce() -> Option<u64>,
    ) -> Result<(), GrowthRefused> {
        let ticket = next_ticket();
        let size = size();
        let missing = self.change(|entry| {
            // Other threads' advances are for growth that this result may show already.
            let covered = entry.charge.bytes + entry.extra[ADVANCED_WORD];
            if latest_ticket(entry) > ticket {
                0
            } else {
                size.unwrap_or(0).saturating_sub(covered)
            }
        });
        if let Some(missing) = missing.filter(|missing| *missing > 0) {
            match self.advance(missing) {
                Ok(more) => {
                    if advance.share == 0 || advance.share == more.share {
                        advance = Charge { share: more.share, bytes: advance.bytes + more.bytes };
                    } else {
                        // Of another share: the rest is forced where the reserve lies.
                        self.cancel_advance(more);
                    }
                }
                Err(_) => return Err(GrowthRefused(advance)),
            }
        }
        self.finish_advance(advance, ticket, size);
        Ok(())
    }

    fn finish_advance(&self, advance: Charge, ticket: u64, size: Option<u64>) {
        let unused = self.change(|entry| record_size(entry, self.device, advance, ticket, size));
        release(unused.unwrap_or(advance));
    }

    /// Gives an advance back unused.
    fn cancel_advance(&self, advance: Charge) {
        self.change(|entry| {
            entry.extra[ADVANCED_WORD] = entry.extra[ADVANCED_WORD].saturating_sub(advance.bytes);
        });
        release(advance);
    }

    fn change<R>(&self, change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        process::get().ok()?.table.change(self.kind, self.key, change)
    }
}

/// Enters what the driver said to the owner of a ticket, whose advance is cancel_advance; gives what is left of that.
fn record_size(
    entry: &mut Entry,
    device: Device,
    advance: Charge,
    ticket: u64,
    size: Option<u64>,
) -> Charge {
    entry.extra[ADVANCED_WORD] = entry.extra[ADVANCED_WORD].saturating_sub(advance.bytes);
    match size {
        Some(size) if latest_ticket(entry) <= ticket => {
            let peak_flag = entry.extra[TICKET_WORD] & KEEPS_PEAK;
            entry.extra[TICKET_WORD] = ticket | peak_flag;
            let size = if peak_flag == 0 { size } else { size.max(entry.charge.bytes) };
            resize(&mut entry.charge, device, size, advance)
        }
        // A later result is record_size, which shows what the advance was for.
        Some(_) => advance,
        // The driver does not say: what was wished for was had.
        None => {
            let bytes = entry.charge.bytes + advance.bytes;
            resize(&mut entry.charge, device, bytes, advance)
        }
    }
}

/// As [`record_size`], while something relies on what the reserve has.
fn record_size_in_use(
    entry: &mut Entry,
    device: Device,
    advance: Charge,
    ticket: u64,
    size: Option<u64>,
) -> Charge {
    let latest = latest_ticket(entry);
    let least = entry.charge.bytes + advance.bytes;
    let seen = size.filter(|_| latest <= ticket).unwrap_or(0);
    record_size(entry, device, advance, ticket.max(latest), Some(least.max(seen)))
}

/// The latest_ticket ticket whose result was record_size.
fn latest_ticket(entry: &Entry) -> u64 {
    entry.extra[TICKET_WORD] & !KEEPS_PEAK
}

/// Taken after a call and before the driver is asked what it came to.
fn next_ticket() -> u64 {
    LAST_TICKET.fetch_add(1, Ordering::SeqCst) + 1
}

/// Makes a reserve's charge so large, with bytes of an advance as far as they go; gives what is left of that.
fn resize(charge: &mut Charge, device: Device, bytes: u64, mut advance: Charge) -> Charge {
    let Some(more) = bytes.checked_sub(charge.bytes) else {
        release(Charge { bytes: charge.bytes - bytes, ..*charge });
        charge.bytes = bytes;
        return advance;
    };
    if charge.share == 0 {
        charge.share = advance.share;
    }
    let taken = if charge.share == advance.share { more.min(advance.bytes) } else { 0 };
    let missing = more - taken;
    if missing > 0 && charge.share == 0 {
        charge.share = charge_unchecked(device, missing).unwrap_or(Charge::NONE).share;
    } else if let Some(share) = share_of(*charge) {
        share.charge_unchecked(missing);
    }
    advance.bytes -= taken;
    charge.bytes = bytes;
    advance
}

fn share_of(charge: Charge) -> Option<&'static Share> {
    process::get().ok()?.shares.get(charge.share_index()?)
}

#[cfg(test)]
mod tests;
