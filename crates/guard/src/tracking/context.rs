//! Contexts: what they are counted for before the driver makes them, and what goes with them.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::cuda::{Device, Opaque, Status};
use crate::driver::call;
use crate::platform::ffi::Out;
use crate::process::Process;
use crate::tracking::account::{self, Charge};
use crate::tracking::table::{Entry, EntryKind};

/// As many as [`crate::devices`] knows.
const MAX_DEVICES: usize = 64;

/// The primary contexts of the GPUs.
#[derive(Debug)]
pub(crate) struct Contexts {
    primary: [Primary; MAX_DEVICES],
}

/// A GPU's own context, which all parts of a process share.
#[derive(Debug)]
struct Primary {
    /// What it is counted for, packed; 0: it is not.
    charge: AtomicU64,
    /// Its handle, once it is known.
    handle: AtomicUsize,
}

impl Process {
    fn primary(&self, device: Device) -> Option<&Primary> {
        self.contexts.primary.get(usize::try_from(device).ok()?)
    }

    /// Counts a GPU's primary context, if it is not counted yet.
    pub(crate) fn reserve_primary(&self, device: Device) -> Result<(), Status> {
        let Some(primary) = self.primary(device) else { return Ok(()) };
        if primary.charge.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let charge = account::charge(device, account::context_bytes(device)?)?;
        primary.set_if_unset(charge);
        Ok(())
    }

    /// Remembers which context is a GPU's primary one, which the driver has just said to be there. A release
    /// on another thread may have release_if_ended the one that was counted before: then this one is counted now.
    pub(crate) fn record_primary(&self, device: Device, handle: Opaque) {
        let Some(primary) = self.primary(device) else { return };
        primary.handle.store(handle, Ordering::Relaxed);
        if primary.charge.load(Ordering::Acquire) == 0 {
            primary.recount(device);
        }
    }

    /// Asks the driver whether a GPU's primary context is there, and counts accordingly: references are the
    /// driver's to count. `change` is what may have release_if_ended it.
    pub(crate) fn settle_primary(&self, device: Device, change: impl FnOnce() -> Status) -> Status {
        let handle =
            self.primary(device).map_or(0, |primary| primary.handle.load(Ordering::Relaxed));
        // What is allocated from now on is another context's, even if the driver calls it the same.
        self.relabel_memory(handle, ending_label(handle));
        let status = change();
        let Some(primary) = self.primary(device) else { return status };
        if is_active(device) != Some(false) {
            self.relabel_memory(ending_label(handle), handle);
            return status;
        }
        self.drop_memory_of(ending_label(handle));
        primary.release();
        // Another thread may have retained it in between, and seen it counted.
        if is_active(device) == Some(true) {
            primary.recount(device);
        }
        status
    }

    /// The context with which goes what is allocated in one on a GPU; 0: it is not known. A green context is a part
    /// of the primary one: what is allocated there lives on when it ends. So does, for all that is known, what is
    /// allocated in a context that nobody was seen to make.
    pub(crate) fn owning_context(&self, context: Opaque, device: Device) -> Opaque {
        let primary =
            self.primary(device).map_or(0, |primary| primary.handle.load(Ordering::Relaxed));
        let is_own = context != primary
            && self.table.change(EntryKind::Context, context as u64, |_| ()).is_some();
        if is_own { context } else { primary }
    }

    /// Ends a green context by `end`. All but itself is another's.
    pub(crate) fn destroy_green(&self, handle: Opaque, end: impl FnOnce() -> Status) -> Status {
        let entry = self.table.remove(EntryKind::GreenContext, handle as u64);
        let status = end();
        self.release_if_ended(EntryKind::GreenContext, handle, entry, status);
        status
    }

    /// Ends a context by `end`, and all that was allocated in it if that succeeds.
    pub(crate) fn destroy_context(&self, handle: Opaque, end: impl FnOnce() -> Status) -> Status {
        let entry = self.table.remove(EntryKind::Context, handle as u64);
        self.relabel_memory(handle, ending_label(handle));
        let status = end();
        if status.is_success() {
            self.drop_memory_of(ending_label(handle));
        } else {
            self.relabel_memory(ending_label(handle), handle);
        }
        self.release_if_ended(EntryKind::Context, handle, entry, status);
        status
    }

    /// Gives back what a context itself counted for, if it has release_if_ended.
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
            // Full: it stays counted.
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
            // Another thread has counted it.
            Err(_) => account::release(charge),
        }
    }

    /// Counts a context that is there already.
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

/// What a context's memory is marked with while the context ends: no handle is odd.
fn ending_label(handle: Opaque) -> Opaque {
    if handle == 0 { 0 } else { handle | 1 }
}

/// Whether a GPU's primary context is there; none where the driver does not say.
fn is_active(device: Device) -> Option<bool> {
    let (mut flags, mut active) = (0, 0);
    let status =
        call::cuDevicePrimaryCtxGetState(device, Out::to(&mut flags), Out::to(&mut active));
    status.is_success().then_some(active != 0)
}
