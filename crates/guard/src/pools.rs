//! Pools of stream-ordered memory. A pool is a store ([`crate::account::store`]): what it has reserved is
//! counted, whether a program uses it or the pool keeps it.
//!
//! An allocation is admitted in full before the driver is asked, since only the driver knows whether the pool
//! has to grow for it. Close to the limit that would refuse what fits into the pool as it is; so, when trimming
//! did not make room either, an allocation that fits into what the pool has idle is tried without, and undone
//! should the pool have grown none the less.
//!
//! The driver must not be asked about a pool that is gone. Calls of the guard's own *pin* a pool, and its end
//! waits until it is not pinned. What is allocated outlives its pool: then its pointers are counted down.
//!
//! A pool that was exported counts for the most that it ever had, to the end of the process. One that was imported
//! counts for nothing: it is counted by the process that exported it.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::account::Charge;
use crate::account::store::Store;
use crate::cuda::{Device, Opaque, Pointer, Status};
use crate::driver::call;
use crate::ffi::Out;
use crate::hooks::pools::real;
use crate::process::{self, Process};
use crate::sys::futex;
use crate::table::{Entry, Kind};

mod request;

pub(crate) use request::Request;

/// Attributes of a pool (`CUmemPool_attribute`).
const RESERVED: u32 = 5;
const USED: u32 = 7;

/// The pool of a pointer (`CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE`).
const POOL_OF_POINTER: u32 = 17;

/// Places in the entry of a pool's state.
const LIVE: usize = 0;
const WORD: usize = 1;

/// Parts of the state's word: how often it is pinned, flags, and the GPU above them.
const PIN: u64 = 1;
const PINS: u64 = 0xffff;
/// Its memory is the host's, or another process's.
const UNCOUNTED: u64 = 1 << 16;
/// Its end is under way.
const ENDING: u64 = 1 << 17;
/// It is gone, and some of its memory is not.
const ENDED: u64 = 1 << 18;
const DEVICE: u32 = 32;

/// Pools that are looked at when room is made.
const MOST: usize = 64;

/// Whether any memory of pools was handed out: as long as none was, nobody need look for any.
static ANY: AtomicBool = AtomicBool::new(false);

/// A pool by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pool(pub(crate) Opaque);

impl Pool {
    fn key(self) -> u64 {
        self.0 as u64
    }

    fn change<R>(self, change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        process::get().ok()?.table.change(Kind::PoolState, self.key(), change)
    }

    /// Remembers a pool, unless it is known: of a GPU, or none if its memory is not this process's share's.
    pub(crate) fn know(self, device: Option<Device>) -> Result<(), Status> {
        let number = u64::from(device.unwrap_or(0).cast_unsigned());
        let word = number << DEVICE | if device.is_none() { UNCOUNTED } else { 0 };
        let entry = Entry { charge: Charge::NONE, context: 0, extra: [0, word] };
        let table = &process::get()?.table;
        table.or_insert(Kind::PoolState, self.key(), entry).map_err(|_| Status::OUT_OF_MEMORY)?;
        match self.store() {
            Some(store) => store.open(0),
            None => Ok(()),
        }
    }

    /// The store that it is; none if it is not counted.
    fn store(self) -> Option<Store> {
        let word = self.change(|entry| entry.extra[WORD])?;
        let device = u32::try_from(word >> DEVICE).unwrap_or(0).cast_signed();
        (word & UNCOUNTED == 0).then_some(Store { kind: Kind::Pool, key: self.key(), device })
    }

    /// It was exported. As with other memory that was, whoever imported it has the bytes, even when they are given
    /// back here.
    pub(crate) fn is_exported(self) {
        if let Some(store) = self.store() {
            store.keep();
            // What it has had since it was last looked at, others cannot have had.
            self.settle();
        }
    }

    /// Does something with it that the driver can only do while it is there.
    fn pinned<R>(self, work: impl FnOnce() -> R) -> Option<R> {
        let is_there = self.change(|entry| {
            let is_there = entry.extra[WORD] & (ENDING | ENDED) == 0;
            if is_there {
                entry.extra[WORD] += PIN;
            }
            is_there
        });
        if is_there != Some(true) {
            return None;
        }
        let answer = work();
        self.change(|entry| entry.extra[WORD] -= PIN);
        Some(answer)
    }

    fn attribute(self, attribute: u32) -> Option<u64> {
        let mut value = 0;
        let ask = || call::cuMemPoolGetAttribute(self.0, attribute, Out::to(&mut value));
        self.pinned(ask).filter(|status| status.is_success()).map(|_| value)
    }

    /// Bytes that it has and nobody uses.
    fn idle(self) -> u64 {
        let reserved = self.attribute(RESERVED).unwrap_or(0);
        self.attribute(USED).map_or(0, |used| reserved.saturating_sub(used))
    }

