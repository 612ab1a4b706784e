//! The GPU's lock: a word that names its holder, and can be taken from a dead holder.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::file::{self, LockByte};
use crate::process_handle::ProcessHandle;

/// Spins before a check whether the holder is alive.
const SPINS_BEFORE_CHECK: u32 = 2000;

/// Proof that this process holds the GPU's lock.
pub(crate) struct Locked<'a>(pub(crate) &'a ProcessHandle);

impl ProcessHandle {
    /// Takes the GPU's lock, if necessary from a dead holder.
    pub(crate) fn lock(&self) -> Locked<'_> {
        let word = &self.map().header.lock;
        let me = self.number();
        let mut turns = 0_u32;
        loop {
            if word.compare_exchange_weak(0, me, Acquire, Relaxed).is_ok() {
                return Locked(self);
            }
            turns += 1;
            if turns.is_multiple_of(SPINS_BEFORE_CHECK) {
                let holder = word.load(Relaxed);
                if self.is_dead(holder)
                    && word.compare_exchange(holder, me, AcqRel, Relaxed).is_ok()
                {
                    let locked = Locked(self);
                    // It may have died between writing its own count and the total.
                    locked.recompute_total();
                    return locked;
                }
            }
            if turns.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn is_dead(&self, holder: u32) -> bool {
        let Some(slot) = (holder as usize).checked_sub(1) else { return false };
        holder != self.number() && !file::is_held(self.file(), LockByte::Slot(slot))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.map().header.lock.store(0, Release);
    }
}
