//! An allocation from request to table entry, and its release.

use crate::cuda::{Opaque, Status};
use crate::devices;
use crate::driver::call;
use crate::leases::wait_while_suspended;
use crate::platform::ffi::Out;
use crate::process;
use crate::tracking::account;
use crate::tracking::slabs;
use crate::tracking::table::{Entry, EntryKind};

/// An allocation and how to make it.
pub(crate) struct Allocation<M, K, U> {
    /// Kind of its entry in the table.
    pub(crate) kind: EntryKind,
    /// Bytes to charge.
    pub(crate) bytes: u64,
    /// Calls the driver.
    pub(crate) make: M,
    /// After `make` succeeded: the driver's handle, and the bytes actually allocated.
    pub(crate) result: K,
    /// Frees it again if no entry can be added.
    pub(crate) undo: U,
}

impl<M, K, U> Allocation<M, K, U>
where
    M: FnOnce() -> Status,
    K: FnOnce() -> Option<(u64, u64)>,
    U: FnOnce(u64) -> Status,
{
    /// Charges it to the GPU of the current context, makes it and adds its entry.
    pub(crate) fn run(self) -> Status {
        wait_while_suspended();
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
            // The caller passed no place for the result, so it cannot free the memory either: it
            // stays charged.
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
                release_entry(self.kind, old);
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

/// Frees something. The entry is removed before the driver can reuse the handle in another thread.
/// The charge is released only after the driver has freed the memory.
pub(crate) fn free_tracked(kind: EntryKind, key: u64, free: impl FnOnce() -> Status) -> Status {
    wait_while_suspended();
    let process = match process::get() {
        Ok(process) => process,
        Err(status) => return status,
    };
    let entry = process.table.remove(kind, key);
    let status = free();
    let Some(entry) = entry else { return status };
    if status.is_success() {
        release_entry(kind, entry);
    } else if process.table.insert(kind, key, entry).is_err() {
        // It stays charged until the process ends, so the limit still holds.
    }
    status
}

/// Releases what an entry is charged.
fn release_entry(kind: EntryKind, entry: Entry) {
    if kind == EntryKind::Memory {
        slabs::release_memory(entry);
    } else {
        account::release(entry.charge);
    }
}

/// The current context of this thread, or 0.
pub(crate) fn context() -> Opaque {
    let mut context = 0;
    let status = call::cuCtxGetCurrent(Out::to(&mut context));
    if status.is_success() { context } else { 0 }
}
