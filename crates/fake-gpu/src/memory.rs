//! Memory per process, never more than the capacity.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::file::{self, LockByte, LockKind};
use crate::lock::Locked;
use crate::process_handle::{ProcessHandle, clear};

impl ProcessHandle {
    /// Charges `bytes` of GPU memory. Returns false if they do not fit.
    pub fn charge(&self, bytes: u64) -> bool {
        let locked = self.lock();
        if !locked.fits(bytes) {
            locked.reap();
            if !locked.fits(bytes) {
                return false;
            }
        }
        locked.add(bytes);
        true
    }

    /// Releases memory.
    pub fn refund(&self, bytes: u64) {
        self.lock().subtract(bytes);
    }

    /// Free memory in bytes.
    pub fn free(&self) -> u64 {
        let locked = self.lock();
        locked.reap();
        let header = &self.map().header;
        header.capacity.load(Relaxed).saturating_sub(header.total.load(Relaxed))
    }

    /// Memory of this process in bytes, without shared blocks.
    pub fn used(&self) -> u64 {
        self.slot().used.load(Relaxed)
    }
}

impl Locked<'_> {
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        let header = &self.0.map().header;
        let total = header.total.load(Relaxed);
        total.checked_add(bytes).is_some_and(|sum| sum <= header.capacity.load(Relaxed))
    }

    /// Writes the process's own count first. If the process dies in between, it has counted too
    /// much at most, and the total is recomputed when its lock is taken over.
    pub(crate) fn add(&self, bytes: u64) {
        let used = &self.0.slot().used;
        used.store(used.load(Relaxed) + bytes, Relaxed);
        let total = &self.0.map().header.total;
        total.store(total.load(Relaxed) + bytes, Relaxed);
    }

    pub(crate) fn subtract(&self, bytes: u64) {
        let used = &self.0.slot().used;
        used.store(used.load(Relaxed).saturating_sub(bytes), Relaxed);
        let total = &self.0.map().header.total;
        total.store(total.load(Relaxed).saturating_sub(bytes), Relaxed);
    }

    /// Clears what dead processes left.
    pub(crate) fn reap(&self) {
        let (map, file) = (self.0.map(), self.0.file());
        let mut is_changed = false;
        let slots = map.slots.iter().take(map.header.slots_used.load(Acquire) as usize);
        for (index, slot) in slots.enumerate() {
            if index == self.0.slot_index() || slot.state.load(Acquire) == 0 {
                continue;
            }
            // The lock of the byte owns the slot, so no process claims it meanwhile.
            if file::is_held(file, LockByte::Slot(index))
                || file::lock(file, LockByte::Slot(index), LockKind::Write, false).is_err()
            {
                continue;
            }
            clear(slot, &map.queues[index]);
            self.stop(index);
            self.disown(index);
            is_changed = true;
            // A failed unlock cannot be handled.
            let _ = file::unlock(file, LockByte::Slot(index));
        }
        is_changed |= self.reap_blocks();
        if is_changed {
            self.recompute_total();
        }
    }

    /// Recomputes the total.
    pub(crate) fn recompute_total(&self) {
        let map = self.0.map();
        let slots = map.slots.iter().filter(|slot| slot.state.load(Acquire) != 0);
        let blocks = map.blocks.iter().filter(|block| block.state.load(Acquire) != 0);
        let bytes: u64 = slots.map(|slot| slot.used.load(Relaxed)).sum();
        let shared: u64 = blocks.map(|block| block.bytes.load(Relaxed)).sum();
        map.header.total.store(bytes + shared, Relaxed);
    }
}
