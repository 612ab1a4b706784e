//! Pools of stream-ordered memory. A pool is a reserve ([`crate::tracking::account::reserve`]): its
//! reserved memory is charged, whether a program uses it or the pool keeps it.
//!
//! An allocation is charged in full before the driver call, because only the driver knows whether
//! the pool must grow for it. Close to the limit, that would refuse an allocation that fits into
//! the pool as it is. So if trimming did not help, an allocation that fits into the pool's idle
//! memory is tried without a charge. It is undone if the pool grew all the same.
//!
//! The driver must not be asked about a destroyed pool. An allocation and the guard's own calls *pin*
//! a pool, and its destruction waits until it is not pinned. Allocations outlive their pool, so its
//! remaining pointers are counted.
//!
//! An exported pool is charged at its peak size until the process ends. An imported pool is not
//! charged: the exporting process is.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::cuda::{Device, Opaque, Pointer, Status};
use crate::driver::call;
use crate::hooks::pools::real;
use crate::platform::ffi::Out;
use crate::platform::sys::futex;
use crate::process::{self, Process};
use crate::tracking::account::Charge;
use crate::tracking::account::reserve::Reserve;
use crate::tracking::table::{Entry, EntryKind};

mod current;
mod request;

pub(crate) use current::change as change_current;
pub(crate) use request::PoolAllocation;

/// Attributes of a pool (`CUmemPool_attribute`).
const RESERVED_BYTES: u32 = 5;
const USED_BYTES: u32 = 7;

/// The pool of a pointer (`CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE`).
const POOL_OF_POINTER: u32 = 17;

/// Words in the entry of a pool's state.
const POINTERS_WORD: usize = 0;
const FLAGS_WORD: usize = 1;

/// Parts of the flags word: number of pins, flags, and the GPU above them.
const PIN: u64 = 1;
const PINS: u64 = 0xffff;
/// Its memory is on the host, or belongs to another process.
const UNCOUNTED: u64 = 1 << 16;
/// Its destruction is under way.
const ENDING: u64 = 1 << 17;
/// It is destroyed, but some of its memory is allocated.
const ENDED: u64 = 1 << 18;
const DEVICE_SHIFT: u32 = 32;

/// Maximum number of pools that are trimmed.
const MAX_POOLS: usize = 64;

/// Whether any pool memory was allocated. Otherwise no lookup is needed.
static ANY_POOLED: AtomicBool = AtomicBool::new(false);

/// A pool by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pool(pub(crate) Opaque);

impl Pool {
    fn key(self) -> u64 {
        self.0 as u64
    }

    fn change<R>(self, change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        process::get().ok()?.table.change(EntryKind::PoolState, self.key(), change)
    }

    /// Records a pool, unless it is known. `device` is `None` if its memory is not charged to this
    /// process's share.
    pub(crate) fn record(self, device: Option<Device>) -> Result<(), Status> {
        let number = u64::from(device.unwrap_or(0).cast_unsigned());
        let word = number << DEVICE_SHIFT | if device.is_none() { UNCOUNTED } else { 0 };
        let entry = Entry { charge: Charge::NONE, context: 0, extra: [0, word] };
        let table = &process::get()?.table;
        table
            .or_insert(EntryKind::PoolState, self.key(), entry)
            .map_err(|_| Status::OUT_OF_MEMORY)?;
        match self.reserve() {
            Some(reserve) => reserve.open(0),
            None => Ok(()),
        }
    }

    /// Its reserve; `None` if it is not charged.
    fn reserve(self) -> Option<Reserve> {
        self.reserve_of(self.change(|entry| entry.extra[FLAGS_WORD])?)
    }

    fn reserve_of(self, flags: u64) -> Option<Reserve> {
        let device = u32::try_from(flags >> DEVICE_SHIFT).unwrap_or(0).cast_signed();
        (flags & UNCOUNTED == 0).then_some(Reserve {
            kind: EntryKind::Pool,
            key: self.key(),
            device,
        })
    }

    /// Pins it for an allocation, unless it is destroyed. `None` if it is not known.
    fn pin(self) -> Option<Pinned> {
        let (flags, is_held) = self.change(|entry| {
            let flags = &mut entry.extra[FLAGS_WORD];
            let is_held = *flags & (UNCOUNTED | ENDING | ENDED) == 0;
            *flags += if is_held { PIN } else { 0 };
            (*flags, is_held)
        })?;
        Some(match self.reserve_of(flags) {
            Some(reserve) => Pinned::Charged(reserve, Pin { pool: self, is_held, pointers: 0 }),
            None => Pinned::Uncharged,
        })
    }

