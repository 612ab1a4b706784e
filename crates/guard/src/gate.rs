//! The gate of a share: open, held or fenced.

use core::sync::atomic::Ordering;

use octavo_guard_abi::limits::Gate;

use crate::cuda::Status;
use crate::shares::Share;
use crate::sys::futex::{self, Reach};

/// Longest sleep at a held gate before it is looked at again, in milliseconds: who opens it may have no way
/// to wake us.
const LONGEST: u32 = 20;

/// Whether the gate is open.
#[inline]
pub(crate) fn is_open(share: &Share) -> bool {
    share.limits.live().gate.load(Ordering::Acquire) == Gate::Open as u32
}

/// Goes on if the gate is open, waits while it is held, fails with `NOT_PERMITTED` where it is fenced.
#[inline]
pub(crate) fn pass(share: &Share) -> Result<(), Status> {
    if is_open(share) { Ok(()) } else { wait(share) }
}

#[cold]
fn wait(share: &Share) -> Result<(), Status> {
    let live = share.limits.live();
    let mut patience = 1;
    loop {
        let word = live.gate.load(Ordering::Acquire);
        heed(share);
        match Gate::of(word) {
            Gate::Open => return Ok(()),
            Gate::Fenced => return Err(Status::NOT_PERMITTED),
            Gate::Held => {
                futex::wait(&live.gate, word, patience, Reach::Machine);
                patience = (patience * 2).min(LONGEST);
            }
        }
    }
}

/// Tells the agent which epoch of the gate this process has seen.
pub(crate) fn heed(share: &Share) {
    let epoch = u64::from(share.limits.live().epoch.load(Ordering::Acquire));
    let word = &share.slot().epoch;
    if word.load(Ordering::Relaxed) != epoch {
        word.store(epoch, Ordering::Release);
    }
}
