//! Moves of all movable memory of a share, as the agent asks for them by the lease page. The guard's own thread makes them.

use core::sync::atomic::Ordering;

use octavo_guard_abi::lease_page::{CAN_MOVE, CANNOT_MOVE, LeasePage, MOVE_BUSY, TO_HOST};

use super::memory::{State, move_in, move_out, next};
use super::shown::show;
use super::work::wait_for_work;
use crate::cuda::Pointer;
use crate::process::Process;
use crate::shares::Share;

/// What a move that succeeded answers.
const MOVED: u32 = 0;

/// Makes the move that the agent asks for, if any, and shows it what can be moved.
pub(crate) fn serve(process: &'static Process, share: &Share) {
    if !share.moves_pages {
        return;
    }
    let Some(page) = share.leases.page() else { return };
    let can_move = if process.devices.is_one() { CAN_MOVE } else { CANNOT_MOVE };
    page.can_move.store(can_move, Ordering::Relaxed);
    let asked = page.move_asked.load(Ordering::Acquire);
    if asked != page.move_done.load(Ordering::Relaxed) {
        let ended = if asked & TO_HOST != 0 {
            leave(process, share, (page, asked))
        } else {
            come_back(process, share, page)
        };
        show(share, page);
        page.move_status.store(ended.err().unwrap_or(MOVED), Ordering::Relaxed);
        page.move_done.store(asked, Ordering::Release);
    }
    // All that was away may have been freed.
    open(process);
    show(share, page);
}

/// Moves all to the host. If something stays, all comes back.
fn leave(
    process: &'static Process,
    share: &Share,
    (page, asked): (&LeasePage, u32),
) -> Result<(), u32> {
    let calls = &process.movable.calls;
    if !calls.close() {
        return Err(MOVE_BUSY);
    }
    let quiet = wait_for_work(process);
    // Work may have lasted for longer than the agent waited.
    let is_meant = || page.move_asked.load(Ordering::Acquire) == asked && calls.stay_closed();
    let closed = quiet.and_then(|()| is_meant().then_some(()).ok_or(MOVE_BUSY));
    if let Err(code) = closed {
        open(process);
        return Err(code);
    }
    let mut last = 0;
    while let Some(address) = next(process, share, State::Resident, last, true) {
        if let Err(code) = move_out(process, (share, page), address) {
            // What cannot return is moved back when the agent asks for it.
            let _ = come_back(process, share, page);
            return Err(code);
        }
        show(share, page);
        last = address;
    }
    open(process);
    Ok(())
}

/// Moves all back to the GPU, the last one first, up to the first one that fails.
fn come_back(process: &'static Process, share: &Share, page: &LeasePage) -> Result<(), u32> {
    let mut last = Pointer::MAX;
    while let Some(address) = next(process, share, State::Out, last, false) {
        move_in(process, (share, page), address)?;
        show(share, page);
        last = address;
    }
    open(process);
    Ok(())
}

/// Lets threads into the driver again, if no memory is away.
fn open(process: &Process) {
    if process.shares.all().iter().all(|share| share.moved_bytes.load(Ordering::Relaxed) == 0) {
        process.movable.calls.open();
    }
}
