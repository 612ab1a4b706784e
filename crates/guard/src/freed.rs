//! Plain memory that is freed in the order of a stream. It belongs to no pool, so the driver has it back when the
//! stream comes so far, and it counts until then.
//!
//! The stream itself says when: a function of the host stands behind the free. The guard must not wait for it here,
//! since the stream may be waiting for what the program does next.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::account;
use crate::cuda::{Pointer, Status};
use crate::process;
use crate::streams::Stream;
use crate::sys::futex;
use crate::table::Kind;

/// Names what was freed, to the function that is called.
static NUMBERS: AtomicUsize = AtomicUsize::new(0);

/// How long an allocation that does not fit waits for what streams are about to free, in milliseconds.
const PATIENCE: u32 = 1000;

/// Frees memory by `free`, which puts that into a stream.
pub(crate) fn free(pointer: Pointer, stream: Stream, free: impl FnOnce() -> Status) -> Status {
    let table = match process::get() {
        Ok(process) => &process.table,
        Err(status) => return status,
    };
    let entry = table.remove(Kind::Memory, pointer);
    let status = free();
    let Some(entry) = entry else { return status };
    if !status.is_success() {
        // Full: it stays counted to the end of the process, which is on the side of the wall.
        let _ = table.insert(Kind::Memory, pointer, entry);
        return status;
    }
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
    let is_kept = table.insert(Kind::Freed, number as u64, entry).is_ok();
    if !is_kept || !stream.then(came_so_far, number).is_success() {
        // A driver before CUDA 10, or no memory to remember it.
        stream.synchronize();
        if is_kept {
            came_so_far(core::ptr::without_provenance_mut(number));
        } else {
            account::release(entry.charge);
        }
    }
    status
}

/// The driver calls this when a stream has freed something. What a context's end took out before is not there.
extern "C" fn came_so_far(number: *mut c_void) {
    let Ok(process) = process::get() else { return };
    if let Some(entry) = process.table.remove(Kind::Freed, number.addr() as u64) {
        account::release(entry.charge);
    }
}

/// Waits until streams have freed so many bytes, or all that they are about to; gives how many.
#[cold]
pub(crate) fn wait(bytes: u64) -> u64 {
    let before = pending();
    let mut now = before;
    for _ in 0..PATIENCE {
        if now == 0 || before.saturating_sub(now) >= bytes {
            break;
        }
        futex::sleep(1);
        now = pending();
    }
    before.saturating_sub(now)
}

fn pending() -> u64 {
    let mut bytes = 0;
    if let (true, Ok(process)) = (NUMBERS.load(Ordering::Relaxed) > 0, process::get()) {
        process.table.each(|kind, _, entry| {
            if kind == Kind::Freed {
                bytes += entry.charge.bytes();
            }
        });
    }
    bytes
}
