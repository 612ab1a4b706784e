//! One movable allocation: made and freed, moved to the host and back.
//!
//! Its entry in the table says where it is. A thread changes that under the entry's lock before it calls the driver, so an
//! allocation is moved by one thread or freed by one.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use octavo_guard_abi::lease_page::{LeasePage, MOVE_NO_MEMORY};

use super::calls::{self, Calls};
use super::shown::show_now;
use super::span::{NotCleared, Span, within};
use crate::cuda::{Device, Opaque, Pointer, Status};
use crate::devices;
use crate::driver::call;
use crate::platform::sys::memory;
use crate::process::{self, Process};
use crate::shares::Share;
use crate::tracking::account;
use crate::tracking::allocation::context;
use crate::tracking::captures;
use crate::tracking::slabs;
use crate::tracking::table::{Entry, EntryKind};

/// Words in an entry: the handle of its physical memory, or its address on the host; and what the program asked for, in bytes, below
/// whether its copies are synchronous and its [`State`].
const BACKING_WORD: usize = 0;
const SIZE_WORD: usize = 1;
const SYNC: u64 = 1 << 55;
const STATE_SHIFT: u32 = 56;

/// Bytes of one copy. The agent takes a guard for stalled that shows no progress for half a minute.
const PIECE_BYTES: usize = 256 << 20;

/// Where an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// On the GPU.
    Resident = 0,
    /// On its way.
    Moving = 1,
    /// On the host.
    Out = 2,
}

fn state_of(entry: &Entry) -> State {
    match entry.extra[SIZE_WORD] >> STATE_SHIFT {
        0 => State::Resident,
        1 => State::Moving,
        _ => State::Out,
    }
}

fn set_state(entry: &mut Entry, state: State) {
    let size = entry.extra[SIZE_WORD] & ((1 << STATE_SHIFT) - 1);
    entry.extra[SIZE_WORD] = size | (state as u64) << STATE_SHIFT;
}

/// What the program knows of an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// Its first address.
    pub(crate) start: Pointer,
    /// What was asked for, in bytes.
    pub(crate) bytes: u64,
    /// The context in which it was allocated.
    pub(crate) context: Opaque,
}

/// Copies so many bytes in pieces, each by its offset and its size, and shows the agent each that is done.
fn in_pieces(bytes: usize, page: &LeasePage, copy: impl Fn(usize, usize) -> Status) -> Status {
    for offset in (0..bytes).step_by(PIECE_BYTES) {
        let status = copy(offset, PIECE_BYTES.min(bytes - offset));
        if !status.is_success() {
            return status;
        }
        page.move_progress.fetch_add(1, Ordering::Relaxed);
    }
    Status::SUCCESS
}

/// Waits for all work of a context.
fn synchronize(context: Opaque) -> Result<(), Status> {
    within(context, call::cuCtxSynchronize)
}

/// Allocates plain memory that can be moved; `None` if it has to be plain memory of the driver's.
pub(crate) fn allocate(bytes: u64) -> Option<Result<Pointer, Status>> {
    if !calls::are_counted() || bytes <= slabs::MAX_PIECE_BYTES {
        return None;
    }
    let process = process::get().ok()?;
    let device = devices::current().ok()?;
    if !process.devices.is_one() {
        return None;
    }
    let charge = match account::charge(device, slabs::large_bytes(bytes)) {
        Ok(charge) => charge,
        Err(status) => return Some(Err(status)),
    };
    let made = make(process, device, bytes, charge);
    if made.is_none() {
        account::release(charge);
    }
    made.map(Ok)
}

fn make(
    process: &'static Process,
    device: Device,
    bytes: u64,
    charge: account::Charge,
) -> Option<Pointer> {
    let share = process.shares.get(charge.share_index()?).filter(|share| share.moves_pages)?;
    let context = process.owning_context(context(), device);
    if context == 0 {
        return None;
    }
    let _entered = calls::enter();
    let span = Span::reserve(charge.bytes())?;
    let Ok(handle) = span.fill() else {
        span.give_back();
        return None;
    };
    let entry = Entry { charge, context, extra: [handle, bytes] };
    if process.table.insert(EntryKind::Movable, span.address, entry).is_err() {
        let _ = span.clear(handle);
        span.give_back();
        return None;
    }
    share.movable_bytes.fetch_add(charge.bytes(), Ordering::Relaxed);
    show_now(share);
    Some(span.address)
}

/// The movable allocation that an address is in.
pub(crate) fn find(address: Pointer) -> Option<Range> {
    if !calls::are_counted() {
        return None;
    }
    let table = &process::get().ok()?.table;
    let range = |start, entry: &Entry| {
        let bytes = entry.extra[SIZE_WORD] & (SYNC - 1);
        Range { start, bytes, context: entry.context }
    };
    let exact = table.change(EntryKind::Movable, address, |entry| range(address, entry));
    if exact.is_some() {
        return exact;
    }
    let mut found = None;
    table.each(|kind, start, entry| {
        let offset = address.checked_sub(start);
        if kind == EntryKind::Movable && offset.is_some_and(|offset| offset < entry.charge.bytes())
        {
            found = Some(range(start, entry));
        }
    });
    found
}