    /// Records that it was exported. Any process that imported it has the memory, even after it is
    /// freed here.
    pub(crate) fn mark_exported(self) {
        if let Some(reserve) = self.reserve() {
            reserve.keep_at_peak();
            // No importer can have had what it reserved before.
            self.settle();
        }
    }

    /// Runs `work` while the pool cannot be destroyed; `None` if it is destroyed already.
    fn while_pinned<R>(self, work: impl FnOnce() -> R) -> Option<R> {
        let is_there = self.change(|entry| {
            let is_there = entry.extra[FLAGS_WORD] & (ENDING | ENDED) == 0;
            if is_there {
                entry.extra[FLAGS_WORD] += PIN;
            }
            is_there
        });
        if is_there != Some(true) {
            return None;
        }
        let answer = work();
        self.change(|entry| entry.extra[FLAGS_WORD] -= PIN);
        Some(answer)
    }

    fn attribute(self, attribute: u32) -> Option<u64> {
        self.while_pinned(|| ask(self, attribute))?
    }

    /// Reserved bytes that are not in use.
    fn idle(self) -> u64 {
        let reserved = self.attribute(RESERVED_BYTES).unwrap_or(0);
        self.attribute(USED_BYTES).map_or(0, |used| reserved.saturating_sub(used))
    }

    /// Updates its charge to its current size.
    pub(crate) fn settle(self) {
        if let Some(reserve) = self.reserve() {
            reserve.settle(Charge::NONE, || self.attribute(RESERVED_BYTES));
        }
    }

    /// Trims it to `keep` bytes. Returns the bytes freed.
    fn trim(self, keep: u64) -> u64 {
        let Some(reserve) = self.reserve() else { return 0 };
        let before = reserve.counted();
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        self.while_pinned(|| real::cuMemPoolTrimTo(self.0, keep));
        self.settle();
        before.saturating_sub(reserve.counted())
    }

    /// Destroys it with `end`.
    pub(crate) fn end(self, end: impl FnOnce() -> Status) -> Status {
        // The remaining charge is what its pointers need.
        self.trim(0);
        while self.change(|entry| {
            entry.extra[FLAGS_WORD] |= ENDING;
            entry.extra[FLAGS_WORD] & PINS
        }) > Some(0)
        {
            futex::sleep_milliseconds(1);
        }
        let status = end();
        let is_over = self.change(|entry| {
            entry.extra[FLAGS_WORD] &= !ENDING;
            if status.is_success() {
                entry.extra[FLAGS_WORD] |= ENDED;
            }
            status.is_success() && entry.extra[POINTERS_WORD] == 0
        });
        if is_over == Some(true) {
            self.forget();
        }
        status
    }

    fn forget(self) {
        if let Some(reserve) = self.reserve() {
            reserve.close();
        }
        if let Ok(process) = process::get() {
            process.table.remove(EntryKind::PoolState, self.key());
        }
    }

    /// Records that one of its pointers was freed.
    fn drop_pointer(self) {
        let is_over = self.change(|entry| {
            entry.extra[POINTERS_WORD] = entry.extra[POINTERS_WORD].saturating_sub(1);
            entry.extra[POINTERS_WORD] == 0 && entry.extra[FLAGS_WORD] & ENDED != 0
        });
        if is_over == Some(true) {
            self.forget();
        }
    }
}

/// What an allocation finds of its pool.
enum Pinned {
    /// A charged pool, which is kept until the pin is dropped, unless its destruction had begun.
    Charged(Reserve, Pin),
    /// One that is not charged.
    Uncharged,
}

/// Keeps a pool until it is dropped.
struct Pin {
    pool: Pool,
    /// False for a pool whose destruction had begun: the driver must not be asked.
    is_held: bool,
    /// Its pointers that were recorded meanwhile.
    pointers: u64,
}

impl Pin {
    /// Bytes that the pool has reserved, as the driver says.
    fn reserved(&self) -> Option<u64> {
        if self.is_held { ask(self.pool, RESERVED_BYTES) } else { None }
    }

