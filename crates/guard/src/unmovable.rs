//! Why the memory of this process cannot be moved to the host: the driver's process checkpoints support neither managed memory
//! nor memory that other processes share.

use core::sync::atomic::{AtomicU32, Ordering};

use octavo_guard_abi::lease_page;

use crate::cuda::Status;
use crate::process;

/// Flags of [`octavo_guard_abi::lease_page`]. Zero bytes are none.
#[derive(Debug)]
pub(crate) struct Unmovable(AtomicU32);

impl Unmovable {
    /// The flags so far.
    pub(crate) fn flags(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Notes that the process has managed memory, if a call succeeded.
pub(crate) fn note_managed(status: Status) -> Status {
    note(lease_page::MANAGED, status)
}

/// Notes that the process shares memory with others, if a call succeeded.
pub(crate) fn note_shared(status: Status) -> Status {
    note(lease_page::SHARED, status)
}

fn note(flag: u32, status: Status) -> Status {
    if status.is_success()
        && let Ok(process) = process::get()
        && process.unmovable.flags() & flag == 0
    {
        let flags = process.unmovable.0.fetch_or(flag, Ordering::Relaxed) | flag;
        process.shares.all().iter().for_each(|share| share.leases.show_unmovable(flags));
    }
    status
}
