//! What is observed of a share, and what of it no call could have been refused for.

use std::time::Duration;

use octavo_guard_abi::state::Damage;

use crate::process::Process;
use crate::watchdog::context_size;

/// The surplus of contexts is excused up to this fraction of the limit, or for one context.
const EXCUSED_DIVISOR: u64 = 4;
/// Growth of a process that no call asked for, in bytes: this, or a fraction of the limit if that is more.
const MIN_GROWTH_BYTES: u64 = 512 << 20;
const GROWTH_DIVISOR: u64 = 20;
/// GPU memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::watchdog) struct ProcessUsage {
    /// The process.
    pub(in crate::watchdog) process: Process,
    /// Bytes counted by the driver; `None` if it does not report them.
    pub(in crate::watchdog) driver_bytes: Option<u64>,
    /// Bytes in its slot; `None` without a matching slot.
    pub(in crate::watchdog) slot_bytes: Option<u64>,
    /// Bytes for contexts, included in `slot_bytes`.
    pub(in crate::watchdog) context_bytes: u64,
    /// Whether it has looked up or called functions that its guard does not know.
    pub(in crate::watchdog) has_unknown: bool,
    /// Whether it started so recently that the size of its context was not fed back yet.
    pub(in crate::watchdog) is_new: bool,
    /// Whether all its threads are ending.
    pub(in crate::watchdog) is_ending: bool,
}

/// Damage of a share's state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::watchdog) enum StateDamage {
    /// The content was changed.
    Damaged(Damage),
    /// It is not there, or another file is.
    Gone,
    /// A guard reported it, with this code.
    Reported(u64),
}

/// Observation of a share at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::watchdog) struct Sample {
    /// When, since some moment that stays the same.
    pub(in crate::watchdog) at: Duration,
    /// Limit of the share, in bytes.
    pub(in crate::watchdog) limit_bytes: u64,
    /// Its processes on the GPU; `None` if the driver did not answer.
    pub(in crate::watchdog) processes: Option<Vec<ProcessUsage>>,
    /// Bytes in all slots, or the damage of the file.
    pub(in crate::watchdog) slots_bytes: Result<u64, StateDamage>,
    /// Known size of a context on the GPU; `None` before the first measurement.
    pub(in crate::watchdog) context_bytes: Option<u64>,
}

impl Sample {
    /// The driver's count for the share's processes; `None` if it did not answer.
    pub(in crate::watchdog) fn driver_bytes(&self) -> Option<u64> {
        let processes = self.processes.as_ref()?;
        Some(sum(processes.iter().filter_map(|used| used.driver_bytes)))
    }

    /// Bytes of the share that no slot contains. A process without a driver count is taken at its slot's count.
    pub(in crate::watchdog) fn untracked_bytes(&self) -> Option<u64> {
        let processes = self.processes.as_ref()?;
        let reported =
            processes.iter().map(|used| used.driver_bytes.or(used.slot_bytes).unwrap_or(0));
        Some(sum(reported).saturating_sub(self.slots_bytes.unwrap_or(0)))
    }

    /// Surplus of contexts beyond their charge, in bytes. No call could have been refused for it. With `with_new`, the
    /// context of a new process may have the maximum size.
    pub(super) fn excused(&self, living: &[&ProcessUsage], with_new: bool) -> u64 {
        self.bounded(living.iter().map(|used| self.surplus(used, with_new)))
    }

    /// Surplus of a process's contexts beyond their charge.
    fn surplus(&self, used: &ProcessUsage, with_new: bool) -> u64 {
        let known = self.context_bytes.unwrap_or(0);
        let size = if with_new && used.is_new { context_size::MAX_CONTEXT_BYTES } else { known };
        let surplus = size.saturating_sub(used.context_bytes).min(used.unaccounted());
        if used.has_counted_context() { surplus } else { 0 }
    }

    /// What is excused, and memory that the driver may have taken for processes without a call that asked for it. Of a process
    /// that goes round its guard it is none, as far as can be seen.
    pub(super) fn tolerated(&self, living: &[&ProcessUsage], with_new: bool) -> u64 {
        if self.slots_bytes.is_err() {
            return self.excused(living, with_new);
        }
        let most =
            MIN_GROWTH_BYTES.max(self.limit_bytes / GROWTH_DIVISOR).min(self.limit_bytes / 2);
        self.bounded(living.iter().map(|used| {
            let surplus = self.surplus(used, with_new);
            let growth = (used.unaccounted() - surplus).min(most);
            let is_intact = used.has_counted_context() && !used.has_unknown;
            surplus + if is_intact { growth } else { 0 }
        }))
    }

    /// The sum of bytes, but no more than a part of the limit, or than the largest: many processes at once would take gigabytes from
    /// the neighbours.
    fn bounded(&self, bytes: impl Iterator<Item = u64> + Clone) -> u64 {
        let largest = bytes.clone().max().unwrap_or(0);
        sum(bytes).min(largest.max(self.limit_bytes / EXCUSED_DIVISOR))
    }
}

impl ProcessUsage {
    /// Bytes that its slot does not contain.
    pub(super) fn unaccounted(&self) -> u64 {
        self.driver_bytes.unwrap_or(0).saturating_sub(self.slot_bytes.unwrap_or(0))
    }

    /// Whether it has a slot in which a context is counted.
    fn has_counted_context(&self) -> bool {
        self.context_bytes > 0 && self.slot_bytes.is_some_and(|bytes| bytes > 0)
    }
}

/// A saturating sum.
pub(super) fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}
