//! Pools of stream-ordered memory. A pool is a reserve ([`crate::tracking::account::reserve`]): what it has reserved is
//! counted, whether a program uses it or the pool keeps it.
//!
//! An allocation is charge_growth in full before the driver is asked, since only the driver knows whether the pool
//! has to grow for it. Close to the limit that would refuse what fits into the pool as it is; so, when trimming
//! did not make room either, an allocation that fits into what the pool has idle is tried without, and undone
//! should the pool have settle_growth none the less.
//!
//! The driver must not be asked about a pool that is gone. Calls of the guard's own *pin* a pool, and its end
//! waits until it is not while_pinned. What is allocated outlives its pool: then its pointers are counted down.
//!
//! A pool that was exported counts for the most that it ever had, to the end of the process. One that was imported
//! counts for nothing: it is counted by the process that exported it.

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

mod request;

pub(crate) use request::PoolAllocation;

/// Attributes of a pool (`CUmemPool_attribute`).
const RESERVED_BYTES: u32 = 5;
const USED_BYTES: u32 = 7;

/// The pool of a pointer (`CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE`).
const POOL_OF_POINTER: u32 = 17;

/// Places in the entry of a pool's state.
const POINTERS_WORD: usize = 0;
const FLAGS_WORD: usize = 1;

/// Parts of the state's word: how often it is while_pinned, flags, and the GPU above them.
const PIN: u64 = 1;
const PINS: u64 = 0xffff;
/// Its memory is the host's, or another process's.
const UNCOUNTED: u64 = 1 << 16;
/// Its end is under way.
const ENDING: u64 = 1 << 17;
/// It is gone, and some of its memory is not.
const ENDED: u64 = 1 << 18;
const DEVICE_SHIFT: u32 = 32;

/// Pools that are looked at when room is made.
const MAX_POOLS: usize = 64;

/// Whether any memory of pools was handed out: as long as none was, nobody need look for any.
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

    /// Remembers a pool, unless it is known: of a GPU, or none if its memory is not this process's share's.
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

    /// The reserve that it is; none if it is not counted.
    fn reserve(self) -> Option<Reserve> {
        let word = self.change(|entry| entry.extra[FLAGS_WORD])?;
        let device = u32::try_from(word >> DEVICE_SHIFT).unwrap_or(0).cast_signed();
        (word & UNCOUNTED == 0).then_some(Reserve {
            kind: EntryKind::Pool,
            key: self.key(),
            device,
        })
    }

    /// It was exported. As with other memory that was, whoever imported it has the bytes, even when they are given
    /// back here.
    pub(crate) fn mark_exported(self) {
        if let Some(reserve) = self.reserve() {
            reserve.keep_at_peak();
            // What it has had since it was last looked at, others cannot have had.
            self.settle();
        }
    }

    /// Does something with it that the driver can only do while it is there.
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
        let mut value = 0;
        let ask = || call::cuMemPoolGetAttribute(self.0, attribute, Out::to(&mut value));
        self.while_pinned(ask).filter(|status| status.is_success()).map(|_| value)
    }

    /// Bytes that it has and nobody uses.
    fn idle(self) -> u64 {
        let reserved = self.attribute(RESERVED_BYTES).unwrap_or(0);
        self.attribute(USED_BYTES).map_or(0, |used| reserved.saturating_sub(used))
    }

    /// Counts it for what it has now.
    pub(crate) fn settle(self) {
        if let Some(reserve) = self.reserve() {
            reserve.settle(Charge::NONE, || self.attribute(RESERVED_BYTES));
        }
    }

    /// Has it keep so many bytes; gives how many came back.
    fn trim(self, keep: u64) -> u64 {
        let Some(reserve) = self.reserve() else { return 0 };
        let before = reserve.counted();
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        self.while_pinned(|| real::cuMemPoolTrimTo(self.0, keep));
        self.settle();
        before.saturating_sub(reserve.counted())
    }

    /// Ends it by `end`.
    pub(crate) fn end(self, end: impl FnOnce() -> Status) -> Status {
        // What remains counted is what its pointers need.
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

    /// One of its pointers is gone.
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

fn record_pointer(process: &Process, address: Pointer, pool: Pool) {
    let entry = Entry { charge: Charge::NONE, context: 0, extra: [pool.key(), 0] };
    match process.table.insert(EntryKind::Pooled, address, entry) {
        Ok(None) => {
            pool.change(|entry| entry.extra[POINTERS_WORD] += 1);
        }
        Ok(Some(old)) => {
            pool.change(|entry| entry.extra[POINTERS_WORD] += 1);
            pool_of_entry(&old).drop_pointer();
        }
        // Not remembered: should the pool end before its memory, it ends as if that were gone, too.
        Err(_) => {}
    }
}

fn pool_of_entry(entry: &Entry) -> Pool {
    Pool(usize::try_from(entry.extra[0]).unwrap_or(0))
}

/// The pool that a GPU's allocations come from.
fn current(device: Device) -> Option<Pool> {
    let mut pool = 0;
    let status = real::cuDeviceGetMemPool(Out::to(&mut pool), device);
    status.is_success().then_some(Pool(pool))
}

fn pool_of(address: Pointer) -> Option<Pool> {
    let mut pool: Opaque = 0;
    let place = (&raw mut pool).expose_provenance();
    let status = call::cuPointerGetAttribute(place, POOL_OF_POINTER, address);
    (status.is_success() && pool != 0).then_some(Pool(pool))
}

/// Gives memory back that may be a pool's. The pool keeps it, counted, until the driver says otherwise.
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
    // One that there is no memory to record_pointer any more is as good as gone.
    if status.is_success() || process.table.insert(EntryKind::Pooled, address, entry).is_err() {
        pool_of_entry(&entry).drop_pointer();
    }
    status
}

/// Counts all pools of a GPU for what they have now: at synchronisations the driver gives back what they keep.
pub(crate) fn settle_all(device: Device) {
    let mut pools = [Pool(0); MAX_POOLS];
    for pool in pools_of(device, &mut pools) {
        pool.settle();
    }
}

/// Makes room for bytes on a GPU, as far as its pools have idle memory; gives how many came back.
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

/// The counted pools of a GPU that are there.
fn pools_of(device: Device, pools: &mut [Pool; MAX_POOLS]) -> &[Pool] {
    let mut count = 0;
    // A pool that nothing was allocated from has nothing.
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
