//! Memory without addresses (`cuMemCreate`), counted for as long as anything holds it: handles, of which each
//! has to be released, mappings, and what it is bindings to. The driver counts the same; a release after a map
//! gives nothing back.
//!
//! A hold is given up before the driver is asked and taken before it is given. The new_entry itself stays until the
//! driver is done with all calls that give up a hold ([`holds`]), so that at any moment at least as much is counted
//! as the driver has, and a hold which another thread takes meanwhile is not lost.
//!
//! Memory that was exported stays counted to the end of the process: whoever has the exported thing, in whatever
//! process and under whatever descriptor, has the bytes, and nobody tells when the last of them is release_bindings.
//!
//! Memory of other processes is counted by them. It is entered here with nothing to count, since what was
//! imported is released and mapped like the rest. When the process that exported it dies, its slot is emptied, and
//! what others have imported is counted by nobody's slot: a descriptor does not tell whose the memory is, so an
//! importer cannot know that its exporter is the one that died, and to count it for every importer from the
//! beginning would refuse processes that share weights what fits. The agent sees it as far as the driver counts it
//! for a process of the share: as bytes that no slot says, which it writes beside the limit.

use octavo_guard_abi::charge::{PHYSICAL_GRANULE, rounded};

use crate::cuda::{Device, Status};
use crate::process;
use crate::tracking::account::{self, Charge};
use crate::tracking::table::{Entry, EntryKind, Table};

mod bindings;
mod holds;
mod mapping;

pub(crate) use bindings::{Holder, bind, bind_address, map_to_arrays, release_bindings};
pub(crate) use mapping::{map, retain, unmap};

/// A handle of memory (`CUmemGenericAllocationHandle`).
pub(crate) type Handle = u64;

/// Places in the new_entry of memory: its [`holds`], and which of [`MULTICAST`] and [`EXPORTED`] it is.
const HOLDS_WORD: usize = 0;
const FLAGS_WORD: usize = 1;
const MULTICAST: u64 = 1;
const EXPORTED: u64 = 2;

/// Places in the new_entry of another handle of memory: the memory, and how often the handle is to be released.
const TARGET_WORD: usize = 0;
const RELEASES_WORD: usize = 1;

fn table() -> Option<&'static Table> {
    Some(&process::get().ok()?.table)
}

fn new_entry(charge: Charge, extra: [u64; 2]) -> Entry {
    Entry { charge, context: 0, extra }
}

/// The memory of a handle.
fn memory_of(handle: Handle) -> Option<Handle> {
    let table = table()?;
    if table.change(EntryKind::Physical, handle, |_| ()).is_some() {
        return Some(handle);
    }
    table.change(EntryKind::Alias, handle, |entry| entry.extra[TARGET_WORD])
}

fn change(memory: Handle, change: impl FnOnce(&mut u64)) {
    let change = |entry: &mut Entry| change(&mut entry.extra[HOLDS_WORD]);
    table().and_then(|table| table.change(EntryKind::Physical, memory, change));
}

/// Holds memory once more.
fn hold(memory: Handle) {
    change(memory, holds::take);
}

/// Gives up a hold that the driver does not have, or not any more.
fn drop_hold(memory: Handle) {
    change(memory, holds::give_up);
    remove_if_unheld(memory);
}

/// Gives up a hold before a call that gives it up; [`end_release`] comes after it.
fn begin_release(memory: Handle) {
    change(memory, holds::begin_call);
}

/// The call is done.
fn end_release(memory: Handle, status: Status) {
    change(memory, |word| holds::end_call(word, status.is_success()));
    remove_if_unheld(memory);
}

/// Takes memory out that nothing holds any more, and gives back what it counted for.
fn remove_if_unheld(memory: Handle) {
    let is_unused = |entry: &Entry| holds::is_unused(entry.extra[HOLDS_WORD]);
    let Some(entry) =
        table().and_then(|table| table.remove_if(EntryKind::Physical, memory, is_unused))
    else {
        return;
    };
    account::release(entry.charge);
    if entry.extra[FLAGS_WORD] & MULTICAST != 0 {
        bindings::release_bindings(Holder::Multicast(memory));
    }
}

