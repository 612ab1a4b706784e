//! The gate of a share: open, paused or fenced.

use core::sync::atomic::Ordering;

use octavo_guard_abi::limits::ShareGate;

use crate::cuda::Status;
use crate::platform::sys::futex::{self, WaitScope};
use crate::shares::Share;

/// Longest sleep at a paused gate, in milliseconds. The agent may be unable to wake this process,
/// so the gate is polled.
const MAX_WAIT_MS: u32 = 20;

/// Whether the gate is open.
#[inline]
pub(crate) fn is_open(share: &Share) -> bool {
    share.limits.live().gate.load(Ordering::Acquire) == ShareGate::Open as u32
}

/// Returns if the gate is open, waits while it is paused, fails with `NOT_PERMITTED` if it is
/// fenced.
#[inline]
pub(crate) fn pass(share: &Share) -> Result<(), Status> {
    if is_open(share) { Ok(()) } else { wait(share) }
}

#[cold]
fn wait(share: &Share) -> Result<(), Status> {
    let live = share.limits.live();
    let mut wait_ms = 1;
    loop {
        let word = live.gate.load(Ordering::Acquire);
        ack_epoch(share);
        match ShareGate::of(word) {
            ShareGate::Open => return Ok(()),
            ShareGate::Fenced => return Err(Status::NOT_PERMITTED),
            ShareGate::Paused => {
                futex::wait(&live.gate, word, wait_ms, WaitScope::Machine);
                wait_ms = (wait_ms * 2).min(MAX_WAIT_MS);
            }
        }
    }
}

/// Tells the agent which epoch of the gate this process has seen.
pub(crate) fn ack_epoch(share: &Share) {
    let epoch = u64::from(share.limits.live().epoch.load(Ordering::Acquire));
    let word = &share.slot().epoch;
    if word.load(Ordering::Relaxed) != epoch {
        word.store(epoch, Ordering::Release);
    }
}
