//! Memory at addresses.

use octavo_guard_abi::charge::PHYSICAL_GRANULE;

use super::{Handle, also, entry, finish, hold, let_go, memory_of, table};
use crate::account::Charge;
use crate::cuda::{Pointer, Status};
use crate::table::{Entry, Kind};

/// Places in the entry of a mapping: its bytes, with [`LEAVING`] or not, and whose memory it is; 0: nobody's
/// that counts.
const SIZE: usize = 0;
const MEMORY: usize = 1;

/// The mapping is about to end, and holds nothing any more.
const LEAVING: u64 = 1 << 63;

/// Maps memory by `work`.
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
        let mapping = entry(Charge::NONE, [bytes as u64, memory]);
        match table().map(|table| table.insert(Kind::Mapping, start, mapping)) {
            Some(Ok(None)) => return status,
            Some(Ok(Some(old))) => {
                // One that another thread is about to take out has let go already.
                if old.extra[SIZE] & LEAVING == 0 {
                    let_go(old.extra[MEMORY]);
                }
                finish(old.extra[MEMORY]);
                return status;
            }
            _ => {
                undo();
                status = Status::OUT_OF_MEMORY;
            }
        }
    }
    let_go(memory);
    finish(memory);
    status
}

/// Ends all mappings of an area by `work`.
pub(crate) fn unmap(start: Pointer, bytes: usize, work: impl FnOnce() -> Status) -> Status {
    let Some(table) = table() else { return Status::NO_DEVICE };
    let leave = |at| {
        table.change(Kind::Mapping, at, |entry| {
            let is_first = entry.extra[SIZE] & LEAVING == 0;
            entry.extra[SIZE] |= LEAVING;
            (entry.extra[SIZE] & !LEAVING, is_first.then_some(entry.extra[MEMORY]))
        })
    };
    walk(start, bytes, |at| {
        let (bytes, memory) = leave(at)?;
        memory.into_iter().for_each(let_go);
        Some(bytes)
    });
    let status = work();
    walk(start, bytes, |at| {
        if status.is_success() {
            let is_leaving = |entry: &Entry| entry.extra[SIZE] & LEAVING != 0;
            let mapping = table.remove_if(Kind::Mapping, at, is_leaving)?;
            finish(mapping.extra[MEMORY]);
            return Some(mapping.extra[SIZE] & !LEAVING);
        }
        let (bytes, memory) = table.change(Kind::Mapping, at, |entry| {
            let is_leaving = entry.extra[SIZE] & LEAVING != 0;
            entry.extra[SIZE] &= !LEAVING;
            (entry.extra[SIZE], is_leaving.then_some(entry.extra[MEMORY]))
        })?;
        memory.into_iter().for_each(hold);
        Some(bytes)
    });
    status
}

/// Goes from mapping to mapping; `at` gives the bytes of the one that begins there.
fn walk(start: Pointer, bytes: usize, mut at: impl FnMut(Pointer) -> Option<u64>) {
    let end = start.saturating_add(bytes as u64);
    let mut place = start;
    while place < end {
        let step = at(place).filter(|step| *step > 0).unwrap_or(PHYSICAL_GRANULE);
        place = place.saturating_add(step);
    }
}

/// The memory that is mapped at an address.
pub(super) fn mapped_at(address: Pointer) -> Option<Handle> {
    let table = table()?;
    let exact = table.change(Kind::Mapping, address, |entry| entry.extra[MEMORY]);
    let mut found = exact;
    if exact.is_none() {
        table.each(|kind, start, entry| {
            let bytes = entry.extra[SIZE] & !LEAVING;
            let is_within = address.checked_sub(start).is_some_and(|offset| offset < bytes);
            if kind == Kind::Mapping && is_within {
                found = Some(entry.extra[MEMORY]);
            }
        });
    }
    found.filter(|memory| *memory != 0)
}

/// Gets a handle of what is mapped at an address by `work`.
pub(crate) fn retain(
    address: Pointer,
    work: impl FnOnce() -> Result<Handle, Status>,
) -> Result<(), Status> {
    let memory = mapped_at(address);
    memory.into_iter().for_each(hold);
    match work() {
        Ok(handle) => {
            match memory {
                Some(memory) => also(handle, memory),
                // Mapped in a way that is not known, but maybe of memory that is.
                None => memory_of(handle).into_iter().for_each(hold),
            }
            Ok(())
        }
        Err(status) => {
            if let Some(memory) = memory {
                let_go(memory);
                finish(memory);
            }
            Err(status)
        }
    }
}
