//! What was allocated: how much it counts for, until it is given back.
//!
//! A table of several parts, each with its lock, so that threads seldom meet. A part begins with a page of
//! memory when it is first used and doubles; most programs allocate few large blocks.

use core::ptr::NonNull;

use crate::account::{self, Charge};
use crate::cuda::Opaque;
use crate::sync::Mutex;
use crate::sys::memory;

/// What an entry is of. The key of an entry is what the driver calls it, which is unique within its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A place without an entry.
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
    /// Memory without addresses by its handle ([`crate::physical`]).
    Physical = 6,
    /// Another handle of such memory.
    Alias = 7,
    /// Such memory at addresses, by the first of them.
    Mapping = 8,
    /// Such memory that something other than addresses holds.
    Bound = 10,
    /// The store that is a pool, by the pool's handle ([`crate::pools`]).
    Pool = 11,
    /// What else is known of a pool.
    PoolState = 12,
    /// Memory of a pool by its address.
    Pooled = 13,
    /// The store that is the memory of a GPU's graphs, by the GPU ([`crate::graph_memory`]).
    GraphMemory = 14,
    /// A graph that allocates, ready to launch, by its handle.
    Executable = 15,
    /// The store that a limit of a context reserves, by both ([`crate::hooks`]).
    Limit = 16,
    /// What such a limit was when the context began.
    LimitBefore = 17,
    /// Memory that a stream is about to free, by a number ([`crate::freed`]).
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
pub(crate) struct Full;

const PARTS: usize = 16;

/// Places of a part when it is first used.
const FIRST: usize = 64;

/// The table. Zero bytes are an empty one.
#[derive(Debug)]
pub(crate) struct Table {
    parts: [Mutex<Part>; PARTS],
}

#[derive(Clone, Copy, Debug)]
struct Place {
    key: u64,
    kind: Kind,
    entry: Entry,
}

/// Places in a row; an entry lies at the place that its key says or, if that is taken, behind it.
#[derive(Debug)]
struct Part {
    places: Option<NonNull<Place>>,
    /// A power of two, or zero.
    capacity: usize,
    used: usize,
}

// JUSTIFICATION: a pointer to mapped memory keeps a type from being sent.
// SAFETY: the memory is the part's alone.
unsafe impl Send for Part {}

fn hash(kind: Kind, key: u64) -> usize {
    // Fibonacci hashing: addresses differ in their middle bits.
    let mixed = (key ^ (kind as u64) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 20) as usize
}

impl Part {
    fn all(&mut self) -> &mut [Place] {
        match self.places {
            None => &mut [],
            // JUSTIFICATION: the table has no allocator but the kernel.
            // SAFETY: `grow` mapped `capacity` places, zero bytes of which are free ones, and nobody else
            // has them.
            Some(places) => unsafe {
                core::slice::from_raw_parts_mut(places.as_ptr(), self.capacity)
            },
        }
    }

    /// Where an entry is, or the free place where it would be.
    fn find(&mut self, kind: Kind, key: u64) -> Option<usize> {
        let mask = self.capacity.checked_sub(1)?;
        let places = self.all();
        let mut index = hash(kind, key) & mask;
        loop {
            let place = places.get(index)?;
            if place.kind == Kind::Free || (place.kind == kind && place.key == key) {
                return Some(index);
            }
            index = (index + 1) & mask;
        }
    }

    fn grow(&mut self) -> Result<(), Full> {
        let capacity = if self.capacity == 0 { FIRST } else { self.capacity * 2 };
        let fresh = memory::fresh(capacity * size_of::<Place>()).map_err(|_| Full)?;
        let mut grown = Self { places: Some(fresh.cast()), capacity, used: self.used };
        for place in self.all().iter().filter(|place| place.kind != Kind::Free) {
            if let Some(index) = grown.find(place.kind, place.key) {
                grown.all()[index] = *place;
            }
        }
        let old = core::mem::replace(self, grown);
        if let Some(places) = old.places {
            // JUSTIFICATION: mapped memory is given back by hand.
            // SAFETY: nobody has it any more.
            unsafe { memory::give_back(places.cast(), old.capacity * size_of::<Place>()) };
        }
        Ok(())
    }

