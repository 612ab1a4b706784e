//! Exported memory: other processes may have it, and nothing reports when the last of them drops it.
//!
//! So the driver is asked what the call freed that ended the last part of this process. If it freed that much memory of the GPU, the
//! memory is let go. Otherwise another process has it still, and it stays charged until this process ends. What others take at that
//! moment may hide what was freed, and what others free may be taken for it. The agent compares the charges with what the driver counts
//! for each process.

use super::{
    EXPORTED, FLAGS_WORD, HOLDS_WORD, Handle, device_in, drop_hold, hold, holds, memory_of,
};
use crate::cuda::{Device, Status};
use crate::devices;
use crate::hooks::info::free_memory;
use crate::tracking::table::{Entry, EntryKind};

/// Exports memory with `work`.
pub(crate) fn export(handle: Handle, work: impl FnOnce() -> Status) -> Status {
    let Some(memory) = memory_of(handle) else { return work() };
    // It cannot end meanwhile without the mark.
    hold(memory);
    let status = work();
    if status.is_success()
        && let Some(table) = super::table()
    {
        let mark = |entry: &mut Entry| entry.extra[FLAGS_WORD] |= EXPORTED;
        table.change(EntryKind::Physical, memory, mark);
    }
    drop_hold(memory);
    status
}

/// Whether memory was exported.
pub(super) fn is_exported(memory: Handle) -> bool {
    let flags = |entry: &mut Entry| entry.extra[FLAGS_WORD];
    let flags = super::table().and_then(|table| table.change(EntryKind::Physical, memory, flags));
    flags.is_some_and(|flags| flags & EXPORTED != 0)
}

/// The GPU of exported memory without a hold, whose end has to be measured.
pub(super) fn device_to_measure(entry: &Entry) -> Option<Device> {
    let is_exported = entry.extra[FLAGS_WORD] & EXPORTED != 0 && entry.charge.bytes() > 0;
    let is_last = is_exported && !holds::is_held(entry.extra[HOLDS_WORD]);
    if is_last { device_in(entry) } else { None }
}

/// Runs `work`. Returns its status, and how much memory of a GPU it has freed, as far as that was measured.
pub(super) fn measured(device: Option<Device>, work: impl FnOnce() -> Status) -> (Status, u64) {
    // The driver reports the memory of the current GPU only.
    let is_current = |device: &Device| devices::current() == Ok(*device);
    let before = device.filter(is_current).and_then(|_| free_memory());
    let status = work();
    let Some(before) = before else { return (status, 0) };
    (status, free_memory().map_or(0, |after| after.saturating_sub(before)))
}

/// Whether exported memory of so many bytes is among what was freed, which it is taken off then.
pub(super) fn is_among(freed: &mut u64, bytes: u64) -> bool {
    let rest = freed.checked_sub(bytes);
    *freed = rest.unwrap_or(*freed);
    rest.is_some()
}
