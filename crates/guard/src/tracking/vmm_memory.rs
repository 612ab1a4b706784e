//! Physical memory (`cuMemCreate`), charged as long as anything holds it: handles, which must each
//! be released, mappings, and bindings. The driver counts the same way; a release after a map frees
//! nothing.
//!
//! A hold is dropped before the driver call that ends it, and taken before the call that needs it.
//! The entry itself stays until all calls that end a hold have returned ([`holds`]). So at any time
//! the charge covers what the driver has, and a hold taken meanwhile on another thread is not lost.
//!
//! Exported memory may outlive its handles and mappings here ([`exports`]).
//!
//! Memory of other processes is charged to them. It has an entry without a charge here, because
//! imported memory is released and mapped like any other. When the exporting process dies, its slot
//! is cleared, and no slot accounts for the memory that others imported. A descriptor does not
//! identify the owner, so an importer cannot know that its exporter died. Charging every importer
//! from the start would refuse processes that share weights. The agent sees this memory as far as
//! the driver counts it for a process of the share: as untracked bytes, which it writes to the
//! limits file.

use octavo_guard_abi::charge::{PHYSICAL_GRANULE, rounded};

use crate::cuda::{Device, Status};
use crate::process;
use crate::tracking::account::{self, Charge};
use crate::tracking::table::{Entry, EntryKind, Table};

mod bindings;
mod exports;
mod holds;
mod mapping;

pub(crate) use bindings::{
    Holder, MulticastPart, bind, bind_address, map_to_arrays, release_bindings, unbind,
};
pub(crate) use exports::export;
pub(crate) use mapping::{map, retain, unmap};

/// A handle of physical memory (`CUmemGenericAllocationHandle`).
pub(crate) type Handle = u64;

/// Words in the entry of physical memory: its [`holds`], and its flags [`MULTICAST`] and
/// [`EXPORTED`] below the number of its GPU plus one.
const HOLDS_WORD: usize = 0;
const FLAGS_WORD: usize = 1;
const MULTICAST: u64 = 1;
const EXPORTED: u64 = 2;
const DEVICE_SHIFT: u32 = 32;

/// Words in the entry of an additional handle: the memory, and the number of releases that the
/// handle needs.
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

/// The GPU of memory; `None` if it is unknown, as for imported memory.
fn device_of(memory: Handle) -> Option<Device> {
    table()?.change(EntryKind::Physical, memory, |entry| device_in(entry))?
}

fn device_in(entry: &Entry) -> Option<Device> {
    let number = (entry.extra[FLAGS_WORD] >> DEVICE_SHIFT).checked_sub(1)?;
    u32::try_from(number).ok().map(u32::cast_signed)
}

fn change(memory: Handle, change: impl FnOnce(&mut u64)) {
    let change = |entry: &mut Entry| change(&mut entry.extra[HOLDS_WORD]);
    table().and_then(|table| table.change(EntryKind::Physical, memory, change));
}

/// Adds a hold.
fn hold(memory: Handle) {
    change(memory, holds::take);
}

/// Drops a hold that the driver does not have, or has no more.
fn drop_hold(memory: Handle) {
    change(memory, holds::give_up);
    remove_if_unheld(memory, &mut 0);
}

/// Drops a hold before the call that ends it; [`end_release`] follows the call. Returns the GPU on which the call is to be
/// [measured](exports::measured), if it is.
fn begin_release(memory: Handle) -> Option<Device> {
    table()?.change(EntryKind::Physical, memory, |entry| {
        holds::begin_call(&mut entry.extra[HOLDS_WORD]);
        exports::device_to_measure(entry)
    })?
}

/// Ends what [`begin_release`] began, after the call, which has freed so many bytes as far as that was measured.
fn end_release(memory: Handle, status: Status, freed: &mut u64) {
    change(memory, |word| holds::end_call(word, status.is_success()));
    remove_if_unheld(memory, freed);
}

/// Removes the entry of memory without holds and releases its charge. Exported memory is let go if it was freed.
fn remove_if_unheld(memory: Handle, freed: &mut u64) {
    let is_unused = |entry: &Entry| holds::is_unused(entry.extra[HOLDS_WORD]);
    let Some(entry) =
        table().and_then(|table| table.remove_if(EntryKind::Physical, memory, is_unused))
    else {
        return;
    };
    let is_exported = entry.extra[FLAGS_WORD] & EXPORTED != 0;
    if !is_exported || exports::is_among(freed, entry.charge.bytes()) {
        account::release(entry.charge);
    }
    // Other processes may still have an exported object, which holds what was bound to it.
    if !is_exported && entry.extra[FLAGS_WORD] & MULTICAST != 0 {
        bindings::unbind_all(memory);
    }
}

/// Creates memory with `make`, which returns its handle. `device` is `None` for host memory.
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
    let flags = (u64::from(device.cast_unsigned()) + 1) << DEVICE_SHIFT;
    track(&process.table, handle, charge, flags).inspect_err(|_| {
        undo(handle);
        account::release(charge);
    })
}

/// Creates a multicast object, which has no memory itself.
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
    // The handle may have been an alias before.
    table.remove(EntryKind::Alias, handle);
    // The old entry is about to be removed by the thread that ended it. If it was exported, others may have that memory still.
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
    let (status, mut freed) = exports::measured(begin_release(memory), work);
    if status.is_success()
        && memory != handle
        && let Some(table) = table()
    {
        table.change(EntryKind::Alias, handle, |entry| {
            entry.extra[RELEASES_WORD] = entry.extra[RELEASES_WORD].saturating_sub(1);
        });
        table.remove_if(EntryKind::Alias, handle, |entry| entry.extra[RELEASES_WORD] == 0);
    }
    end_release(memory, status, &mut freed);
    status
}

/// Records an additional handle of memory, which needs one more release.
fn add_alias(handle: Handle, memory: Handle) {
    if handle == memory {
        return;
    }
    let Some(table) = table() else { return };
    let known = table.change(EntryKind::Alias, handle, |entry| {
        entry.extra = [memory, entry.extra[RELEASES_WORD] + 1];
    });
    if known.is_none() {
        // If the table is full, the memory stays charged, so the limit still holds.
        let _ = table.insert(EntryKind::Alias, handle, new_entry(Charge::NONE, [memory, 1]));
    }
}

/// Imports memory with `work`, without a charge: the exporting process is charged. If that is this
/// process, the memory gets one more hold.
pub(crate) fn import(work: impl FnOnce() -> Result<Handle, Status>) -> Result<(), Status> {
    let table = &process::get()?.table;
    let handle = work()?;
    if let Some(memory) = memory_of(handle) {
        hold(memory);
        add_alias(handle, memory);
    } else {
        // If the table is full, no charge is lost.
        let _ = track(table, handle, Charge::NONE, 0);
    }
    Ok(())
}