    /// Records a pointer of a pool, which is mostly this one.
    fn record_pointer(&mut self, process: &Process, address: Pointer, pool: Pool) {
        let entry = Entry { charge: Charge::NONE, context: 0, extra: [pool.key(), 0] };
        // Without an entry, the pool may end before its memory, as if the memory were freed.
        let Ok(old) = process.table.insert(EntryKind::Pooled, address, entry) else { return };
        if pool == self.pool {
            self.pointers += 1;
        } else {
            pool.change(|entry| entry.extra[POINTERS_WORD] += 1);
        }
        if let Some(old) = old {
            pool_of_entry(&old).drop_pointer();
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pool.change(|entry| {
            entry.extra[FLAGS_WORD] -= if self.is_held { PIN } else { 0 };
            entry.extra[POINTERS_WORD] += self.pointers;
        });
    }
}

/// Asks the driver for an attribute of a pool that is not destroyed meanwhile.
fn ask(pool: Pool, attribute: u32) -> Option<u64> {
    let mut value = 0;
    let status = call::cuMemPoolGetAttribute(pool.0, attribute, Out::to(&mut value));
    status.is_success().then_some(value)
}

fn pool_of_entry(entry: &Entry) -> Pool {
    Pool(usize::try_from(entry.extra[0]).unwrap_or(0))
}

fn pool_of(address: Pointer) -> Option<Pool> {
    let mut pool: Opaque = 0;
    let place = (&raw mut pool).expose_provenance();
    let status = call::cuPointerGetAttribute(place, POOL_OF_POINTER, address);
    (status.is_success() && pool != 0).then_some(Pool(pool))
}

/// Frees memory that may be of a pool. The pool keeps it, charged, until the driver shrinks the
/// pool.
pub(crate) fn free(address: Pointer, free: impl FnOnce() -> Status) -> Status {
    if !ANY_POOLED.load(Ordering::Relaxed) {
        return free();
    }
    let process = match process::get() {
        Ok(process) => process,
        Err(status) => return status,
    };
    let entry = process.table.remove(EntryKind::Pooled, address);
    let status = free();
    let Some(entry) = entry else { return status };
    // A pointer without memory for its entry counts as freed.
    if status.is_success() || process.table.insert(EntryKind::Pooled, address, entry).is_err() {
        pool_of_entry(&entry).drop_pointer();
    }
    status
}

/// Updates the charges of all pools of a GPU: at synchronisations the driver frees idle memory.
pub(crate) fn settle_all(device: Device) {
    let mut pools = [Pool(0); MAX_POOLS];
    for pool in pools_of(device, &mut pools) {
        pool.settle();
    }
}

/// Frees up to `bytes` on a GPU from the idle memory of its pools. Returns the bytes freed.
pub(crate) fn trim(device: Device, bytes: u64) -> u64 {
    let mut pools = [Pool(0); MAX_POOLS];
    let pools = pools_of(device, &mut pools);
    let counted = |pools: &[Pool]| -> u64 {
        pools.iter().filter_map(|pool| pool.reserve()).map(|reserve| reserve.counted()).sum()
    };
    let before = counted(pools);
    for pool in pools {
        pool.settle();
    }
    for pool in pools {
        let lacking = bytes.saturating_sub(before.saturating_sub(counted(pools)));
        if lacking == 0 {
            break;
        }
        let reserved = pool.attribute(RESERVED_BYTES).unwrap_or(0);
        if reserved > 0 {
            pool.trim(reserved.saturating_sub(lacking));
        }
    }
    before.saturating_sub(counted(pools))
}

/// The charged pools of a GPU that are not being destroyed.
fn pools_of(device: Device, pools: &mut [Pool; MAX_POOLS]) -> &[Pool] {
    let mut count = 0;
    // A pool without allocations has no memory.
    if let (true, Ok(process)) = (ANY_POOLED.load(Ordering::Relaxed), process::get()) {
        process.table.each(|kind, key, entry| {
            let word = entry.extra[FLAGS_WORD];
            let matches = kind == EntryKind::PoolState
                && word >> DEVICE_SHIFT == u64::from(device.cast_unsigned())
                && word & (UNCOUNTED | ENDING | ENDED) == 0;
            if let (true, Some(place)) = (matches, pools.get_mut(count)) {
                *place = Pool(usize::try_from(key).unwrap_or(0));
                count += 1;
            }
        });
    }
    pools.get(..count).unwrap_or(&[])
}
