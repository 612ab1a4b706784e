//! Memory without addresses (`cuMemCreate`), counted for as long as anything holds it: handles, of which each
//! has to be released, mappings, and what it is bound to. The driver counts the same; a release after a map
//! gives nothing back.
//!
//! A hold is given up before the driver is asked and taken before it is given. The entry itself stays until the
//! driver is done with all calls that give up a hold ([`holds`]), so that at any moment at least as much is counted
//! as the driver has, and a hold which another thread takes meanwhile is not lost.
//!
//! Memory that was exported stays counted to the end of the process: whoever has the exported thing, in whatever
//! process and under whatever descriptor, has the bytes, and nobody tells when the last of them is gone.
//!
//! Memory of other processes is counted by them. It is entered here with nothing to count, since what was
//! imported is released and mapped like the rest. When the process that exported it dies, its slot is emptied, and
//! what others have imported is counted by nobody's slot: a descriptor does not tell whose the memory is, so an
//! importer cannot know that its exporter is the one that died, and to count it for every importer from the
//! beginning would refuse processes that share weights what fits. The agent sees it as far as the driver counts it
//! for a process of the share: as bytes that no slot says, which it writes beside the limit.

use octavo_guard_abi::charge::{PHYSICAL_GRANULE, rounded};

use crate::account::{self, Charge};
use crate::cuda::{Device, Status};
use crate::process;
use crate::table::{Entry, Kind, Table};

mod bound;
mod holds;
mod mapping;

pub(crate) use bound::{Holder, bind, bind_address, gone, mapped_to_arrays};
pub(crate) use mapping::{map, retain, unmap};

/// A handle of memory (`CUmemGenericAllocationHandle`).
pub(crate) type Handle = u64;

/// Places in the entry of memory: its [`holds`], and which of [`MULTICAST`] and [`EXPORTED`] it is.
const HOLDS: usize = 0;
const FLAGS: usize = 1;
const MULTICAST: u64 = 1;
const EXPORTED: u64 = 2;

/// Places in the entry of another handle of memory: the memory, and how often the handle is to be released.
const TARGET: usize = 0;
const RELEASES: usize = 1;

fn table() -> Option<&'static Table> {
    Some(&process::get().ok()?.table)
}

fn entry(charge: Charge, extra: [u64; 2]) -> Entry {
    Entry { charge, context: 0, extra }
}

/// The memory of a handle.
fn memory_of(handle: Handle) -> Option<Handle> {
    let table = table()?;
    if table.change(Kind::Physical, handle, |_| ()).is_some() {
        return Some(handle);
    }
    table.change(Kind::Alias, handle, |entry| entry.extra[TARGET])
}

fn change(memory: Handle, change: impl FnOnce(&mut u64)) {
    let change = |entry: &mut Entry| change(&mut entry.extra[HOLDS]);
    table().and_then(|table| table.change(Kind::Physical, memory, change));
}

/// Holds memory once more.
fn hold(memory: Handle) {
    change(memory, holds::take);
}

/// Gives up a hold that the driver does not have, or not any more.
fn let_go(memory: Handle) {
    change(memory, holds::give_up);
    finish(memory);
}

/// Gives up a hold before a call that gives it up; [`left`] comes after it.
fn leave(memory: Handle) {
    change(memory, holds::leave);
}

/// The call is done.
fn left(memory: Handle, status: Status) {
    change(memory, |word| holds::left(word, status.is_success()));
    finish(memory);
}

/// Takes memory out that nothing holds any more, and gives back what it counted for.
fn finish(memory: Handle) {
    let gone = |entry: &Entry| holds::is_gone(entry.extra[HOLDS]);
    let Some(entry) = table().and_then(|table| table.remove_if(Kind::Physical, memory, gone))
    else {
        return;
    };
    account::release(entry.charge);
    if entry.extra[FLAGS] & MULTICAST != 0 {
        bound::gone(Holder::Multicast(memory));
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
    enter(&process.table, handle, charge, 0).inspect_err(|_| {
        undo(handle);
        account::release(charge);
    })
}

/// Makes an object that memory is bound to. It has none itself.
pub(crate) fn create_multicast(
    make: impl FnOnce() -> Result<Handle, Status>,
    undo: impl FnOnce(Handle) -> Status,
) -> Result<(), Status> {
    let process = process::get()?;
    let handle = make()?;
    enter(&process.table, handle, Charge::NONE, MULTICAST).inspect_err(|_| {
        undo(handle);
    })
}

fn enter(table: &Table, handle: Handle, charge: Charge, flags: u64) -> Result<(), Status> {
    // A handle of something else once.
    table.remove(Kind::Alias, handle);
    // Gone, and about to be taken out by the thread that ended it; or exported, and others may have it while its
    // handle is another's.
    let old = table.change(Kind::Physical, handle, |known| {
        let extra = [holds::once_after(known.extra[HOLDS]), flags];
        core::mem::replace(known, entry(charge, extra))
    });
    match old {
        Some(old) if old.extra[FLAGS] & EXPORTED == 0 => account::release(old.charge),
        Some(_) => {}
        None => {
            let made = entry(charge, [holds::ONCE, flags]);
            table.insert(Kind::Physical, handle, made).map_err(|_| Status::OUT_OF_MEMORY)?;
        }
    }
    Ok(())
}

/// Releases a handle once.
pub(crate) fn release(handle: Handle, work: impl FnOnce() -> Status) -> Status {
    let Some(memory) = memory_of(handle) else { return work() };
    leave(memory);
    let status = work();
    if status.is_success()
        && memory != handle
        && let Some(table) = table()
    {
        table.change(Kind::Alias, handle, |entry| {
            entry.extra[RELEASES] = entry.extra[RELEASES].saturating_sub(1);
        });
        table.remove_if(Kind::Alias, handle, |entry| entry.extra[RELEASES] == 0);
    }
    left(memory, status);
    status
}

/// Remembers that a handle is one of memory, too, and is to be released once more.
fn also(handle: Handle, memory: Handle) {
    if handle == memory {
        return;
    }
    let Some(table) = table() else { return };
    let known = table.change(Kind::Alias, handle, |entry| {
        entry.extra = [memory, entry.extra[RELEASES] + 1];
    });
    if known.is_none() {
        // Full: the memory stays counted, which is on the side of the wall.
        let _ = table.insert(Kind::Alias, handle, entry(Charge::NONE, [memory, 1]));
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
                table.change(Kind::Physical, memory, |entry| {
                    let is_first = entry.extra[FLAGS] & EXPORTED == 0;
                    entry.extra[FLAGS] |= EXPORTED;
                    is_first
                })
            })
            .unwrap_or(false);
    if !is_first {
        let_go(memory);
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
        let _ = enter(table, handle, Charge::NONE, 0);
    }
    Ok(())
}
