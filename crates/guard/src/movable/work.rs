//! The end of a process's work on the GPU, before its memory moves.

use octavo_guard_abi::lease_page::{MOVE_BUSY, MOVE_UNKNOWN_CONTEXT};

use super::calls::END_MS;
use super::span::within;
use crate::cuda::{Opaque, Status};
use crate::driver::call;
use crate::platform::ffi::Out;
use crate::platform::sys::{futex, task};
use crate::process::Process;
use crate::tracking::captures;

/// Sleep between two looks at the work of a context, in microseconds.
const SLEEP_US: u64 = 200;

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;

/// Waits for all work of the GPU. No call can add to it. To wait for a context would invalidate captures of its streams. The error is
/// one of the lease page.
pub(super) fn wait_for_work(process: &Process) -> Result<(), u32> {
    if captures::are_any() {
        return Err(MOVE_BUSY);
    }
    if process.has_unknown_context() {
        return Err(MOVE_UNKNOWN_CONTEXT);
    }
    let deadline = task::milliseconds().saturating_add(END_MS);
    let mut last = 0;
    while let Some(context) = process.next_context(last) {
        match within(context, || wait_for_context(context, deadline)) {
            Ok(()) => last = context,
            Err(Status::NOT_READY) => return Err(MOVE_BUSY),
            Err(Status(code)) => return Err(code),
        }
    }
    Ok(())
}

/// Waits for all work of the current context up to a deadline. Work that waits for a call of the program never ends: the call waits
/// for the move. Without an event of the context there is no such bound; then a thread that has waited for long lets all go on.
fn wait_for_context(context: Opaque, deadline: u64) -> Status {
    let mut event = 0;
    // An event takes memory, and there may be none left.
    if !call::cuEventCreate(Out::to(&mut event), NO_TIMING).is_success() {
        return call::cuCtxSynchronize();
    }
    let mut status = call::cuCtxRecordEvent(context, event);
    if status.is_success() {
        status = call::cuEventQuery(event);
        while status == Status::NOT_READY && task::milliseconds() < deadline {
            futex::sleep_microseconds(SLEEP_US);
            status = call::cuEventQuery(event);
        }
    } else if status == Status::NOT_FOUND {
        status = call::cuCtxSynchronize();
    }
    let _ = call::cuEventDestroy_v2(event);
    status
}
