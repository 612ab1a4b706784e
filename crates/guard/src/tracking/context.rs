//! Contexts: their charge before the driver creates them, and the memory that ends with them.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::cuda::{Device, Opaque, Status};
use crate::driver::call;
use crate::movable;
use crate::platform::ffi::Out;
use crate::process::Process;
use crate::tracking::account::{self, Charge};
use crate::tracking::allocation;
use crate::tracking::table::{Entry, EntryKind};
use crate::tracking::{graph_memory, pools};

/// The same number of devices as in [`crate::devices`].
const MAX_DEVICES: usize = 64;

/// The primary contexts of the GPUs.
#[derive(Debug)]
pub(crate) struct Contexts {
    primary: [Primary; MAX_DEVICES],
}

/// The primary context of a GPU, which all parts of a process share.
#[derive(Debug)]
struct Primary {
    /// Its charge, packed; 0 if it is not charged.
    charge: AtomicU64,
    /// Its handle, once it is known.
    handle: AtomicUsize,
}

impl Process {
    fn primary(&self, device: Device) -> Option<&Primary> {
        self.contexts.primary.get(usize::try_from(device).ok()?)
    }

    /// Charges the primary context of a GPU, unless it is charged already.
    pub(crate) fn reserve_primary(&self, device: Device) -> Result<(), Status> {
        self.discover_primary(device);
        let Some(primary) = self.primary(device) else { return Ok(()) };
        if primary.charge.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let charge = account::charge(device, account::context_bytes(device)?)?;
        primary.set_if_unset(charge);
        Ok(())
    }

    /// Charges the primary context of a GPU if it is active and not charged. Programs have it without a hooked call: NVIDIA's
    /// runtime library takes it from a table of the driver (`cuGetExportTable`), and a context that was reset is active again once
    /// it is current.
    ///
    /// This precedes the charge of what is allocated in it, so that a share too small for both refuses the latter.
    pub(crate) fn discover_primary(&self, device: Device) {
        if let Some(primary) = self.primary(device)
            && primary.charge.load(Ordering::Acquire) == 0
            && is_active(device) == Some(true)
        {
            self.charge_discovered(primary, device);
        }
    }

    /// Charges a primary context that is active, and learns its handle: it is this thread's, unless that is one of the program's own.
    #[cold]
    fn charge_discovered(&self, primary: &Primary, device: Device) {
        let current = allocation::context();
        let is_own = |kind| self.table.change(kind, current as u64, |_| ()).is_some();
        if current != 0 && !is_own(EntryKind::Context) && !is_own(EntryKind::GreenContext) {
            primary.handle.store(current, Ordering::Relaxed);
        }
        primary.recount(device);
        // Another thread may have ended it in between.
        if is_active(device) == Some(false) {
            primary.release();
        }
    }

    /// Records the handle of a GPU's primary context after the driver has returned it. A release on
    /// another thread may have ended the context charged before; then this one is charged now.
    pub(crate) fn record_primary(&self, device: Device, handle: Opaque) {
        let Some(primary) = self.primary(device) else { return };
        primary.handle.store(handle, Ordering::Relaxed);
        if primary.charge.load(Ordering::Acquire) == 0 {
            primary.recount(device);
        }
    }

    /// Runs `change`, which may end the primary context, and updates the charge from the driver's
    /// state. The driver alone counts references.
    pub(crate) fn settle_primary(&self, device: Device, change: impl FnOnce() -> Status) -> Status {
        let handle =
            self.primary(device).map_or(0, |primary| primary.handle.load(Ordering::Relaxed));
        // Memory allocated from now on belongs to the next context, even if the driver reuses the
        // handle.
        self.relabel_memory(handle, ending_label(handle));
        // Pools end with the last context of the GPU. A driver that keeps them says so.
        let status = pools::change_current(change);
        let Some(primary) = self.primary(device) else { return status };
        if is_active(device) != Some(false) {
            self.relabel_memory(ending_label(handle), handle);
            return status;
        }
        // First, so that no move of memory makes it current: it would be active again.
        primary.release();
        self.drop_memory_of(ending_label(handle));
        pools::settle_all(device);
        graph_memory::settle(device);
        // Another thread may have retained it in between and found it charged.
        if is_active(device) == Some(true) {
            primary.recount(device);
        }
        status
    }

    /// The context whose end frees an allocation made in `context`; 0 if unknown. A green context
    /// is part of the primary context, so memory allocated in it outlives it. The same is assumed
    /// for a context whose creation the guard did not see.
    pub(crate) fn owning_context(&self, context: Opaque, device: Device) -> Opaque {
        let primary =
            self.primary(device).map_or(0, |primary| primary.handle.load(Ordering::Relaxed));
        let is_own = context != primary
            && self.table.change(EntryKind::Context, context as u64, |_| ()).is_some();
        if is_own { context } else { primary }
    }