/// Makes memory by `make`, which gives its handle; of a GPU, or none for the host's.
pub(crate) fn create(
    bytes: usize,
    device: Option<Device>,
    make: impl FnOnce() -> Result<Handle, Status>,
    undo: impl FnOnce(Handle) -> Status,
) -> Result<(), Status> {
    let process = process::get()?;
    let Some(device) = device else { return make().map(drop) };
    let charge = account::charge(device, rounded(bytes as u64, PHYSICAL_GRANULE))?;
    let handle = make().inspect_err(|_| account::release(charge))?;
    track(&process.table, handle, charge, 0).inspect_err(|_| {
        undo(handle);
        account::release(charge);
    })
}

/// Makes an object that memory is bindings to. It has none itself.
pub(crate) fn create_multicast(
    make: impl FnOnce() -> Result<Handle, Status>,
    undo: impl FnOnce(Handle) -> Status,
) -> Result<(), Status> {
    let process = process::get()?;
    let handle = make()?;
    track(&process.table, handle, Charge::NONE, MULTICAST).inspect_err(|_| {
        undo(handle);
    })
}

fn track(table: &Table, handle: Handle, charge: Charge, flags: u64) -> Result<(), Status> {
    // A handle of something else once.
    table.remove(EntryKind::Alias, handle);
    // Gone, and about to be taken out by the thread that ended it; or exported, and others may have it while its
    // handle is another's.
    let old = table.change(EntryKind::Physical, handle, |known| {
        let extra = [holds::once_keeping_calls(known.extra[HOLDS_WORD]), flags];
        core::mem::replace(known, new_entry(charge, extra))
    });
    match old {
        Some(old) if old.extra[FLAGS_WORD] & EXPORTED == 0 => account::release(old.charge),
        Some(_) => {}
        None => {
            let made = new_entry(charge, [holds::ONCE, flags]);
            table.insert(EntryKind::Physical, handle, made).map_err(|_| Status::OUT_OF_MEMORY)?;
        }
    }
    Ok(())
}

/// Releases a handle once.
pub(crate) fn release(handle: Handle, work: impl FnOnce() -> Status) -> Status {
    let Some(memory) = memory_of(handle) else { return work() };
    begin_release(memory);
    let status = work();
    if status.is_success()
        && memory != handle
        && let Some(table) = table()
    {
        table.change(EntryKind::Alias, handle, |entry| {
            entry.extra[RELEASES_WORD] = entry.extra[RELEASES_WORD].saturating_sub(1);
        });
        table.remove_if(EntryKind::Alias, handle, |entry| entry.extra[RELEASES_WORD] == 0);
    }
    end_release(memory, status);
    status
}

/// Remembers that a handle is one of memory, too, and is to be released once more.
fn add_alias(handle: Handle, memory: Handle) {
    if handle == memory {
        return;
    }
    let Some(table) = table() else { return };
    let known = table.change(EntryKind::Alias, handle, |entry| {
        entry.extra = [memory, entry.extra[RELEASES_WORD] + 1];
    });
    if known.is_none() {
        // Full: the memory stays counted, which is on the side of the wall.
        let _ = table.insert(EntryKind::Alias, handle, new_entry(Charge::NONE, [memory, 1]));
    }
}

/// Exports memory by `work`. Whatever is exported once is held to the end of the process.
pub(crate) fn export(handle: Handle, work: impl FnOnce() -> Status) -> Status {
    let Some(memory) = memory_of(handle) else { return work() };
    hold(memory);
    let status = work();
    let is_first = status.is_success()
        && table()
            .and_then(|table| {
                table.change(EntryKind::Physical, memory, |entry| {
                    let is_first = entry.extra[FLAGS_WORD] & EXPORTED == 0;
                    entry.extra[FLAGS_WORD] |= EXPORTED;
                    is_first
                })
            })
            .unwrap_or(false);
    if !is_first {
        drop_hold(memory);
    }
    status
}

/// Imports memory by `work`, with nothing to count: it is counted by the process that exported it, and if that
/// is this one it is held there.
pub(crate) fn import(work: impl FnOnce() -> Result<Handle, Status>) -> Result<(), Status> {
    let table = &process::get()?.table;
    let handle = work()?;
    if memory_of(handle).is_some() {
        hold(handle);
    } else {
        // Full: nothing of it is counted anyway.
        let _ = track(table, handle, Charge::NONE, 0);
    }
    Ok(())
}
