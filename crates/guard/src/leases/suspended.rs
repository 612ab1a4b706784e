//! Waiting while the process's memory is swapped out.
//!
//! Then no call may touch the memory, or wait for the GPU. The thread that calls is counted as one that waits, and rings:
//! so the agent knows that the process wants to go on. A launch waits for its lease, which a suspended page does not have.

use core::sync::atomic::Ordering;

use super::waiting::Waiting;
use super::{Leases, ShareLeases};
use crate::process;

/// Waits while the memory of any share of this process is swapped out, or about to be. Costs one load for a share without leases,
/// three for one with.
///
/// Hooks call it before the driver's function, and hold no lock meanwhile. If the agent is gone, the wait ends as for leases.
/// It is a function of its own because some hundred hooks call it.
#[inline(never)]
pub(crate) fn wait_while_suspended() {
    if let Ok(process) = process::get() {
        for share in process.shares.all() {
            share.leases.wait_while_suspended();
        }
    }
}

impl ShareLeases {
    /// As the function, for this share.
    #[inline]
    pub(crate) fn wait_while_suspended(&self) {
        if let Some(leases) = self.get() {
            leases.wait_while_suspended();
        }
    }
}

impl Leases {
    #[inline]
    pub(super) fn wait_while_suspended(&self) {
        if let Some(page) = self.page()
            && page.suspended.load(Ordering::Acquire) != 0
        {
            self.wait_for_memory();
        }
    }

    #[cold]
    fn wait_for_memory(&self) {
        let mut waiting: Option<Waiting> = None;
        while let Some(page) = self.page() {
            let suspended = page.suspended.load(Ordering::Acquire);
            if suspended == 0 {
                break;
            }
            let waiting = waiting.get_or_insert_with(|| Waiting::begin(page));
            if !core::ptr::eq(waiting.page, page) {
                *waiting = Waiting::begin(page);
            }
            if self.is_without_agent(waiting) {
                break;
            }
            waiting.for_memory(&self.doorbell, suspended);
        }
    }
}
