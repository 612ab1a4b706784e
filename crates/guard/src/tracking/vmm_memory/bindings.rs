//! Bindings: memory held by something other than an address range.

use core::sync::atomic::{AtomicBool, Ordering};

use super::exports::measured;
use super::mapping::mapped_at;
use super::{
    Handle, begin_release, device_of, drop_hold, end_release, hold, memory_of, new_entry, table,
};
use crate::cuda::{Device, Pointer, Status};
use crate::tracking::account::Charge;
use crate::tracking::table::EntryKind;

/// Words in the entry of a binding: the object that holds the memory, and the memory.
const OBJECT_WORD: usize = 0;
const MEMORY_WORD: usize = 1;

/// Whether any memory was ever bound.
static ANY_BOUND: AtomicBool = AtomicBool::new(false);

/// What memory is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A part of a multicast object.
    Multicast(MulticastPart),
    /// A sparse array or mipmapped array that memory was mapped to.
    Array(u64),
}

/// The part of a multicast object that memory of one GPU is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MulticastPart {
    /// A handle of the object.
    pub(crate) object: Handle,
    /// The GPU; `None` if it is that of the memory.
    pub(crate) device: Option<Device>,
    /// The first byte.
    pub(crate) offset: usize,
    /// The number of bytes.
    pub(crate) bytes: usize,
}

impl Holder {
    /// The object, as entries name it.
    fn object(self) -> u64 {
        match self {
            Self::Multicast(part) => memory_of(part.object).unwrap_or(part.object),
            // No address has the highest bit set.
            Self::Array(handle) => handle | 1 << 63,
        }
    }

    /// Key of the binding of memory. A part of a multicast object has one memory, and an array holds each memory once.
    fn key(self, memory: Option<Handle>) -> u64 {
        let words = match self {
            Self::Multicast(part) => {
                let device = part.device.or_else(|| memory.and_then(device_of));
                let device = device.map_or(u64::MAX, |device| u64::from(device.cast_unsigned()));
                [device, part.offset as u64, part.bytes as u64]
            }
            Self::Array(_) => [memory.unwrap_or(0), 0, 0],
        };
        words.into_iter().fold(self.object(), |key, word| {
            let mixed = (key ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 32
        })
    }
}

/// Binds memory with `work`. It is held until it is unbound or its holder ends.
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
    if !status.is_success() {
        drop_hold(memory);
        return status;
    }
    ANY_BOUND.store(true, Ordering::Relaxed);
    let bound = new_entry(Charge::NONE, [holder.object(), memory]);
    // If the table is full, it stays charged.
    if let Ok(Some(old)) = table.insert(EntryKind::Bound, holder.key(Some(memory)), bound) {
        drop_hold(old.extra[MEMORY_WORD]);
    }
    status
}

/// Unbinds the memory of a part of a multicast object with `work`. By CUDA's documentation the part is one that memory was bound to,
/// neither less nor more.
pub(crate) fn unbind(part: MulticastPart, work: impl FnOnce() -> Status) -> Status {
    let key = Holder::Multicast(part).key(None);
    let bound = table().and_then(|table| Some((table, table.remove(EntryKind::Bound, key)?)));
    let Some((table, entry)) = bound else { return work() };
    let memory = entry.extra[MEMORY_WORD];
    let (status, mut freed) = measured(begin_release(memory), work);
    if !status.is_success() {
        // If the table is full, it stays charged.
        let _ = table.insert(EntryKind::Bound, key, entry);
    }
    end_release(memory, status, &mut freed);
    status
}

/// Drops the holds of an object that has ended.
pub(crate) fn release_bindings(holder: Holder) {
    unbind_all(holder.object());
}

/// As above, for an object as entries name it.
pub(super) fn unbind_all(object: u64) {
    let Some(table) = table() else { return };
    while ANY_BOUND.load(Ordering::Relaxed) {
        let mut found = None;
        table.each(|kind, key, entry| {
            if kind == EntryKind::Bound && entry.extra[OBJECT_WORD] == object {
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
