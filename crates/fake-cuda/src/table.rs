//! Handle tables.
//!
//! A handle is a number in a pointer's type and is never dereferenced. The table of its kind tells
//! whether it refers to an object; the handle of a destroyed object refers to none. Entries are
//! reused, so that creating and destroying in a loop takes no memory.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::code::Code;

/// A handle in C: a pointer that is never dereferenced.
pub(crate) type Handle = usize;

const CHUNK: usize = 256;
const CHUNKS: usize = 4096;

/// Highest byte of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleKind {
    Context = 1,
    Stream,
    Event,
    Module,
    Function,
    Pool,
    Graph,
    Node,
    Exec,
    Array,
    Mipmap,
    Memory,
    Log,
}

/// All objects of one kind.
pub(crate) struct Table<T> {
    kind: HandleKind,
    chunks: [OnceLock<Box<[Entry<T>]>>; CHUNKS],
    used: AtomicU32,
    free: Mutex<Vec<u32>>,
}

struct Entry<T> {
    /// Number of uses of this entry; part of the handle.
    generation: AtomicU32,
    thing: Mutex<Option<T>>,
}

impl<T> Table<T> {
    #[expect(clippy::large_stack_arrays, reason = "tables are statics, made by the compiler")]
    pub(crate) const fn new(kind: HandleKind) -> Self {
        Self {
            kind,
            chunks: [const { OnceLock::new() }; CHUNKS],
            used: AtomicU32::new(0),
            free: Mutex::new(Vec::new()),
        }
    }

    /// Adds an object. Returns its handle.
    pub(crate) fn insert(&self, thing: T) -> Result<Handle, Code> {
        let reused = lock(&self.free).pop();
        let index = reused.unwrap_or_else(|| self.used.fetch_add(1, AcqRel));
        let entry = self.make(index).ok_or(Code::OUT_OF_MEMORY)?;
        let generation = entry.generation.fetch_add(1, AcqRel).wrapping_add(1);
        *lock(&entry.thing) = Some(thing);
        Ok(self.handle(index, generation))
    }

    /// Runs `body` with the object of a handle.
    pub(crate) fn with<A>(
        &self,
        handle: Handle,
        body: impl FnOnce(&mut T) -> Result<A, Code>,
    ) -> Result<A, Code> {
        let (entry, generation) = self.entry(handle).ok_or(Code::INVALID_HANDLE)?;
        let mut thing = lock(&entry.thing);
        if entry.generation.load(Acquire) & GENERATIONS != generation {
            return Err(Code::INVALID_HANDLE);
        }
        body(thing.as_mut().ok_or(Code::INVALID_HANDLE)?)
    }

    /// Removes the object; its handle becomes invalid.
    pub(crate) fn remove(&self, handle: Handle) -> Result<T, Code> {
        let (entry, generation) = self.entry(handle).ok_or(Code::INVALID_HANDLE)?;
        let mut thing = lock(&entry.thing);
        if entry.generation.load(Acquire) & GENERATIONS != generation {
            return Err(Code::INVALID_HANDLE);
        }
        let taken = thing.take().ok_or(Code::INVALID_HANDLE)?;
        drop(thing);
        lock(&self.free).push(index_of(handle));
        Ok(taken)
    }

    /// Handles of all objects.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        let used = self.used.load(Acquire);
        let there = (0..used).filter_map(|index| {
            let entry = self.at(index)?;
            let is_used = lock(&entry.thing).is_some();
            is_used.then(|| self.handle(index, entry.generation.load(Relaxed)))
        });
        there.collect()
    }

    fn handle(&self, index: u32, generation: u32) -> Handle {
        let high = (self.kind as usize) << 16 | (generation & GENERATIONS) as usize;
        // Aligned like a pointer, and never null.
        high << 32 | (index as usize + 1) << 4
    }

    fn entry(&self, handle: Handle) -> Option<(&Entry<T>, u32)> {
        if handle >> 48 != self.kind as usize {
            return None;
        }
        let generation = u32::try_from(handle >> 32 & GENERATIONS as usize).ok()?;
        Some((self.at(index_of(handle))?, generation))
    }

    fn at(&self, index: u32) -> Option<&Entry<T>> {
        let chunk = self.chunks.get(index as usize / CHUNK)?.get()?;
        chunk.get(index as usize % CHUNK)
    }

    fn make(&self, index: u32) -> Option<&Entry<T>> {
        let chunk = self.chunks.get(index as usize / CHUNK)?;
        let fresh = || Entry { generation: AtomicU32::new(0), thing: Mutex::new(None) };
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| fresh()).collect());
        chunk.get(index as usize % CHUNK)
    }
}

/// Bits of an entry's generation in the handle.
const GENERATIONS: u32 = 0xffff;

fn index_of(handle: Handle) -> u32 {
    let number = u32::try_from(handle & 0xffff_ffff).unwrap_or(0) >> 4;
    number.wrapping_sub(1)
}

/// Locks a mutex; data from before a panic is good enough.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