    /// Whether there is a primary context whose handle is not known.
    pub(crate) fn has_unknown_context(&self) -> bool {
        self.contexts.primary.iter().any(|primary| {
            primary.charge.load(Ordering::Acquire) != 0
                && primary.handle.load(Ordering::Relaxed) == 0
        })
    }

    /// The context with the lowest handle above `after`, of those that are there; `None` after the last one. A green context is part
    /// of a primary one.
    pub(crate) fn next_context(&self, after: Opaque) -> Option<Opaque> {
        let is_active = |primary: &&Primary| primary.charge.load(Ordering::Acquire) != 0;
        let active = self.contexts.primary.iter().filter(is_active);
        let primary = active.map(|primary| primary.handle.load(Ordering::Relaxed));
        let mut next = primary.filter(|handle| *handle > after).min();
        self.table.each(|kind, key, _| {
            let handle = usize::try_from(key).unwrap_or(0);
            if kind == EntryKind::Context && handle > after {
                next = Some(next.map_or(handle, |next| next.min(handle)));
            }
        });
        next
    }

    /// Destroys a green context with `end`. Only its own charge ends; its memory belongs to the
    /// primary context.
    pub(crate) fn destroy_green(&self, handle: Opaque, end: impl FnOnce() -> Status) -> Status {
        let entry = self.table.remove(EntryKind::GreenContext, handle as u64);
        let status = end();
        self.release_if_ended(EntryKind::GreenContext, handle, entry, status);
        status
    }

    /// Destroys a context with `end`, and on success releases all that was allocated in it.
    pub(crate) fn destroy_context(&self, handle: Opaque, end: impl FnOnce() -> Status) -> Status {
        let entry = self.table.remove(EntryKind::Context, handle as u64);
        self.relabel_memory(handle, ending_label(handle));
        let status = pools::change_current(end);
        if status.is_success() {
            self.drop_memory_of(ending_label(handle));
        } else {
            self.relabel_memory(ending_label(handle), handle);
        }
        self.release_if_ended(EntryKind::Context, handle, entry, status);
        status
    }

    /// Releases the charge of a context itself, if it has ended.
    fn release_if_ended(
        &self,
        kind: EntryKind,
        handle: Opaque,
        entry: Option<Entry>,
        status: Status,
    ) {
        let Some(entry) = entry else { return };
        if status.is_success() {
            account::note_context(entry.charge, false);
            account::release(entry.charge);
        } else {
            // If the table is full, it stays charged.
            let _ = self.table.insert(kind, handle as u64, entry);
        }
    }

    fn relabel_memory(&self, from: Opaque, to: Opaque) {
        if from == 0 {
            return;
        }
        self.table.each(|_, _, entry| {
            if entry.context == from {
                entry.context = to;
            }
        });
    }

    fn drop_memory_of(&self, context: Opaque) {
        if context != 0 {
            // The driver frees plain memory with its context, but no mappings.
            movable::end_with(self, context);
            self.table.sweep(|_, _, entry| entry.context == context);
        }
    }
}

impl Primary {
    fn set_if_unset(&self, charge: Charge) {
        let packed = charge.packed();
        if packed == 0 {
            return;
        }
        match self.charge.compare_exchange(0, packed, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => account::note_context(charge, true),
            // Another thread has charged it.
            Err(_) => account::release(charge),
        }
    }

    /// Charges a context that exists already.
    fn recount(&self, device: Device) {
        let bytes = account::context_bytes(device).unwrap_or(0);
        if let Ok(charge) = account::charge_unchecked(device, bytes) {
            self.set_if_unset(charge);
        }
    }

    fn release(&self) {
        let charge = Charge::unpacked(self.charge.swap(0, Ordering::AcqRel));
        account::note_context(charge, false);
        account::release(charge);
    }
}

/// Label for the memory of a context while the context ends. No handle is odd.
fn ending_label(handle: Opaque) -> Opaque {
    if handle == 0 { 0 } else { handle | 1 }
}

/// Whether a GPU's primary context is active; `None` if the driver does not report it.
pub(crate) fn is_active(device: Device) -> Option<bool> {
    let (mut flags, mut active) = (0, 0);
    let status =
        call::cuDevicePrimaryCtxGetState(device, Out::to(&mut flags), Out::to(&mut active));
    status.is_success().then_some(active != 0)
}
