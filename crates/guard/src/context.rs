//! Contexts: what they are counted for before the driver makes them, and what goes with them.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::account::{self, Charge};
use crate::cuda::{Device, Opaque, Status};
use crate::driver::call;
use crate::ffi::Out;
use crate::process::Process;
use crate::table::{Entry, Kind};

/// As many as [`crate::devices`] knows.
const DEVICES: usize = 64;

/// The primary contexts of the GPUs.
#[derive(Debug)]
pub(crate) struct Contexts {
    primary: [Primary; DEVICES],
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
        primary.take(charge);
        Ok(())
    }

    /// Remembers which context is a GPU's primary one, which the driver has just said to be there. A release
    /// on another thread may have ended the one that was counted before: then this one is counted now.
    pub(crate) fn know_primary(&self, device: Device, handle: Opaque) {
        let Some(primary) = self.primary(device) else { return };
        primary.handle.store(handle, Ordering::Relaxed);
        if primary.charge.load(Ordering::Acquire) == 0 {
            primary.recount(device);
        }
    }

    /// Asks the driver whether a GPU's primary context is there, and counts accordingly: references are the
    /// driver's to count. `change` is what may have ended it.
    pub(crate) fn settle_primary(&self, device: Device, change: impl FnOnce() -> Status) -> Status {
        let handle =
            self.primary(device).map_or(0, |primary| primary.handle.load(Ordering::Relaxed));
        // What is allocated from now on is another context's, even if the driver calls it the same.
        self.rename(handle, gone(handle));
        let status = change();
        let Some(primary) = self.primary(device) else { return status };
        if is_active(device) != Some(false) {
            self.rename(gone(handle), handle);
            return status;
        }
        self.drop_memory(gone(handle));
        primary.give_back();
        // Another thread may have retained it in between, and seen it counted.
        if is_active(device) == Some(true) {
            primary.recount(device);
        }
        status
    }

    /// The context with which goes what is allocated in one on a GPU; 0: it is not known. A green context is a part
    /// of the primary one: what is allocated there lives on when it ends. So does, for all that is known, what is
    /// allocated in a context that nobody was seen to make.
    pub(crate) fn home(&self, context: Opaque, device: Device) -> Opaque {
        let primary =
            self.primary(device).map_or(0, |primary| primary.handle.load(Ordering::Relaxed));
        let is_own = context != primary
            && self.table.change(Kind::Context, context as u64, |_| ()).is_some();
        if is_own { context } else { primary }
    }

    /// Ends a green context by `end`. All but itself is another's.
    pub(crate) fn end_green(&self, handle: Opaque, end: impl FnOnce() -> Status) -> Status {
        let entry = self.table.remove(Kind::GreenContext, handle as u64);
        let status = end();
        self.ended(Kind::GreenContext, handle, entry, status);
        status
    }

    /// Ends a context by `end`, and all that was allocated in it if that succeeds.
    pub(crate) fn end_context(&self, handle: Opaque, end: impl FnOnce() -> Status) -> Status {
        let entry = self.table.remove(Kind::Context, handle as u64);
        self.rename(handle, gone(handle));
        let status = end();
        if status.is_success() {
            self.drop_memory(gone(handle));
        } else {
            self.rename(gone(handle), handle);
        }
        self.ended(Kind::Context, handle, entry, status);
        status
    }

    /// Gives back what a context itself counted for, if it has ended.
    fn ended(&self, kind: Kind, handle: Opaque, entry: Option<Entry>, status: Status) {
        let Some(entry) = entry else { return };
        if status.is_success() {
            account::note_context(entry.charge, false);
            account::release(entry.charge);
        } else {
            // Full: it stays counted.
            let _ = self.table.insert(kind, handle as u64, entry);
        }
    }

    fn rename(&self, from: Opaque, to: Opaque) {
        if from == 0 {
            return;
        }
        self.table.each(|_, _, entry| {
            if entry.context == from {
                entry.context = to;
            }
        });
    }

    fn drop_memory(&self, context: Opaque) {
        if context != 0 {
            self.table.sweep(|_, _, entry| entry.context == context);
        }
    }
}

impl Primary {
    fn take(&self, charge: Charge) {
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
        if let Ok(charge) = account::force(device, bytes) {
            self.take(charge);
        }
    }

    fn give_back(&self) {
        let charge = Charge::unpacked(self.charge.swap(0, Ordering::AcqRel));
        account::note_context(charge, false);
        account::release(charge);
    }
}

/// What a context's memory is marked with while the context ends: no handle is odd.
fn gone(handle: Opaque) -> Opaque {
    if handle == 0 { 0 } else { handle | 1 }
}

/// Whether a GPU's primary context is there; none where the driver does not say.
fn is_active(device: Device) -> Option<bool> {
    let (mut flags, mut active) = (0, 0);
    let status =
        call::cuDevicePrimaryCtxGetState(device, Out::to(&mut flags), Out::to(&mut active));
    status.is_success().then_some(active != 0)
}