/// Notes whether copies of the movable allocation that an address is in are synchronous, so that they are after a move. Returns whether
/// they were; `None` if there is none.
pub(crate) fn set_sync(address: Pointer, is_sync: bool) -> Option<bool> {
    let start = find(address)?.start;
    process::get().ok()?.table.change(EntryKind::Movable, start, |entry| {
        let before = entry.extra[SIZE_WORD];
        entry.extra[SIZE_WORD] = if is_sync { before | SYNC } else { before & !SYNC };
        before & SYNC != 0
    })
}

/// Frees a movable allocation; `None` if there is none at the address. One on the host needs not come back for that.
pub(crate) fn free(address: Pointer) -> Option<Status> {
    if !calls::are_counted() {
        return None;
    }
    let process = process::get().ok()?;
    loop {
        match process.table.change(EntryKind::Movable, address, |entry| state_of(entry))? {
            State::Moving => Calls::pause(),
            State::Out => {
                if let Some(entry) = take(process, address, State::Out) {
                    discard(process, address, &entry);
                    return Some(Status::SUCCESS);
                }
            }
            State::Resident => {
                let _entered = calls::enter();
                if let Some(entry) = take(process, address, State::Resident) {
                    return Some(free_resident(process, address, entry));
                }
            }
        }
    }
}

/// Takes an entry out of the table, if it is in a state.
fn take(process: &Process, address: Pointer, state: State) -> Option<Entry> {
    process.table.remove_if(EntryKind::Movable, address, |entry| state_of(entry) == state)
}

/// Frees an allocation on the GPU. Unlike the driver's own plain memory, mappings end while work uses them: it is awaited.
fn free_resident(process: &Process, address: Pointer, entry: Entry) -> Status {
    let span = Span::of(address, &entry);
    // To wait for a context would invalidate all captures.
    let waited = if captures::are_any() {
        Err(Status::CAPTURE_UNSUPPORTED)
    } else {
        synchronize(entry.context)
    };
    let ended = match waited {
        // Nothing of a lost context is waited for.
        Err(status) if !status.is_lost() => Err(status),
        _ => match span.clear(entry.extra[BACKING_WORD]) {
            Err(NotCleared::Mapped(status)) => Err(status),
            Err(NotCleared::Lost(status)) => return status,
            Ok(()) => Ok(()),
        },
    };
    if let Err(status) = ended {
        // If the table is full, it stays charged until the process ends.
        let _ = process.table.insert(EntryKind::Movable, address, entry);
        return status;
    }
    span.give_back();
    if let Some(share) = share_of(process, &entry) {
        share.movable_bytes.fetch_sub(entry.charge.bytes(), Ordering::Relaxed);
        show_now(share);
    }
    account::release(entry.charge);
    Status::SUCCESS
}

/// Frees an allocation on the host.
fn discard(process: &Process, address: Pointer, entry: &Entry) {
    let span = Span::of(address, entry);
    unmap_host(entry.extra[BACKING_WORD], span.bytes);
    span.give_back();
    if let Some(share) = share_of(process, entry) {
        share.moved_bytes.fetch_sub(entry.charge.bytes(), Ordering::Relaxed);
    }
    account::release(entry.charge);
}

/// Frees what was allocated in a context that has ended. Its work has ended with it.
pub(crate) fn end_with(process: &Process, context: Opaque) {
    loop {
        let mut found = None;
        process.table.each(|kind, address, entry| {
            if kind == EntryKind::Movable && entry.context == context {
                found = Some(address);
            }
        });
        let Some(address) = found else { return };
        let is_still = |entry: &Entry| state_of(entry) != State::Moving;
        let Some(entry) = process.table.remove_if(EntryKind::Movable, address, is_still) else {
            Calls::pause();
            continue;
        };
        if state_of(&entry) == State::Out {
            discard(process, address, &entry);
            continue;
        }
        let span = Span::of(address, &entry);
        if span.clear(entry.extra[BACKING_WORD]).is_ok() {
            span.give_back();
            account::release(entry.charge);
        }
        if let Some(share) = share_of(process, &entry) {
            share.movable_bytes.fetch_sub(entry.charge.bytes(), Ordering::Relaxed);
        }
    }
}

fn share_of<'a>(process: &'a Process, entry: &Entry) -> Option<&'a Share> {
    process.shares.get(entry.charge.share_index()?)
}

