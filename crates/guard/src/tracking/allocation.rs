//! An allocation from its wish to its entry, and back.

use crate::cuda::{Opaque, Status};
use crate::devices;
use crate::driver::call;
use crate::platform::ffi::Out;
use crate::process;
use crate::tracking::account;
use crate::tracking::table::{Entry, EntryKind};

/// What an allocation is and how it is result.
pub(crate) struct Allocation<M, K, U> {
    /// What it is an entry of.
    pub(crate) kind: EntryKind,
    /// Bytes that it counts for.
    pub(crate) bytes: u64,
    /// Asks the driver.
    pub(crate) make: M,
    /// What the driver calls it, and the bytes that it turned out to be, after `make` has succeeded.
    pub(crate) result: K,
    /// Gives it back to the driver, where it cannot be entered.
    pub(crate) undo: U,
}

impl<M, K, U> Allocation<M, K, U>
where
    M: FnOnce() -> Status,
    K: FnOnce() -> Option<(u64, u64)>,
    U: FnOnce(u64) -> Status,
{
    /// Counts it on the GPU of this thread's context, makes it and enters it.
    pub(crate) fn run(self) -> Status {
        self.try_run().unwrap_or_else(|status| status)
    }

    fn try_run(self) -> Result<Status, Status> {
        let process = process::get()?;
        let device = devices::current()?;
        let mut charge = account::charge(device, self.bytes)?;
        let status = (self.make)();
        if !status.is_success() {
            account::release(charge);
            return Ok(status);
        }
        let Some((key, bytes)) = (self.result)() else {
            // Nowhere to put it means nowhere to give it back from: it stays counted.
            return Ok(status);
        };
        if bytes != charge.bytes() {
            account::adjust(&mut charge, bytes);
        }
        let entry =
            Entry { charge, context: process.owning_context(context(), device), extra: [0; 2] };
        match process.table.insert(self.kind, key, entry) {
            Ok(None) => Ok(status),
            Ok(Some(old)) => {
                account::release(old.charge);
                Ok(status)
            }
            Err(_) => {
                (self.undo)(key);
                account::release(charge);
                Err(Status::OUT_OF_MEMORY)
            }
        }
    }
}

/// Gives something back: its entry is out before the driver can give the same name to another thread, and
/// its bytes are free only when the driver has them.
pub(crate) fn free_tracked(kind: EntryKind, key: u64, free: impl FnOnce() -> Status) -> Status {
    let process = match process::get() {
        Ok(process) => process,
        Err(status) => return status,
    };
    let entry = process.table.remove(kind, key);
    let status = free();
    let Some(entry) = entry else { return status };
    if status.is_success() {
        account::release(entry.charge);
    } else if process.table.insert(kind, key, entry).is_err() {
        // It stays counted to the end of the process, which is on the side of the wall.
    }
    status
}

/// The context of this thread, or 0.
pub(crate) fn context() -> Opaque {
    let mut context = 0;
    let status = call::cuCtxGetCurrent(Out::to(&mut context));
    if status.is_success() { context } else { 0 }
}