    /// Counts it for what it has now.
    pub(crate) fn settle(self) {
        if let Some(store) = self.store() {
            store.settle(Charge::NONE, || self.attribute(RESERVED));
        }
    }

    /// Has it keep so many bytes; gives how many came back.
    fn trim(self, keep: u64) -> u64 {
        let Some(store) = self.store() else { return 0 };
        let before = store.counted();
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        self.pinned(|| real::cuMemPoolTrimTo(self.0, keep));
        self.settle();
        before.saturating_sub(store.counted())
    }

    /// Ends it by `end`.
    pub(crate) fn end(self, end: impl FnOnce() -> Status) -> Status {
        // What remains counted is what its pointers need.
        self.trim(0);
        while self.change(|entry| {
            entry.extra[WORD] |= ENDING;
            entry.extra[WORD] & PINS
        }) > Some(0)
        {
            futex::sleep(1);
        }
        let status = end();
        let is_over = self.change(|entry| {
            entry.extra[WORD] &= !ENDING;
            if status.is_success() {
                entry.extra[WORD] |= ENDED;
            }
            status.is_success() && entry.extra[LIVE] == 0
        });
        if is_over == Some(true) {
            self.forget();
        }
        status
    }

    fn forget(self) {
        if let Some(store) = self.store() {
            store.close();
        }
        if let Ok(process) = process::get() {
            process.table.remove(Kind::PoolState, self.key());
        }
    }

    /// One of its pointers is gone.
    fn lose_pointer(self) {
        let is_over = self.change(|entry| {
            entry.extra[LIVE] = entry.extra[LIVE].saturating_sub(1);
            entry.extra[LIVE] == 0 && entry.extra[WORD] & ENDED != 0
        });
        if is_over == Some(true) {
            self.forget();
        }
    }
}

fn remember(process: &Process, address: Pointer, pool: Pool) {
    let entry = Entry { charge: Charge::NONE, context: 0, extra: [pool.key(), 0] };
    match process.table.insert(Kind::Pooled, address, entry) {
        Ok(None) => {
            pool.change(|entry| entry.extra[LIVE] += 1);
        }
        Ok(Some(old)) => {
            pool.change(|entry| entry.extra[LIVE] += 1);
            of_entry(&old).lose_pointer();
        }
        // Not remembered: should the pool end before its memory, it ends as if that were gone, too.
        Err(_) => {}
    }
}

fn of_entry(entry: &Entry) -> Pool {
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
    if !ANY.load(Ordering::Relaxed) {
        return free();
    }
    let process = match process::get() {
        Ok(process) => process,
        Err(status) => return status,
    };
    let entry = process.table.remove(Kind::Pooled, address);
    let status = free();
    let Some(entry) = entry else { return status };
    // One that there is no memory to remember any more is as good as gone.
    if status.is_success() || process.table.insert(Kind::Pooled, address, entry).is_err() {
        of_entry(&entry).lose_pointer();
    }
    status
}

/// Counts all pools of a GPU for what they have now: at synchronisations the driver gives back what they keep.
pub(crate) fn settle_all(device: Device) {
    let mut pools = [Pool(0); MOST];
    for pool in of_device(device, &mut pools) {
        pool.settle();
    }
}

/// Makes room for bytes on a GPU, as far as its pools have idle memory; gives how many came back.
pub(crate) fn trim(device: Device, bytes: u64) -> u64 {
    let mut pools = [Pool(0); MOST];
    let pools = of_device(device, &mut pools);
    let counted = |pools: &[Pool]| -> u64 {
        pools.iter().filter_map(|pool| pool.store()).map(|store| store.counted()).sum()
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
        let reserved = pool.attribute(RESERVED).unwrap_or(0);
        if reserved > 0 {
            pool.trim(reserved.saturating_sub(lacking));
        }
    }
    before.saturating_sub(counted(pools))
}

/// The counted pools of a GPU that are there.
fn of_device(device: Device, pools: &mut [Pool; MOST]) -> &[Pool] {
    let mut count = 0;
    // A pool that nothing was allocated from has nothing.
    if let (true, Ok(process)) = (ANY.load(Ordering::Relaxed), process::get()) {
        process.table.each(|kind, key, entry| {
            let word = entry.extra[WORD];
            let is_its = kind == Kind::PoolState
                && word >> DEVICE == u64::from(device.cast_unsigned())
                && word & (UNCOUNTED | ENDING | ENDED) == 0;
            if let (true, Some(place)) = (is_its, pools.get_mut(count)) {
                *place = Pool(usize::try_from(key).unwrap_or(0));
                count += 1;
            }
        });
    }
    pools.get(..count).unwrap_or(&[])
}
