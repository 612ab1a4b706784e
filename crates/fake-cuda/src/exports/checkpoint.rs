//! Checkpoints of processes.

use std::ffi::{c_int, c_uint};

use crate::checkpoint::client::ask;
use crate::checkpoint::{GpuPair, Request};
use crate::code::{CallResult, Code};
use crate::pointers::{In, Out};

/// `CUcheckpointLockArgs`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LockArgs {
    timeout: c_uint,
    reserved: [c_uint; 15],
}

/// `CUcheckpointCheckpointArgs`, and `CUcheckpointUnlockArgs`. Storage of the caller, since CUDA 13.4, is not simulated: its
/// pointer counts as reserved.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PlainArgs {
    reserved: [u64; 8],
}

/// `CUcheckpointRestoreArgs`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RestoreArgs {
    pairs: In<GpuPair>,
    pair_count: c_uint,
    padding: c_uint,
    reserved: [u64; 6],
}

calls! { CALLS = control_call;
    fn cuCheckpointProcessGetRestoreThreadId(pid: c_int, thread: Out<c_int>) {
        thread.check()?;
        let number = ask(pid, &Request::Thread)?;
        thread.put(c_int::try_from(number).map_err(|_| Code::UNKNOWN)?)
    }

    fn cuCheckpointProcessGetState(pid: c_int, state: Out<c_uint>) {
        state.check()?;
        state.put(ask(pid, &Request::State)?)
    }

    fn cuCheckpointProcessLock(pid: c_int, args: In<LockArgs>) {
        let args = if args.is_null() { None } else { Some(args.read()?) };
        require_zeros(args.is_none_or(|args| args.reserved == [0; 15]))?;
        ask(pid, &Request::Lock { timeout: args.map_or(0, |args| args.timeout) }).map(drop)
    }

    fn cuCheckpointProcessCheckpoint(pid: c_int, args: In<PlainArgs>) {
        check_plain(args)?;
        ask(pid, &Request::Checkpoint).map(drop)
    }

    fn cuCheckpointProcessRestore(pid: c_int, args: In<RestoreArgs>) {
        let mut pairs = Vec::new();
        if !args.is_null() {
            let args = args.read()?;
            require_zeros(args.reserved == [0; 6] && args.padding == 0)?;
            pairs = args.pairs.list(args.pair_count as usize)?;
        }
        ask(pid, &Request::Restore(pairs)).map(drop)
    }

    fn cuCheckpointProcessUnlock(pid: c_int, args: In<PlainArgs>) {
        check_plain(args)?;
        ask(pid, &Request::Unlock).map(drop)
    }
}

fn check_plain(args: In<PlainArgs>) -> CallResult {
    require_zeros(args.is_null() || args.read()?.reserved == [0; 8])
}

fn require_zeros(are_zeros: bool) -> CallResult {
    if are_zeros { Ok(()) } else { Err(Code::INVALID_VALUE) }
}
