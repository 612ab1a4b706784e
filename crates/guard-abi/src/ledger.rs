//! The ledger: who has how much of a share, decided without a lock and without anything to repair.
//!
//! A process writes what it wants to its own_slot slot first and then adds up all slots. Of two that ask at the
//! same time each sees at least the other's wish if it is the later one, so both may be refused once, and
//! never both be granted more than there is. Nobody keeps a sum; a process that is killed at any step leaves
//! nothing behind but its own_slot slot, which whoever meets it empties ([`reap`]).

use core::sync::atomic::{AtomicU64, Ordering};

/// A word that processes share. Its operations are sequentially consistent.
pub trait SharedWord {
    /// Reads it.
    fn load(&self) -> u64;
    /// Writes it.
    fn store(&self, value: u64);
    /// Adds to it and gives what it was.
    fn add(&self, value: u64) -> u64;
    /// Takes away from it.
    fn sub(&self, value: u64);
    /// Raises it to a value.
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
    /// What they are made of.
    type Word: SharedWord;
    /// Number of slots.
    fn slots(&self) -> usize;
    /// One more than the highest slot that was ever taken.
    fn high(&self) -> &Self::Word;
    /// Bytes that a slot's process is counted for.
    fn used(&self, slot: usize) -> &Self::Word;
    /// Bytes that the share may have.
    fn limit(&self) -> u64;
    /// Bytes that the share has beside those in the slots.
    fn untracked(&self) -> u64;
}

/// Ownership of slots, which ends with the process that has it.
///
/// The kernel's locks know processes and not threads: a process must let one thread at a time try_lock and give
/// back, or one thread's giving back would free what another one has just taken.
pub trait SlotLocks {
    /// Takes a slot if no living process has it.
    fn try_lock(&self, slot: usize) -> bool;
    /// Gives a slot back.
    fn unlock(&self, slot: usize);
}

/// An allocation that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitExceeded {
    /// Bytes that the share had when it was refused, other wishes of that moment included.
    pub used: u64,
}

/// How often an allocation is tried that did not fit at once: another process may have asked for more at
/// the same moment and been refused, or be dead.
const MAX_ATTEMPTS: u32 = 4;

/// Takes a free slot and empties it; none if all have locks.
pub fn claim_slot<B: SlotTable>(table: &B, locks: &impl SlotLocks) -> Option<usize> {
    let slot = (0..table.slots()).find(|slot| locks.try_lock(*slot))?;
    table.used(slot).store(0);
    // Before anything is charged: whoever adds up must look at this slot, too.
    table.high().raise(slot as u64 + 1);
    Some(slot)
}

/// Counts an allocation for a slot if the share has room, before it is made. `before_retry` is called before each
/// further try, with the number of attempts so far: it is where the dead are reaped.
pub fn try_charge<B: SlotTable>(
    table: &B,
    slot: usize,
    bytes: u64,
    mut before_retry: impl FnMut(u32),
) -> Result<(), LimitExceeded> {
    let limit = table.limit();
    let mut attempts = 0;
    // What no share could hold is not even written down: sums stay far from their end.
    if bytes > limit {
        return Err(LimitExceeded { used: total(table) });
    }
    loop {
        table.used(slot).add(bytes);
        let used = total(table);
        if used <= limit {
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

/// Counts bytes that are taken already, whether they fit or not.
pub fn charge_unchecked<B: SlotTable>(table: &B, slot: usize, bytes: u64) {
    table.used(slot).add(bytes);
}

/// Gives back what was counted for a slot. The process itself is the slot's only writer, and says what it
/// counted before.
pub fn release<B: SlotTable>(table: &B, slot: usize, bytes: u64) {
    table.used(slot).sub(bytes);
}

/// Bytes that the share has.
pub fn total<B: SlotTable>(table: &B) -> u64 {
    let high = usize::try_from(table.high().load()).unwrap_or(usize::MAX).min(table.slots());
    let (mut sum, mut is_beyond) = (table.untracked(), false);
    for slot in 0..high {
        // A slot may hold anything that somebody wrote into it. Remembering that the sum went beyond the end,
        // rather than holding it there, keeps the additions from waiting for one another's comparisons.
        let (next, went_beyond) = sum.overflowing_add(table.used(slot).load());
        sum = next;
        is_beyond |= went_beyond;
    }
    if is_beyond { u64::MAX } else { sum }
}

/// Empties the slots of processes that are no more; gives the number of slots that held anything.
pub fn reap<B: SlotTable>(table: &B, locks: &impl SlotLocks, own_slot: usize) -> usize {
    let high = usize::try_from(table.high().load()).unwrap_or(usize::MAX).min(table.slots());
    let mut emptied = 0;
    for slot in (0..high).filter(|slot| *slot != own_slot) {
        if table.used(slot).load() == 0 || !locks.try_lock(slot) {
            continue;
        }
        // It may have been emptied and left by another one in between: still ours to write.
        table.used(slot).store(0);
        locks.unlock(slot);
        emptied += 1;
    }
    emptied
}

#[cfg(test)]
mod tests;
