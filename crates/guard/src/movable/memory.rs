//! One movable allocation: made and freed, moved to the host and back.
//!
//! Its entry in the table says where it is. A thread changes that under the entry's lock before it calls the driver, so an
//! allocation is moved by one thread or freed by one.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use octavo_guard_abi::lease_page::MOVE_NO_MEMORY;

use super::calls::{self, Calls};
use super::shown::show_now;
use crate::cuda::{Device, Location, Opaque, Pointer, Status};
use crate::devices;
use crate::driver::call;
use crate::platform::ffi::Out;
use crate::platform::sys::memory;
use crate::process::{self, Process};
use crate::shares::Share;
use crate::tracking::account;
use crate::tracking::allocation::context;
use crate::tracking::captures;
use crate::tracking::slabs;
use crate::tracking::table::{Entry, EntryKind};

/// Words in an entry: the handle of its physical memory, or its address on the host; and what the program asked for, in bytes, below
/// its [`State`].
const PLACE_WORD: usize = 0;
const SIZE_WORD: usize = 1;
const STATE_SHIFT: u32 = 56;

/// The only GPU of the process.
const GPU: Device = 0;

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

/// `CUmemAllocationProp` of memory for this process alone. Without the flag for RDMA the driver refuses to register it with devices,
/// which would go on using what is moved.
#[repr(C)]
struct Prop {
    kind: u32,
    handle_types: u32,
    location: Location,
    windows: Opaque,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct Access {
    location: Location,
    flags: u32,
}

const _: () = assert!(size_of::<Prop>() == 32 && size_of::<Access>() == 12);

/// Reserved addresses.
#[derive(Clone, Copy)]
struct Span {
    address: Pointer,
    bytes: usize,
}

impl Span {
    fn reserve(bytes: u64) -> Option<Self> {
        let (bytes, mut address) = (usize::try_from(bytes).ok()?, 0);
        let status = call::cuMemAddressReserve(Out::to(&mut address), bytes, 0, 0, 0);
        status.is_success().then_some(Self { address, bytes })
    }

    /// That of an entry, which is charged for all of it.
    fn of(address: Pointer, entry: &Entry) -> Self {
        Self { address, bytes: usize::try_from(entry.charge.bytes()).unwrap_or(0) }
    }

    /// Creates physical memory and maps it. Returns its handle.
    fn fill(self) -> Result<u64, Status> {
        /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
        const PINNED: u32 = 1;
        let location = Location::of(GPU);
        let prop = Prop { kind: PINNED, handle_types: 0, location, windows: 0, flags: [0; 8] };
        let mut handle = 0;
        let place = (&raw const prop).expose_provenance();
        done(call::cuMemCreate(Out::to(&mut handle), self.bytes, place, 0))?;
        self.map(handle).inspect_err(|_| {
            let _ = call::cuMemRelease(handle);
        })?;
        Ok(handle)
    }

    fn map(self, handle: u64) -> Result<(), Status> {
        /// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
        const READ_WRITE: u32 = 3;
        let access = Access { location: Location::of(GPU), flags: READ_WRITE };
        done(call::cuMemMap(self.address, self.bytes, 0, handle, 0))?;
        let place = (&raw const access).expose_provenance();
        done(call::cuMemSetAccess(self.address, self.bytes, place, 1)).inspect_err(|_| {
            let _ = call::cuMemUnmap(self.address, self.bytes);
        })
    }

    /// Gives the physical memory back. If that fails, it is mapped as before, if the driver lets it.
    fn clear(self, handle: u64) -> Result<(), NotCleared> {
        done(call::cuMemUnmap(self.address, self.bytes)).map_err(NotCleared::Mapped)?;
        done(call::cuMemRelease(handle)).map_err(|status| match self.map(handle) {
            Ok(()) => NotCleared::Mapped(status),
            Err(_) => NotCleared::Lost(status),
        })
    }

