//! The current pool of each GPU. The driver is asked once and after each change.
//!
//! A change may be under way on another thread: then the pool of an allocation is known from its address only.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{Pool, pool_of};
use crate::cuda::{Device, Pointer, Status};
use crate::hooks::pools::real;
use crate::platform::ffi::Out;
use crate::process;
use crate::tracking::account::Charge;
use crate::tracking::table::{Entry, EntryKind};

/// Changes of current pools that have begun, and that have ended.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Words in the entry of a GPU: its pool, and the number of changes before the driver was asked.
const POOL_WORD: usize = 0;
const CHANGES_WORD: usize = 1;

/// The current pool of a GPU before a call.
pub(super) struct CurrentPool {
    pub(super) pool: Pool,
    /// Number of changes before; `None` if it may not be the pool that serves the call.
    changes: Option<u64>,
}

/// Runs `work`, which may change the current pool of any GPU.
pub(crate) fn change(work: impl FnOnce() -> Status) -> Status {
    BEGUN.fetch_add(1, Ordering::SeqCst);
    let status = work();
    ENDED.fetch_add(1, Ordering::SeqCst);
    status
}

impl CurrentPool {
    /// That of a GPU; `None` if the driver has no pools. `is_sure` is false if the call may be for another GPU.
    pub(super) fn of((device, is_sure): (Device, bool)) -> Option<Self> {
        let table = &process::get().ok()?.table;
        let key = u64::from(device.cast_unsigned());
        let ended = ENDED.load(Ordering::SeqCst);
        let changes = Some(ended).filter(|ended| BEGUN.load(Ordering::SeqCst) == *ended);
        let known = table
            .change(EntryKind::CurrentPool, key, |entry| entry.extra)
            .filter(|known| changes == Some(known[CHANGES_WORD]));
        let pool = if let Some(known) = known {
            Pool(usize::try_from(known[POOL_WORD]).unwrap_or(0))
        } else {
            let mut handle = 0;
            let status = real::cuDeviceGetMemPool(Out::to(&mut handle), device);
            Some(Pool(handle)).filter(|_| status.is_success())?
        };
        if let (None, Some(changes)) = (known, changes) {
            let entry = Entry { charge: Charge::NONE, context: 0, extra: [pool.key(), changes] };
            // If the table is full, the driver is asked again.
            let _ = table.insert(EntryKind::CurrentPool, key, entry);
        }
        Some(Self { pool, changes: changes.filter(|_| is_sure) })
    }

    /// The pool that served an allocation since.
    pub(super) fn of_allocation(&self, address: Pointer) -> Pool {
        if self.changes == Some(BEGUN.load(Ordering::SeqCst)) {
            return self.pool;
        }
        pool_of(address).unwrap_or(self.pool)
    }
}
