//! Bindings: memory held by something other than an address range.

use core::sync::atomic::{AtomicBool, Ordering};

use super::mapping::mapped_at;
use super::{Handle, drop_hold, hold, memory_of, new_entry, table};
use crate::cuda::{Pointer, Status};
use crate::tracking::account::Charge;
use crate::tracking::table::EntryKind;

/// Words in the entry of a binding: the holder, and the memory.
const HOLDER_WORD: usize = 0;
const MEMORY_WORD: usize = 1;

/// Whether any memory was ever bound.
static ANY_BOUND: AtomicBool = AtomicBool::new(false);

/// The object that memory is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A multicast object.
    Multicast(Handle),
    /// A sparse array or mipmapped array that memory was mapped to.
    Array(u64),
}

impl Holder {
    fn key(self) -> u64 {
        match self {
            Self::Multicast(handle) => handle,
            // No address has the highest bit set.
            Self::Array(handle) => handle | 1 << 63,
        }
    }
}

/// Binds memory with `work`. It is held until its holder ends, even if parts are unbound before.
pub(crate) fn bind(holder: Holder, handle: Handle, work: impl FnOnce() -> Status) -> Status {
    bind_memory(holder, memory_of(handle), work)
}

/// Like [`bind`], for the memory mapped at an address.
pub(crate) fn bind_address(
    holder: Holder,
    address: Pointer,
    work: impl FnOnce() -> Status,
) -> Status {
    bind_memory(holder, mapped_at(address), work)
}

fn bind_memory(holder: Holder, memory: Option<Handle>, work: impl FnOnce() -> Status) -> Status {
    let (Some(memory), Some(table)) = (memory, table()) else { return work() };
    hold(memory);
    let status = work();
    if status.is_success() {
        ANY_BOUND.store(true, Ordering::Relaxed);
        let key = holder.key().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ memory;
        let bound = new_entry(Charge::NONE, [holder.key(), memory]);
        match table.insert(EntryKind::Bound, key, bound) {
            // Each holder holds it once.
            Ok(Some(_)) => {}
            // If the table is full, it stays charged.
            Ok(None) | Err(_) => return status,
        }
    }
    drop_hold(memory);
    status
}

/// Drops the holds of an object that has ended.
pub(crate) fn release_bindings(holder: Holder) {
    if ANY_BOUND.load(Ordering::Relaxed) {
        unbind_all(holder.key());
    }
}

fn unbind_all(holder: u64) {
    let Some(table) = table() else { return };
    loop {
        let mut found = None;
        table.each(|kind, key, entry| {
            if kind == EntryKind::Bound && entry.extra[HOLDER_WORD] == holder {
                found = Some((key, entry.extra[MEMORY_WORD]));
            }
        });
        let Some((key, memory)) = found else { return };
        if table.remove(EntryKind::Bound, key).is_some() {
            drop_hold(memory);
        }
    }
}

/// Maps memory to parts of arrays with `work`; a part is an array and a handle. The memory is held
/// until the array ends, even if parts are unmapped before.
pub(crate) fn map_to_arrays(
    parts: &(impl Iterator<Item = (u64, Handle)> + Clone),
    work: impl FnOnce() -> Status,
) -> Status {
    let memory = || parts.clone().filter_map(|(_, handle)| memory_of(handle));
    memory().for_each(hold);
    let status = work();
    if status.is_success() {
        for (array, handle) in parts.clone() {
            bind(Holder::Array(array), handle, || status);
        }
    }
    for memory in memory() {
        drop_hold(memory);
    }
    status
}
