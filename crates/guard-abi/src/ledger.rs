//! The ledger: how much of a share each process has, without a lock and without repair.
//!
//! A process first adds its charge to its own slot, then sums all slots. Of two concurrent charges,
//! the later one sees at least the earlier. Both may be refused once, but together they never
//! exceed the limit. No sum is stored. A process killed at any step leaves only its own slot
//! behind, which any other process may clear ([`reap`]).

use core::sync::atomic::{AtomicU64, Ordering};

/// A word shared between processes. Its operations are sequentially consistent.
pub trait SharedWord {
    /// Returns the value.
    fn load(&self) -> u64;
    /// Sets the value.
    fn store(&self, value: u64);
    /// Adds to the value and returns the previous one.
    fn add(&self, value: u64) -> u64;
    /// Subtracts from the value.
    fn sub(&self, value: u64);
    /// Raises the value to at least `value`.
    fn raise(&self, value: u64);
}

impl SharedWord for AtomicU64 {
    fn load(&self) -> u64 {
        self.load(Ordering::SeqCst)
    }

    fn store(&self, value: u64) {
        self.store(value, Ordering::SeqCst);
    }

    fn add(&self, value: u64) -> u64 {
        self.fetch_add(value, Ordering::SeqCst)
    }

    fn sub(&self, value: u64) {
        self.fetch_sub(value, Ordering::SeqCst);
    }

    fn raise(&self, value: u64) {
        self.fetch_max(value, Ordering::SeqCst);
    }
}

/// The slots of a share.
pub trait SlotTable {
    /// Type of the shared words.
    type Word: SharedWord;
    /// Number of slots.
    fn slots(&self) -> usize;
    /// One more than the highest slot ever claimed.
    fn high(&self) -> &Self::Word;
    /// Bytes charged to the process of a slot.
    fn used(&self, slot: usize) -> &Self::Word;
    /// Limit of the share, in bytes.
    fn limit(&self) -> u64;
    /// Bytes of the share that no slot accounts for.
    fn untracked(&self) -> u64;
}

/// Locks that mark slots as owned. A lock ends with its process.
///
/// The kernel's locks belong to processes, not to threads. So only one thread of a process may lock
/// and unlock at a time; otherwise one thread would release a lock that another has just taken.
pub trait SlotLocks {
    /// Locks a slot unless a living process holds it.
    fn try_lock(&self, slot: usize) -> bool;
    /// Unlocks a slot.
    fn unlock(&self, slot: usize);
}

/// An allocation that does not fit into the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitExceeded {
    /// Bytes in use at that moment, concurrent attempts included.
    pub used: u64,
}

/// Attempts for an allocation that does not fit at once: a concurrent attempt may have been refused
/// as well, or its process may be dead.
const MAX_ATTEMPTS: u32 = 4;

/// Claims a free slot and clears it. Returns `None` if all slots are owned.
pub fn claim_slot<B: SlotTable>(table: &B, locks: &impl SlotLocks) -> Option<usize> {
    let slot = (0..table.slots()).find(|slot| locks.try_lock(*slot))?;
    table.used(slot).store(0);
    // This precedes every charge, so that other processes include the slot in their sums.
    table.high().raise(slot as u64 + 1);
    Some(slot)
}

/// Charges an allocation to a slot before it is made. `before_retry` runs before each further
/// attempt, with the number of attempts so far; callers reap dead slots there.
pub fn try_charge<B: SlotTable>(
    table: &B,
    slot: usize,
    bytes: u64,
    mut before_retry: impl FnMut(u32),
) -> Result<(), LimitExceeded> {
    let mut attempts = 0;
    // A charge above the limit is never written, so sums stay far from overflow.
    if bytes > table.limit() {
        return Err(LimitExceeded { used: total(table) });
    }
    loop {
        table.used(slot).add(bytes);
        let used = total(table);
        // After the charge was written: a limit that is lowered before the slots are read is seen here, or the charge is seen there.
        if used <= table.limit() {
            return Ok(());
        }
        table.used(slot).sub(bytes);
        attempts += 1;
        if attempts == MAX_ATTEMPTS {
            return Err(LimitExceeded { used: used.saturating_sub(bytes) });
        }
        before_retry(attempts);
    }
}

/// Charges bytes that are allocated already, without a check.
pub fn charge_unchecked<B: SlotTable>(table: &B, slot: usize, bytes: u64) {
    table.used(slot).add(bytes);
}

/// Releases a charge. Only the process that owns a slot writes to it, so the caller knows what it
/// charged.
pub fn release<B: SlotTable>(table: &B, slot: usize, bytes: u64) {
    table.used(slot).sub(bytes);
}

/// Bytes in use by the whole share.
pub fn total<B: SlotTable>(table: &B) -> u64 {
    let high = usize::try_from(table.high().load()).unwrap_or(usize::MAX).min(table.slots());
    let (mut sum, mut is_beyond) = (table.untracked(), false);
    for slot in 0..high {
        // A slot may hold any value. An overflow flag is cheaper than saturating additions, which
        // would each wait for a comparison.
        let (next, went_beyond) = sum.overflowing_add(table.used(slot).load());
        sum = next;
        is_beyond |= went_beyond;
    }
    if is_beyond { u64::MAX } else { sum }
}

/// Clears the slots of dead processes. Returns the number of slots that held a charge.
pub fn reap<B: SlotTable>(table: &B, locks: &impl SlotLocks, own_slot: usize) -> usize {
    let high = usize::try_from(table.high().load()).unwrap_or(usize::MAX).min(table.slots());
    let mut emptied = 0;
    for slot in (0..high).filter(|slot| *slot != own_slot) {
        if table.used(slot).load() == 0 || !locks.try_lock(slot) {
            continue;
        }
        // Another process may have cleared and unlocked it in between. The lock is ours, so writing
        // is safe.
        table.used(slot).store(0);
        locks.unlock(slot);
        emptied += 1;
    }
    emptied
}

#[cfg(test)]
mod tests;