/// Address of the next allocation of a share in a state: the lowest one above `after`, or the highest one below it. One on the GPU
/// whose context is ending is left out: it ends with it.
pub(super) fn next(
    process: &Process,
    share: &Share,
    state: State,
    after: Pointer,
    is_upwards: bool,
) -> Option<Pointer> {
    let mut next: Option<Pointer> = None;
    process.table.each(|kind, address, entry| {
        let is_ending = state == State::Resident && entry.context & 1 != 0;
        let is_meant = kind == EntryKind::Movable
            && state_of(entry) == state
            && !is_ending
            && share_of(process, entry).is_some_and(|own| core::ptr::eq(own, share));
        let is_after = if is_upwards { address > after } else { address < after };
        if is_meant && is_after {
            let closer = |next: Pointer| {
                if is_upwards { next.min(address) } else { next.max(address) }
            };
            next = Some(next.map_or(address, closer));
        }
    });
    next
}

/// Takes an allocation to move it, if it is in a state.
fn begin(process: &Process, address: Pointer, state: State) -> Option<Entry> {
    process.table.change(EntryKind::Movable, address, |entry| {
        let is_meant = state_of(entry) == state;
        if is_meant {
            set_state(entry, State::Moving);
        }
        is_meant.then_some(*entry)
    })?
}

/// Ends what [`begin`] began.
fn end(process: &Process, address: Pointer, state: State, place: u64) {
    process.table.change(EntryKind::Movable, address, |entry| {
        entry.extra[BACKING_WORD] = place;
        set_state(entry, state);
    });
}

/// Moves an allocation to the host. If it fails, the allocation is as before, but for physical memory that the driver keeps. The error
/// is one of the lease page.
pub(super) fn move_out(
    process: &Process,
    (share, page): (&Share, &LeasePage),
    address: Pointer,
) -> Result<(), u32> {
    let Some(entry) = begin(process, address, State::Resident) else { return Ok(()) };
    let (span, handle) = (Span::of(address, &entry), entry.extra[BACKING_WORD]);
    let moved = |host| {
        share.movable_bytes.fetch_sub(entry.charge.bytes(), Ordering::Relaxed);
        share.moved_bytes.fetch_add(entry.charge.bytes(), Ordering::Relaxed);
        end(process, address, State::Out, host);
    };
    let Some(host) = map_host(span.bytes) else {
        end(process, address, State::Resident, handle);
        return Err(MOVE_NO_MEMORY);
    };
    let host = host.expose_provenance().get();
    let copied = within(entry.context, || {
        in_pieces(span.bytes, page, |offset, bytes| {
            call::cuMemcpyDtoH_v2(host + offset, span.address + offset as u64, bytes)
        })
    });
    let host = host as u64;
    let failed = match copied.map_err(NotCleared::Mapped).and_then(|()| span.clear(handle)) {
        Ok(()) => {
            moved(host);
            return Ok(());
        }
        Err(NotCleared::Mapped(status)) => {
            unmap_host(host, span.bytes);
            end(process, address, State::Resident, handle);
            status
        }
        Err(NotCleared::Lost(status)) => {
            moved(host);
            status
        }
    };
    Err(failed.0)
}

/// Moves an allocation back to the GPU. If it fails, the allocation stays on the host. The error is a code of the driver.
pub(super) fn move_in(
    process: &Process,
    (share, page): (&Share, &LeasePage),
    address: Pointer,
) -> Result<(), u32> {
    let Some(entry) = begin(process, address, State::Out) else { return Ok(()) };
    let (span, host) = (Span::of(address, &entry), entry.extra[BACKING_WORD]);
    let from = usize::try_from(host).unwrap_or(0);
    let filled = span.fill().and_then(|handle| {
        let piece = |offset, bytes| {
            call::cuMemcpyHtoD_v2(span.address + offset as u64, from + offset, bytes)
        };
        let copy = || match in_pieces(span.bytes, page, piece) {
            Status::SUCCESS if entry.extra[SIZE_WORD] & SYNC != 0 => span.set_sync(),
            status => status,
        };
        within(entry.context, copy).map(|()| handle).inspect_err(|_| {
            let _ = span.clear(handle);
        })
    });
    match filled {
        Ok(handle) => {
            unmap_host(host, span.bytes);
            share.moved_bytes.fetch_sub(entry.charge.bytes(), Ordering::Relaxed);
            share.movable_bytes.fetch_add(entry.charge.bytes(), Ordering::Relaxed);
            end(process, address, State::Resident, handle);
            Ok(())
        }
        Err(status) => {
            end(process, address, State::Out, host);
            Err(status.0)
        }
    }
}

/// Memory of the host that no child of a fork inherits.
fn map_host(bytes: usize) -> Option<NonNull<u8>> {
    let mapped = memory::map_anonymous(bytes).ok()?;
    // A child that has it only keeps it for longer.
    let _ = memory::dont_fork(mapped, bytes);
    Some(mapped)
}

fn unmap_host(host: u64, bytes: usize) {
    let host = core::ptr::with_exposed_provenance_mut(usize::try_from(host).unwrap_or(0));
    if let Some(host) = NonNull::new(host) {
        // JUSTIFICATION: mapped memory is unmapped by hand.
        // SAFETY: it was mapped by `map_host` with this size, and only the entry that is given up knew it.
        unsafe { memory::unmap(host, bytes) };
    }
}
