//! Small plain memory. The driver takes it in pieces from slabs of 2 MiB, each of one context, and frees a slab with its last piece.
//! The slab of a piece follows from its address.
//!
//! A slab is charged as a whole, from its first piece to its last. Before each call a slab is charged in advance, since only the driver
//! knows whether it needs a new one. Close to the limit, where no slab fits any more, a piece may still fit in a slab that is there: the
//! call is made all the same, and undone if the driver took a new slab. An advance refuses other threads nothing ([`advances`]).
//!
//! [`advances`]: crate::tracking::account::advances

use core::sync::atomic::{AtomicU64, Ordering};

use octavo_guard_abi::charge::{PHYSICAL_GRANULE, rounded};

use crate::cuda::{Device, Opaque, Status};
use crate::devices;
use crate::leases::wait_while_suspended;
use crate::process::{self, Process};
use crate::tracking::account::{self, Charge};
use crate::tracking::allocation::context;
use crate::tracking::table::{Entry, EntryKind, TableFull};

/// Size of a slab in bytes.
const SLAB_BYTES: u64 = PHYSICAL_GRANULE;

/// Largest piece in bytes. The driver gives larger ones granules of their own.
pub(crate) const MAX_PIECE_BYTES: u64 = 1 << 20;

/// Word in the entry of a piece: the number of its slab plus one.
const SLAB_WORD: usize = 0;
/// Word in the entry of a slab: the number of its pieces.
const PIECES_WORD: usize = 0;
/// Word in the entries of both: which of the slabs that were at this address it is.
const GENERATION_WORD: usize = 1;

static LAST_GENERATION: AtomicU64 = AtomicU64::new(0);

/// Bytes that are charged for an allocation that is no piece.
pub(crate) fn large_bytes(bytes: u64) -> u64 {
    rounded(bytes, PHYSICAL_GRANULE)
}

/// An allocation of a piece.
pub(crate) struct Piece<M, K, U> {
    /// Calls the driver.
    pub(crate) make: M,
    /// After `make` succeeded: the address, and the bytes actually allocated.
    pub(crate) result: K,
    /// Frees it again.
    pub(crate) undo: U,
}

/// What became of a piece, with the generation of its slab.
enum Joined {
    /// It is the first of its slab, which has the charge.
    First(u64),
    /// Its slab is charged already.
    Another(u64),
    /// Its slab is new, and there was no charge for it.
    Uncharged,
}

impl<M, K, U> Piece<M, K, U>
where
    M: Fn() -> Status,
    K: Fn() -> Option<(u64, u64)>,
    U: Fn(u64) -> Status,
{
    /// Makes it in the current context, charges its slab and adds its entry.
    pub(crate) fn run(self) -> Status {
        wait_while_suspended();
        self.try_run().unwrap_or_else(|status| status)
    }

    fn try_run(self) -> Result<Status, Status> {
        let process = process::get()?;
        let device = devices::current()?;
        let under_way = process.advances.begin();
        match account::charge_once(device, 0, SLAB_BYTES) {
            Ok(advance) => return self.attempt(process, device, Some(advance)),
            Err(Status::OUT_OF_MEMORY) => drop(under_way),
            Err(status) => return Err(status),
        }
        match self.attempt(process, device, None) {
            Err(Status::OUT_OF_MEMORY) => {
                let advance = account::charge(device, SLAB_BYTES)?;
                let _under_way = process.advances.begin_now();
                self.attempt(process, device, Some(advance))
            }
            result => result,
        }
    }

    /// One call of the driver. Without an advance it fails with `OUT_OF_MEMORY` if the driver took a new slab.
    fn attempt(
        &self,
        process: &'static Process,
        device: Device,
        advance: Option<Charge>,
    ) -> Result<Status, Status> {
        let release = || advance.map_or((), account::release);
        let status = (self.make)();
        if !status.is_success() {
            release();
            return Ok(status);
        }
        // The caller that passed no place for the result cannot free it: the advance stays charged.
        let Some((address, bytes)) = (self.result)() else { return Ok(status) };
        let undo = |status| {
            (self.undo)(address);
            Err(status)
        };
        let context = process.owning_context(context(), device);
        let mut entry = Entry { charge: Charge::NONE, context, extra: [0; 2] };
        if bytes > MAX_PIECE_BYTES {
            // The driver chose a larger pitch, and granules of their own.
            let Some(mut charge) = advance else { return undo(Status::OUT_OF_MEMORY) };
            account::adjust(&mut charge, large_bytes(bytes));
            entry.charge = charge;
        } else {
            let slab = address / SLAB_BYTES;
            entry.extra[GENERATION_WORD] = match join(process, slab, context, advance) {
                Ok(Joined::First(generation)) => generation,
                Ok(Joined::Another(generation)) => {
                    release();
                    generation
                }
                Ok(Joined::Uncharged) => return undo(Status::OUT_OF_MEMORY),
                Err(TableFull) => {
                    release();
                    return undo(Status::OUT_OF_MEMORY);
                }
            };
            entry.extra[SLAB_WORD] = slab + 1;
        }
        let Ok(old) = process.table.insert(EntryKind::Memory, address, entry) else {
            let undone = undo(Status::OUT_OF_MEMORY);
            release_memory(entry);
            return undone;
        };
        if let Some(old) = old {
            release_memory(old);
        }
        Ok(status)
    }
}

/// Counts a piece of a slab, which gets the charge if it has none.
fn join(
    process: &Process,
    slab: u64,
    context: Opaque,
    charge: Option<Charge>,
) -> Result<Joined, TableFull> {
    let table = &process.table;
    loop {
        let generation = LAST_GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
        let empty = Entry { charge: Charge::NONE, context, extra: [0, generation] };
        table.or_insert(EntryKind::Slab, slab, empty)?;
        let joined = table.change(EntryKind::Slab, slab, |entry| {
            let is_new = entry.extra[PIECES_WORD] == 0;
            if is_new {
                let Some(charge) = charge else { return Joined::Uncharged };
                entry.charge = charge;
            }
            entry.extra[PIECES_WORD] += 1;
            let generation = entry.extra[GENERATION_WORD];
            if is_new { Joined::First(generation) } else { Joined::Another(generation) }
        });
        match joined {
            Some(Joined::Uncharged) => {
                remove_if_empty(process, slab);
                return Ok(Joined::Uncharged);
            }
            Some(joined) => return Ok(joined),
            // Another thread has removed it in between.
            None => {}
        }
    }
}

/// Releases what an entry of plain memory is charged, after the driver has freed the memory.
pub(crate) fn release_memory(entry: Entry) {
    account::release(entry.charge);
    let (Some(slab), Ok(process)) = (entry.extra[SLAB_WORD].checked_sub(1), process::get()) else {
        return;
    };
    process.table.change(EntryKind::Slab, slab, |of_slab| {
        // The slab of a piece may have ended with its context, and another be at its address.
        if of_slab.extra[GENERATION_WORD] == entry.extra[GENERATION_WORD] {
            of_slab.extra[PIECES_WORD] = of_slab.extra[PIECES_WORD].saturating_sub(1);
        }
    });
    remove_if_empty(process, slab);
}

fn remove_if_empty(process: &Process, slab: u64) {
    let is_empty = |entry: &Entry| entry.extra[PIECES_WORD] == 0;
    if let Some(entry) = process.table.remove_if(EntryKind::Slab, slab, is_empty) {
        account::release(entry.charge);
    }
}