    fn insert(&mut self, kind: Kind, key: u64, entry: Entry) -> Result<Option<Entry>, Full> {
        if (self.used + 1) * 4 > self.capacity * 3 {
            self.grow()?;
        }
        let index = self.find(kind, key).ok_or(Full)?;
        let place = &mut self.all()[index];
        let old = (place.kind != Kind::Free).then_some(place.entry);
        *place = Place { key, kind, entry };
        self.used += usize::from(old.is_none());
        Ok(old)
    }

    fn remove(&mut self, kind: Kind, key: u64) -> Option<Entry> {
        let index = self.find(kind, key)?;
        let place = self.all().get(index).copied().filter(|place| place.kind != Kind::Free)?;
        self.close(index);
        Some(place.entry)
    }

    /// Frees a place and moves up what would not be found behind it.
    fn close(&mut self, index: usize) {
        self.used -= 1;
        let mask = self.capacity - 1;
        let places = self.all();
        let (mut hole, mut next) = (index, index);
        loop {
            next = (next + 1) & mask;
            let place = places[next];
            if place.kind == Kind::Free {
                break;
            }
            let home = hash(place.kind, place.key) & mask;
            // Moves unless its own place lies behind the hole, seen around the end.
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(hole) & mask {
                places[hole] = place;
                hole = next;
            }
        }
        places[hole].kind = Kind::Free;
    }
}

impl Table {
    fn part(&self, kind: Kind, key: u64) -> &Mutex<Part> {
        &self.parts[(hash(kind, key) >> 36) % PARTS]
    }

    /// Adds an entry; gives the one that it takes the place of, which the driver must have given back
    /// without our knowing.
    pub(crate) fn insert(&self, kind: Kind, key: u64, entry: Entry) -> Result<Option<Entry>, Full> {
        self.part(kind, key).lock().insert(kind, key, entry)
    }

    /// Adds an entry unless there is one.
    pub(crate) fn or_insert(&self, kind: Kind, key: u64, entry: Entry) -> Result<(), Full> {
        let mut part = self.part(kind, key).lock();
        let index = part.find(kind, key);
        if index.is_some_and(|index| part.all()[index].kind != Kind::Free) {
            return Ok(());
        }
        part.insert(kind, key, entry).map(drop)
    }

    /// Takes an entry out if it is so.
    pub(crate) fn remove_if(
        &self,
        kind: Kind,
        key: u64,
        is_so: impl FnOnce(&Entry) -> bool,
    ) -> Option<Entry> {
        let mut part = self.part(kind, key).lock();
        let index = part.find(kind, key)?;
        let place = part.all().get(index).copied().filter(|place| place.kind != Kind::Free)?;
        if !is_so(&place.entry) {
            return None;
        }
        part.close(index);
        Some(place.entry)
    }

    /// Takes an entry out.
    pub(crate) fn remove(&self, kind: Kind, key: u64) -> Option<Entry> {
        self.part(kind, key).lock().remove(kind, key)
    }

    /// Changes an entry while nobody else can. `change` must not call the driver.
    #[allow(dead_code, reason = "for kinds that count references")]
    pub(crate) fn change<R>(
        &self,
        kind: Kind,
        key: u64,
        change: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        let mut part = self.part(kind, key).lock();
        let index = part.find(kind, key)?;
        let place = part.all().get_mut(index).filter(|place| place.kind != Kind::Free)?;
        Some(change(&mut place.entry))
    }

    /// Changes every entry. `change` must not call the driver.
    pub(crate) fn each(&self, mut change: impl FnMut(Kind, u64, &mut Entry)) {
        for part in &self.parts {
            for place in part.lock().all().iter_mut().filter(|place| place.kind != Kind::Free) {
                change(place.kind, place.key, &mut place.entry);
            }
        }
    }

    /// Takes out all entries that `is_gone` says yes to, and gives back what they count for.
    pub(crate) fn sweep(&self, mut is_gone: impl FnMut(Kind, u64, &Entry) -> bool) {
        for part in &self.parts {
            let mut part = part.lock();
            let mut index = 0;
            while index < part.capacity {
                let place = part.all()[index];
                if place.kind != Kind::Free && is_gone(place.kind, place.key, &place.entry) {
                    account::release(place.entry.charge);
                    // What moved up into the place is looked at next.
                    part.close(index);
                } else {
                    index += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
