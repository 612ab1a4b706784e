//! Mappings of physical memory to addresses.

use core::sync::atomic::{AtomicU64, Ordering};

use octavo_guard_abi::charge::PHYSICAL_GRANULE;

use super::exports::{self, measured};
use super::{
    Handle, add_alias, begin_release, drop_hold, end_release, hold, memory_of, new_entry, table,
};
use crate::cuda::{Pointer, Status};
use crate::tracking::account::Charge;
use crate::tracking::table::{Entry, EntryKind};

/// Words in the entry of a mapping. First its size, below the ticket of the call that is about to
/// unmap it, if any. Then its memory; 0 if none is charged.
const SIZE_WORD: usize = 0;
const MEMORY_WORD: usize = 1;

/// Where tickets begin: above the size of any mapping.
const TICKET_UNIT: u64 = 1 << 48;

/// Numbers unmap calls, so that each removes only the entries that it marked itself. Meanwhile
/// another mapping may start at the same address, and a later call may be about to unmap that one.
static LAST_TICKET: AtomicU64 = AtomicU64::new(0);

/// A ticket in its position, never 0.
fn next_ticket() -> u64 {
    let number = LAST_TICKET.fetch_add(1, Ordering::Relaxed) % (u64::MAX / TICKET_UNIT);
    (number + 1) * TICKET_UNIT
}

/// The ticket that marks a mapping, in its position.
fn mark(entry: &Entry) -> u64 {
    entry.extra[SIZE_WORD] & !(TICKET_UNIT - 1)
}

/// Size of a mapping.
fn bytes_of(entry: &Entry) -> u64 {
    entry.extra[SIZE_WORD] % TICKET_UNIT
}

/// Maps memory with `work`.
pub(crate) fn map(
    start: Pointer,
    bytes: usize,
    handle: Handle,
    work: impl FnOnce() -> Status,
    undo: impl FnOnce() -> Status,
) -> Status {
    let memory = memory_of(handle).unwrap_or(0);
    hold(memory);
    let mut status = work();
    if status.is_success() {
        let mapping = new_entry(Charge::NONE, [bytes as u64, memory]);
        match table().map(|table| table.insert(EntryKind::Mapping, start, mapping)) {
            Some(Ok(None)) => return status,
            Some(Ok(Some(old))) => {
                // Another thread has unmapped it and not yet removed its entry, and will not find
                // it any more.
                if mark(&old) == 0 {
                    drop_hold(old.extra[MEMORY_WORD]);
                } else {
                    end_release(old.extra[MEMORY_WORD], Status::SUCCESS, &mut 0);
                }
                return status;
            }
            _ => {
                undo();
                status = Status::OUT_OF_MEMORY;
            }
        }
    }
    drop_hold(memory);
    status
}

/// Unmaps all mappings of an address range with `work`.
pub(crate) fn unmap(start: Pointer, bytes: usize, work: impl FnOnce() -> Status) -> Status {
    let Some(table) = table() else { return Status::NO_DEVICE };
    let ticket = next_ticket();
    // What is freed beside exported memory may not be taken for it, nor what is freed on another GPU.
    let (mut device, mut is_mixed) = (None, false);
    for_each_mapping(start, bytes, |at| {
        let (bytes, memory) = table.change(EntryKind::Mapping, at, |entry| {
            let is_first = mark(entry) == 0;
            if is_first {
                entry.extra[SIZE_WORD] |= ticket;
            }
            (bytes_of(entry), is_first.then_some(entry.extra[MEMORY_WORD]))
        })?;
        if let Some(memory) = memory {
            let own = begin_release(memory);
            is_mixed |= match own {
                Some(own) => device.is_some_and(|device| own != device),
                None => !exports::is_exported(memory),
            };
            device = own.or(device);
        }
        Some(bytes)
    });
    let (status, mut freed) = measured(device.filter(|_| !is_mixed), work);
    for_each_mapping(start, bytes, |at| {
        let is_ours = |entry: &Entry| mark(entry) == ticket;
        let mapping = if status.is_success() {
            table.remove_if(EntryKind::Mapping, at, is_ours)?
        } else {
            table
                .change(EntryKind::Mapping, at, |entry| {
                    let before = *entry;
                    if is_ours(entry) {
                        entry.extra[SIZE_WORD] = bytes_of(entry);
                    }
                    before
                })
                .filter(is_ours)?
        };
        end_release(mapping.extra[MEMORY_WORD], status, &mut freed);
        Some(bytes_of(&mapping))
    });
    status
}

/// Visits mapping by mapping; `at` returns the size of the mapping at an address.
fn for_each_mapping(start: Pointer, bytes: usize, mut at: impl FnMut(Pointer) -> Option<u64>) {
    let end = start.saturating_add(bytes as u64);
    let mut place = start;
    while place < end {
        let step = at(place).filter(|step| *step > 0).unwrap_or(PHYSICAL_GRANULE);
        place = place.saturating_add(step);
    }
}

/// The memory mapped at an address.
pub(super) fn mapped_at(address: Pointer) -> Option<Handle> {
    let table = table()?;
    let exact = table.change(EntryKind::Mapping, address, |entry| entry.extra[MEMORY_WORD]);
    let mut found = exact;
    if exact.is_none() {
        table.each(|kind, start, entry| {
            let offset = address.checked_sub(start);
            let is_within = offset.is_some_and(|offset| offset < bytes_of(entry));
            if kind == EntryKind::Mapping && is_within {
                found = Some(entry.extra[MEMORY_WORD]);
            }
        });
    }
    found.filter(|memory| *memory != 0)
}

/// Gets a handle of the memory mapped at an address with `work`.
pub(crate) fn retain(
    address: Pointer,
    work: impl FnOnce() -> Result<Handle, Status>,
) -> Result<(), Status> {
    let memory = mapped_at(address);
    memory.into_iter().for_each(hold);
    match work() {
        Ok(handle) => {
            match memory {
                Some(memory) => add_alias(handle, memory),
                // The mapping is unknown, but the memory may be known.
                None => memory_of(handle).into_iter().for_each(hold),
            }
            Ok(())
        }
        Err(status) => {
            if let Some(memory) = memory {
                drop_hold(memory);
            }
            Err(status)
        }
    }
}
