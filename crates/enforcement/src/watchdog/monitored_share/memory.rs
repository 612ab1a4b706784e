//! How much of its limit a share may have now, on a node that swaps memory.

use std::sync::atomic::{Ordering, fence};

use octavo_guard_abi::LIMITS_FILE;

use super::super::guards::state_file::{self, StateBuffer};
use super::MonitoredShare;
use crate::process::Process;

impl MonitoredShare {
    /// Memory of the share now, in bytes: that of its ledger, and what the driver counts beyond it. `None` if its files cannot be read.
    pub(in crate::watchdog) fn used_bytes(&self, copy: &mut StateBuffer) -> Option<u64> {
        let open = self.open.as_ref()?;
        let slots = open.state.as_ref()?.slots(copy).ok()?;
        let untracked = open.limits.live().ok()?.untracked_bytes;
        Some(state_file::bytes(&slots).saturating_add(untracked))
    }

    /// What the driver counted at the last poll; `None` if it did not answer.
    pub(in crate::watchdog) fn driver_bytes(&self) -> Option<u64> {
        self.driver
    }

    /// The processes that the driver listed at the last poll with an answer.
    pub(in crate::watchdog) fn processes(&self) -> impl Iterator<Item = Process> {
        self.last.iter().flat_map(|last| last.keys().copied())
    }

    /// Lets the share have so much of its limit. If it uses more, that stays. Returns what it may have.
    ///
    /// A guard charges first and reads the limit then ([`octavo_guard_abi::ledger::try_charge`]). This writes the limit first and reads the charges then. So of both at least one
    /// sees the other, and no more is used than is returned.
    pub(in crate::watchdog) fn grant(&mut self, bytes: u64, copy: &mut StateBuffer) -> u64 {
        let limit = self.share.memory_bytes;
        let withheld = self.open.as_ref().and_then(|open| open.limits.live().ok());
        let Some(before) = withheld.map(|live| limit.saturating_sub(live.withheld_bytes)) else {
            return limit;
        };
        let mut granted = bytes.min(limit);
        for _ in 0..2 {
            if !self.set_withheld(limit - granted) {
                return before.max(granted);
            }
            fence(Ordering::SeqCst);
            // A container writes the ledger: whatever is in it, the share gets no more than it had.
            let used = self.used_bytes(copy).unwrap_or(before).min(before);
            if used <= granted {
                break;
            }
            granted = used;
        }
        granted
    }

    fn set_withheld(&mut self, bytes: u64) -> bool {
        let Some(open) = &self.open else { return false };
        match open.limits.set_withheld(bytes) {
            Ok(()) => true,
            Err(error) => {
                self.warn_once(&format!("its {LIMITS_FILE} cannot be written"), &error);
                false
            }
        }
    }
}
