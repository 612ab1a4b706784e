//! The table of allocations, with their charges.
//!
//! It is sharded, and each shard has its own lock, so that threads seldom contend. A shard starts
//! with a page of memory on first use and doubles; most programs allocate few large blocks.

use core::ptr::NonNull;

use crate::cuda::Opaque;
use crate::platform::sync::Mutex;
use crate::platform::sys::memory;
use crate::tracking::account::{self, Charge};

/// Kind of an entry. The key of an entry is the driver's handle, which is unique within its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EntryKind {
    /// An empty bucket.
    Free = 0,
    /// Memory, by address.
    Memory = 1,
    /// A context, by handle.
    Context = 2,
    /// A green context, by handle.
    GreenContext = 3,
    /// An array, by handle.
    Array = 4,
    /// A mipmapped array, by handle.
    Mipmap = 5,
    /// Physical memory, by handle ([`crate::tracking::vmm_memory`]).
    Physical = 6,
    /// An additional handle of physical memory.
    Alias = 7,
    /// A mapping of physical memory, by its first address.
    Mapping = 8,
    /// Physical memory that an object other than a mapping holds.
    Bound = 10,
    /// The reserve of a pool, by the pool's handle ([`crate::tracking::pools`]).
    Pool = 11,
    /// Other state of a pool.
    PoolState = 12,
    /// Memory of a pool, by address.
    Pooled = 13,
    /// The reserve of a GPU's graph memory, by GPU ([`crate::tracking::graph_memory`]).
    GraphMemory = 14,
    /// An instantiated graph that allocates, by handle.
    Executable = 15,
    /// The reserve for a limit of a context, by both ([`crate::hooks`]).
    Limit = 16,
    /// Value of such a limit when the context began.
    LimitBefore = 17,
    /// Memory with a pending stream-ordered free, by a number ([`crate::tracking::async_free`]).
    Freed = 18,
    /// Idle graph memory of a GPU that launches rely on, by GPU.
    Claims = 19,
    /// Granules of small memory, by their number ([`crate::tracking::slabs`]).
    Slab = 20,
    /// The current pool of a GPU, by GPU ([`crate::tracking::pools`]).
    CurrentPool = 21,
    /// Memory that the guard can move, by address ([`crate::movable`]).
    Movable = 22,
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Its charge.
    pub(crate) charge: Charge,
    /// The context that it ends with, or 0.
    pub(crate) context: Opaque,
    /// Data that depends on its kind.
    pub(crate) extra: [u64; 2],
}

/// There is no memory for another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableFull;

const SHARDS: usize = 16;

/// Buckets of a shard on first use.
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

/// Buckets with linear probing: an entry lies at the index of its key's hash or, if that is taken,
/// behind it.
#[derive(Debug)]
struct Shard {
    buckets: Option<NonNull<Bucket>>,
    /// A power of two, or zero.
    capacity: usize,
    used: usize,
}

// JUSTIFICATION: a pointer to mapped memory prevents `Send`.
// SAFETY: only the shard uses the memory.
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
            // JUSTIFICATION: the kernel is the table's only allocator.
            // SAFETY: `grow` mapped `capacity` buckets. Zero bytes are free buckets, and only this
            // shard refers to them.
            Some(buckets) => unsafe {
                core::slice::from_raw_parts_mut(buckets.as_ptr(), self.capacity)
            },
        }
    }

    /// Index of an entry, or of the free bucket for it.
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
            // JUSTIFICATION: mapped memory is unmapped by hand.
            // SAFETY: no reference to it is left.
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

    /// Frees a bucket and moves up entries that would not be found behind it.
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
            // Moves unless its ideal index lies behind the hole, cyclically.
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

    /// Adds an entry. Returns the entry that it replaces, whose memory the driver must have freed
    /// unnoticed.
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

    /// Removes an entry if `predicate` holds.
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

    /// Removes an entry.
    pub(crate) fn remove(&self, kind: EntryKind, key: u64) -> Option<Entry> {
        self.shard(kind, key).lock().remove(kind, key)
    }

    /// Changes an entry under its lock. `change` must not call the driver.
    #[allow(dead_code, reason = "used by kinds that count references")]
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

    /// Removes all entries for which `is_gone` holds, and releases their charges.
    pub(crate) fn sweep(&self, mut is_gone: impl FnMut(EntryKind, u64, &Entry) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let mut index = 0;
            while index < shard.capacity {
                let bucket = shard.all()[index];
                if bucket.kind != EntryKind::Free && is_gone(bucket.kind, bucket.key, &bucket.entry)
                {
                    account::release(bucket.entry.charge);
                    // An entry that moved up into the bucket is checked next.
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