    fn give_back(self) {
        let _ = call::cuMemAddressFree(self.address, self.bytes);
    }
}

/// Why physical memory was not given back.
enum NotCleared {
    /// It is mapped as before.
    Mapped(Status),
    /// It is no longer mapped, and the driver keeps it.
    Lost(Status),
}

fn done(status: Status) -> Result<(), Status> {
    if status.is_success() { Ok(()) } else { Err(status) }
}

/// Runs `work` with a context current in this thread.
fn within(context: Opaque, work: impl FnOnce() -> Status) -> Result<(), Status> {
    // While a context ends, its memory has an odd number.
    done(call::cuCtxPushCurrent_v2(context & !1))?;
    let status = work();
    let _ = call::cuCtxPopCurrent_v2(Out::to(&mut 0));
    done(status)
}

/// Waits for all work of a context.
pub(super) fn synchronize(context: Opaque) -> Result<(), Status> {
    within(context, call::cuCtxSynchronize)
}

/// Allocates plain memory that can be moved; `None` if it has to be plain memory of the driver's.
pub(crate) fn allocate(bytes: u64) -> Option<Result<Pointer, Status>> {
    if !calls::are_counted() || bytes <= slabs::MAX_PIECE_BYTES {
        return None;
    }
    let process = process::get().ok()?;
    let device = devices::current().ok()?;
    if !process.movable.has_one_gpu() {
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
        let bytes = entry.extra[SIZE_WORD] & ((1 << STATE_SHIFT) - 1);
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

/// Frees a movable allocation; `None` if there is none at the address. One on the host needs not come back for that.
pub(crate) fn free(address: Pointer) -> Option<Status> {
    if !calls::are_counted() {
        return None;
    }
    let process = process::get().ok()?;
    loop {
        match process.table.change(EntryKind::Movable, address, |entry| state_of(entry))? {
            State::Moving => Calls::rest(),
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
        _ => match span.clear(entry.extra[PLACE_WORD]) {
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
    unmap_host(entry.extra[PLACE_WORD], span.bytes);
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
        let Some(entry) = process.table.remove(EntryKind::Movable, address) else { continue };
        if state_of(&entry) == State::Out {
            discard(process, address, &entry);
            continue;
        }
        let span = Span::of(address, &entry);
        if span.clear(entry.extra[PLACE_WORD]).is_ok() {
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

/// Address of the next allocation of a share in a state: the lowest one above `after`, or the highest one below it.
pub(super) fn next(
    process: &Process,
    share: &Share,
    state: State,
    after: Pointer,
    is_upwards: bool,
) -> Option<Pointer> {
    let mut next: Option<Pointer> = None;
    process.table.each(|kind, address, entry| {
        let is_meant = kind == EntryKind::Movable
            && state_of(entry) == state
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
        entry.extra[PLACE_WORD] = place;
        set_state(entry, state);
    });
}

/// Moves an allocation to the host. If it fails, the allocation is as before, but for physical memory that the driver keeps. The error
/// is one of the lease page.
pub(super) fn move_out(process: &Process, share: &Share, address: Pointer) -> Result<(), u32> {
    let Some(entry) = begin(process, address, State::Resident) else { return Ok(()) };
    let (span, handle) = (Span::of(address, &entry), entry.extra[PLACE_WORD]);
    let moved = |host| {
        share.movable_bytes.fetch_sub(entry.charge.bytes(), Ordering::Relaxed);
        share.moved_bytes.fetch_add(entry.charge.bytes(), Ordering::Relaxed);
        end(process, address, State::Out, host);
    };
    let Some(host) = map_host(span.bytes) else {
        end(process, address, State::Resident, handle);
        return Err(MOVE_NO_MEMORY);
    };
    let copied = within(entry.context, || {
        call::cuMemcpyDtoH_v2(host.expose_provenance().get(), span.address, span.bytes)
    });
    let host = host.expose_provenance().get() as u64;
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
pub(super) fn move_in(process: &Process, share: &Share, address: Pointer) -> Result<(), u32> {
    let Some(entry) = begin(process, address, State::Out) else { return Ok(()) };
    let (span, host) = (Span::of(address, &entry), entry.extra[PLACE_WORD]);
    let from = usize::try_from(host).unwrap_or(0);
    let filled = span.fill().and_then(|handle| {
        let copy = || call::cuMemcpyHtoD_v2(span.address, from, span.bytes);
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
