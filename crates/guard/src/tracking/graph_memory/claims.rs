//! Idle graph memory that launches under way rely on.
//!
//! A launch needs no charge for memory that is idle in the reserve. Two launches must not rely on
//! the same bytes, nor on bytes that a trim is about to free. So a launch claims idle bytes until
//! it ends. A claim is granted only if the driver's report is newer than the end of every other
//! launch and every trim. While there are claims, the charge of the reserve does not shrink.

use crate::cuda::Device;
use crate::process;
use crate::tracking::account::Charge;
use crate::tracking::table::{Entry, EntryKind};

/// Words in the entry of a GPU's claims: bytes claimed, and an epoch above the number of trims
/// under way. The epoch changes with each end of a launch and each start and end of a trim.
const CLAIMED_WORD: usize = 0;
const EPOCH_WORD: usize = 1;
const EPOCH_STEP: u64 = 1 << 16;
const ONE_TRIM: u64 = 1;

/// Queries of the driver before a launch goes on without a claim.
const MAX_ATTEMPTS: usize = 4;

fn change<R>(device: Device, change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
    let table = &process::get().ok()?.table;
    let key = u64::from(device.cast_unsigned());
    let entry = Entry { charge: Charge::NONE, context: 0, extra: [0; 2] };
    table.or_insert(EntryKind::Claims, key, entry).ok()?;
    table.change(EntryKind::Claims, key, change)
}

/// Claims up to `wanted` bytes of the idle memory. Returns how many.
pub(super) fn claim(device: Device, wanted: u64, idle: impl Fn() -> u64) -> u64 {
    for _ in 0..MAX_ATTEMPTS {
        let Some(epoch) = change(device, |entry| entry.extra[EPOCH_WORD]) else { break };
        let idle = idle();
        match change(device, |entry| try_grant(entry, epoch, wanted, idle)) {
            Some(None) => {}
            Some(Some(bytes)) => return bytes,
            None => break,
        }
    }
    0
}

/// Releases the claim of a launch that has ended or is not made.
pub(super) fn release(device: Device, bytes: u64) {
    change(device, |entry| record_end(entry, bytes));
}

/// Whether a launch under way has a claim.
pub(super) fn has_any(device: Device) -> bool {
    change(device, |entry| entry.extra[CLAIMED_WORD] > 0) == Some(true)
}

/// Frees idle bytes with `trim`.
pub(super) fn with_trim<R>(device: Device, trim: impl FnOnce() -> R) -> R {
    change(device, begin_trim);
    let answer = trim();
    change(device, end_trim);
    answer
}

/// `None` if the report is outdated.
fn try_grant(entry: &mut Entry, epoch: u64, wanted: u64, idle: u64) -> Option<u64> {
    if entry.extra[EPOCH_WORD] != epoch || !epoch.is_multiple_of(EPOCH_STEP) {
        return None;
    }
    let bytes = wanted.min(idle.saturating_sub(entry.extra[CLAIMED_WORD]));
    entry.extra[CLAIMED_WORD] += bytes;
    Some(bytes)
}

fn record_end(entry: &mut Entry, bytes: u64) {
    entry.extra[CLAIMED_WORD] = entry.extra[CLAIMED_WORD].saturating_sub(bytes);
    entry.extra[EPOCH_WORD] = entry.extra[EPOCH_WORD].wrapping_add(EPOCH_STEP);
}

fn begin_trim(entry: &mut Entry) {
    entry.extra[EPOCH_WORD] = entry.extra[EPOCH_WORD].wrapping_add(EPOCH_STEP + ONE_TRIM);
}

fn end_trim(entry: &mut Entry) {
    entry.extra[EPOCH_WORD] = entry.extra[EPOCH_WORD].wrapping_add(EPOCH_STEP - ONE_TRIM);
}

#[cfg(test)]
mod tests;
