//! What was allocated: how much it counts for, until it is given back.
//!
//! A table of several shards, each with its lock, so that threads seldom meet. A shard begins with a page of
//! memory when it is first used and doubles; most programs allocate few large blocks.

use core::ptr::NonNull;

use crate::cuda::Opaque;
use crate::platform::sync::Mutex;
use crate::platform::sys::memory;
use crate::tracking::account::{self, Charge};

/// What an entry is of. The key of an entry is what the driver calls it, which is unique within its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EntryKind {
    /// A bucket without an entry.
    Free = 0,
    /// Memory by its address.
    Memory = 1,
    /// A context by its handle.
    Context = 2,
    /// A green context by its handle.
    GreenContext = 3,
    /// An array by its handle.
    Array = 4,
    /// A mipmapped array by its handle.
    Mipmap = 5,
    /// Memory without addresses by its handle ([`crate::tracking::vmm_memory`]).
    Physical = 6,
    /// Another handle of such memory.
    Alias = 7,
    /// Such memory at addresses, by the first of them.
    Mapping = 8,
    /// Such memory that something other than addresses holds.
    Bound = 10,
    /// The store that is a pool, by the pool's handle ([`crate::tracking::pools`]).
    Pool = 11,
    /// What else is known of a pool.
    PoolState = 12,
    /// Memory of a pool by its address.
    Pooled = 13,
    /// The store that is the memory of a GPU's graphs, by the GPU ([`crate::tracking::graph_memory`]).
    GraphMemory = 14,
    /// A graph that allocates, ready to launch, by its handle.
    Executable = 15,
    /// The store that a limit of a context reserves, by both ([`crate::hooks`]).
    Limit = 16,
    /// What such a limit was when the context began.
    LimitBefore = 17,
    /// Memory that a stream is about to free, by a number ([`crate::tracking::async_free`]).
    Freed = 18,
    /// Idle memory of a GPU's graphs that launches rely on, by the GPU.
    Claims = 19,
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// What it counts for.
    pub(crate) charge: Charge,
    /// The context that it goes with, or 0.
    pub(crate) context: Opaque,
    /// Whatever else its kind needs.
    pub(crate) extra: [u64; 2],
}

/// There is no memory for another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableFull;

const SHARDS: usize = 16;

/// Places of a shard when it is first used.
const INITIAL_CAPACITY: usize = 64;

/// The table. Zero bytes are an empty one.
#[derive(Debug)]
pub(crate) struct Table {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    key: u64,
    kind: EntryKind,
    entry: Entry,
}

/// Places in a row; an entry lies at the bucket that its key says or, if that is taken, behind it.
#[derive(Debug)]
struct Shard {
    buckets: Option<NonNull<Bucket>>,
    /// A power of two, or zero.
    capacity: usize,
    used: usize,
}

// JUSTIFICATION: a pointer to mapped memory keeps a type from being sent.
// SAFETY: the memory is the shard's alone.
unsafe impl Send for Shard {}

fn hash(kind: EntryKind, key: u64) -> usize {
    // Fibonacci hashing: addresses differ in their middle bits.
    let mixed = (key ^ (kind as u64) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 20) as usize
}

impl Shard {
    fn all(&mut self) -> &mut [Bucket] {
        match self.buckets {
            None => &mut [],
            // JUSTIFICATION: the table has no allocator but the kernel.
            // SAFETY: `grow` mapped `capacity` buckets, zero bytes of which are free ones, and nobody else
            // has them.
            Some(buckets) => unsafe {
                core::slice::from_raw_parts_mut(buckets.as_ptr(), self.capacity)
            },
        }
    }

    /// Where an entry is, or the free bucket where it would be.
    fn find(&mut self, kind: EntryKind, key: u64) -> Option<usize> {
        let mask = self.capacity.checked_sub(1)?;
        let buckets = self.all();
        let mut index = hash(kind, key) & mask;
        loop {
            let bucket = buckets.get(index)?;
            if bucket.kind == EntryKind::Free || (bucket.kind == kind && bucket.key == key) {
                return Some(index);
            }
            index = (index + 1) & mask;
        }
    }

    fn grow(&mut self) -> Result<(), TableFull> {
        let capacity = if self.capacity == 0 { INITIAL_CAPACITY } else { self.capacity * 2 };
        let fresh = memory::map_anonymous(capacity * size_of::<Bucket>()).map_err(|_| TableFull)?;
        let mut grown = Self { buckets: Some(fresh.cast()), capacity, used: self.used };
        for bucket in self.all().iter().filter(|bucket| bucket.kind != EntryKind::Free) {
            if let Some(index) = grown.find(bucket.kind, bucket.key) {
                grown.all()[index] = *bucket;
            }
        }
        let old = core::mem::replace(self, grown);
        if let Some(buckets) = old.buckets {
            // JUSTIFICATION: mapped memory is given back by hand.
            // SAFETY: nobody has it any more.
            unsafe { memory::unmap(buckets.cast(), old.capacity * size_of::<Bucket>()) };
        }
        Ok(())
    }

