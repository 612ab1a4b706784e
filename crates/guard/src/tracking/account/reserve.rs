//! Reserves: memory that the driver allocates and keeps on its own, and whose size it reports.
//! These are pools, the graph memory of a GPU, and memory for the limits of a context.
//!
//! Before a call that may grow a reserve, the possible growth is charged as an *advance*. After the
//! call the driver reports the size of the reserve. That size is charged from then on, and the
//! advance ends.
//!
//! Several threads may do so concurrently, and no lock is held during a call to the driver. Tickets
//! order the reports. A thread takes a ticket after its call and before its query. A report is
//! dropped if one with a later ticket was recorded already. The thread with the latest ticket
//! queried after all other threads' calls, so the last recorded report is right. Until then the
//! advances cover the difference.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{Charge, charge_in, charge_once, charge_unchecked, release};
use crate::cuda::{Device, Opaque, Status};
use crate::process;
use crate::shares::Share;
use crate::tracking::table::{Entry, EntryKind};

/// A reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    /// Kind of its entry in the table.
    pub(crate) kind: EntryKind,
    /// The driver's handle or number for it.
    pub(crate) key: u64,
    /// The GPU that its memory is on.
    pub(crate) device: Device,
}

static LAST_TICKET: AtomicU64 = AtomicU64::new(0);

/// Words in the entry of a reserve: the latest ticket together with [`KEEPS_PEAK`], and the sum of
/// all advances.
const TICKET_WORD: usize = 0;
const ADVANCED_WORD: usize = 1;

/// Another process may still have memory of the reserve, so it is charged at its peak size.
const KEEPS_PEAK: u64 = 1 << 63;

/// Growth that does not fit. Holds the advance that was charged for it.
#[derive(Debug)]
pub(crate) struct GrowthRefused(pub(crate) Charge);

impl Reserve {
    /// Ensures that the reserve has an entry. A new entry is charged nothing.
    pub(crate) fn open(&self, context: Opaque) -> Result<(), Status> {
        let process = process::get()?;
        // Its shares are known from here on: charges change under a lock, under which the driver must not be asked.
        process.shares_of(self.device)?;
        let entry = Entry { charge: Charge::NONE, context, extra: [0; 2] };
        let inserted = process.table.or_insert(self.kind, self.key, entry);
        inserted.map_err(|_| Status::OUT_OF_MEMORY)
    }

    /// Removes the entry and releases its charge: the driver has freed the memory. A reserve that
    /// is [kept at its peak](Self::keep_at_peak) stays charged.
    pub(crate) fn close(&self) {
        let Ok(process) = process::get() else { return };
        let entry = process.table.remove(self.kind, self.key);
        if let Some(entry) = entry.filter(|entry| entry.extra[TICKET_WORD] & KEEPS_PEAK == 0) {
            release(entry.charge);
        }
    }

    /// From now on the reserve is charged at its peak size until the process ends. Other processes
    /// may have its memory, and nothing tells when they free it.
    pub(crate) fn keep_at_peak(&self) {
        self.change(|entry| entry.extra[TICKET_WORD] |= KEEPS_PEAK);
    }

    /// Bytes that are charged for it.
    pub(crate) fn counted(&self) -> u64 {
        self.change(|entry| entry.charge.bytes).unwrap_or(0)
    }

    /// Charges bytes that the reserve may grow by, to the share that the reserve lies in. A share
    /// over its limit may go on with the memory it has.
    pub(crate) fn advance(&self, bytes: u64) -> Result<Charge, Status> {
        self.advance_with(bytes, charge_in)
    }

    /// Like [`Self::advance`], beside the advances of other threads.
    pub(crate) fn advance_once(&self, bytes: u64) -> Result<Charge, Status> {
        self.advance_with(bytes, charge_once)
    }

    fn advance_with(
        &self,
        bytes: u64,
        charge: fn(Device, u8, u64) -> Result<Charge, Status>,
    ) -> Result<Charge, Status> {
        if bytes == 0 {
            return Ok(Charge::NONE);
        }
        // Of one share it is known which it is.
        let is_one = process::get()?.shares.all().len() == 1;
        let share = if is_one { None } else { self.change(|entry| entry.charge.share) };
        let advance = charge(self.device, share.unwrap_or(0), bytes)?;
        self.change(|entry| entry.extra[ADVANCED_WORD] += advance.bytes);
        Ok(advance)
    }

    /// Charges the reserve for the size that the driver reports; the advance ends.
    pub(crate) fn settle(&self, advance: Charge, size: impl FnOnce() -> Option<u64>) {
        self.settle_unless(advance, size, || false);
    }

    /// Like [`Self::settle`], unless something relies on the reserve's memory. That is checked
    /// after the query. Then the charge does not shrink, and the advance stays charged because it
    /// may have served the other user. Returns whether something relied on it.
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

    /// Like [`Self::settle`], but growth beyond the advances must be admitted first. If it is
    /// refused, nothing is recorded: the caller undoes its call and settles.
    pub(crate) fn settle_growth(
        &self,
        mut advance: Charge,
        size: impl FnOnce() -> Option<u64>,
    ) -> Result<(), GrowthRefused> {
        let ticket = next_ticket();
        let size = size();
        let settled = self.change(|entry| {
            // Advances of other threads are for growth that this report may already show.
            let covered = entry.charge.bytes + entry.extra[ADVANCED_WORD];
            let missing = size.unwrap_or(0).saturating_sub(covered);
            if missing > 0 && latest_ticket(entry) <= ticket {
                Err(missing)
            } else {
                Ok(record_size(entry, self.device, advance, ticket, size))
            }
        });
        let missing = match settled {
            Some(Err(missing)) => missing,
            settled => {
                release(settled.map_or(advance, |unused| unused.unwrap_or(advance)));
                return Ok(());
            }
        };
        match self.advance_once(missing) {
            Ok(more) => {
                if advance.share == 0 || advance.share == more.share {
                    advance = Charge { share: more.share, bytes: advance.bytes + more.bytes };
                } else {
                    // It is of another share. The remainder is charged unchecked where the
                    // reserve lies.
                    self.cancel_advance(more);
                }
            }
            Err(_) => return Err(GrowthRefused(advance)),
        }
        self.finish_advance(advance, ticket, size);
        Ok(())
    }

    fn finish_advance(&self, advance: Charge, ticket: u64, size: Option<u64>) {
        let unused = self.change(|entry| record_size(entry, self.device, advance, ticket, size));
        release(unused.unwrap_or(advance));
    }

    /// Releases an unused advance.
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

/// Records the driver's report to the holder of a ticket, whose advance ends. Returns the unused
/// part of the advance.
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
        // A later report is recorded already and includes what the advance was for.
        Some(_) => advance,
        // The driver does not report a size: assume that the advance was used.
        None => {
            let bytes = entry.charge.bytes + advance.bytes;
            resize(&mut entry.charge, device, bytes, advance)
        }
    }
}

/// Like [`record_size`], while something relies on the memory of the reserve.
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

/// The latest ticket whose report was recorded.
fn latest_ticket(entry: &Entry) -> u64 {
    entry.extra[TICKET_WORD] & !KEEPS_PEAK
}

/// Taken after a call and before the query of its result.
fn next_ticket() -> u64 {
    LAST_TICKET.fetch_add(1, Ordering::SeqCst) + 1
}

/// Changes the charge of a reserve to a size, using bytes of an advance first. Returns the unused
/// part of the advance.
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