    fn insert(
        &mut self,
        kind: EntryKind,
        key: u64,
        entry: Entry,
    ) -> Result<Option<Entry>, TableFull> {
        if (self.used + 1) * 4 > self.capacity * 3 {
            self.grow()?;
        }
        let index = self.find(kind, key).ok_or(TableFull)?;
        let bucket = &mut self.all()[index];
        let old = (bucket.kind != EntryKind::Free).then_some(bucket.entry);
        *bucket = Bucket { key, kind, entry };
        self.used += usize::from(old.is_none());
        Ok(old)
    }

    fn remove(&mut self, kind: EntryKind, key: u64) -> Option<Entry> {
        let index = self.find(kind, key)?;
        let bucket =
            self.all().get(index).copied().filter(|bucket| bucket.kind != EntryKind::Free)?;
        self.close(index);
        Some(bucket.entry)
    }

    /// Frees a bucket and moves up what would not be found behind it.
    fn close(&mut self, index: usize) {
        self.used -= 1;
        let mask = self.capacity - 1;
        let buckets = self.all();
        let (mut hole, mut next) = (index, index);
        loop {
            next = (next + 1) & mask;
            let bucket = buckets[next];
            if bucket.kind == EntryKind::Free {
                break;
            }
            let ideal_index = hash(bucket.kind, bucket.key) & mask;
            // Moves unless its own bucket lies behind the hole, seen around the end.
            if next.wrapping_sub(ideal_index) & mask >= next.wrapping_sub(hole) & mask {
                buckets[hole] = bucket;
                hole = next;
            }
        }
        buckets[hole].kind = EntryKind::Free;
    }
}

impl Table {
    fn shard(&self, kind: EntryKind, key: u64) -> &Mutex<Shard> {
        &self.shards[(hash(kind, key) >> 36) % SHARDS]
    }

    /// Adds an entry; gives the one that it takes the bucket of, which the driver must have given back
    /// without our knowing.
    pub(crate) fn insert(
        &self,
        kind: EntryKind,
        key: u64,
        entry: Entry,
    ) -> Result<Option<Entry>, TableFull> {
        self.shard(kind, key).lock().insert(kind, key, entry)
    }

    /// Adds an entry unless there is one.
    pub(crate) fn or_insert(
        &self,
        kind: EntryKind,
        key: u64,
        entry: Entry,
    ) -> Result<(), TableFull> {
        let mut shard = self.shard(kind, key).lock();
        let index = shard.find(kind, key);
        if index.is_some_and(|index| shard.all()[index].kind != EntryKind::Free) {
            return Ok(());
        }
        shard.insert(kind, key, entry).map(drop)
    }

    /// Takes an entry out if it is so.
    pub(crate) fn remove_if(
        &self,
        kind: EntryKind,
        key: u64,
        predicate: impl FnOnce(&Entry) -> bool,
    ) -> Option<Entry> {
        let mut shard = self.shard(kind, key).lock();
        let index = shard.find(kind, key)?;
        let bucket =
            shard.all().get(index).copied().filter(|bucket| bucket.kind != EntryKind::Free)?;
        if !predicate(&bucket.entry) {
            return None;
        }
        shard.close(index);
        Some(bucket.entry)
    }

    /// Takes an entry out.
    pub(crate) fn remove(&self, kind: EntryKind, key: u64) -> Option<Entry> {
        self.shard(kind, key).lock().remove(kind, key)
    }

    /// Changes an entry while nobody else can. `change` must not call the driver.
    #[allow(dead_code, reason = "for kinds that count references")]
    pub(crate) fn change<R>(
        &self,
        kind: EntryKind,
        key: u64,
        change: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        let mut shard = self.shard(kind, key).lock();
        let index = shard.find(kind, key)?;
        let bucket = shard.all().get_mut(index).filter(|bucket| bucket.kind != EntryKind::Free)?;
        Some(change(&mut bucket.entry))
    }

    /// Changes every entry. `change` must not call the driver.
    pub(crate) fn each(&self, mut change: impl FnMut(EntryKind, u64, &mut Entry)) {
        for shard in &self.shards {
            for bucket in
                shard.lock().all().iter_mut().filter(|bucket| bucket.kind != EntryKind::Free)
            {
                change(bucket.kind, bucket.key, &mut bucket.entry);
            }
        }
    }

    /// Takes out all entries that `is_gone` says yes to, and gives back what they count for.
    pub(crate) fn sweep(&self, mut is_gone: impl FnMut(EntryKind, u64, &Entry) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let mut index = 0;
            while index < shard.capacity {
                let bucket = shard.all()[index];
                if bucket.kind != EntryKind::Free && is_gone(bucket.kind, bucket.key, &bucket.entry)
                {
                    account::release(bucket.entry.charge);
                    // What moved up into the bucket is looked at next.
                    shard.close(index);
                } else {
                    index += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
