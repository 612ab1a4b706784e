//! Plain memory that is freed in the order of a stream. It belongs to no pool, so the driver has it back when the
//! stream comes so far, and it counts until then.
//!
//! The stream itself says when: a function of the host stands behind the free. The guard must not wait for it here,
//! since the stream may be waiting for what the program does next.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::cuda::{Pointer, Status};
use crate::platform::sys::futex;
use crate::process;
use crate::tracking::account;
use crate::tracking::streams::Stream;
use crate::tracking::table::EntryKind;

/// Names what was freed, to the function that is called.
static LAST_ID: AtomicUsize = AtomicUsize::new(0);

/// How long an allocation that does not fit waits for what streams are about to free, in milliseconds.
const MAX_WAIT_MS: u32 = 1000;

/// Frees memory by `free`, which puts that into a stream.
pub(crate) fn free(pointer: Pointer, stream: Stream, free: impl FnOnce() -> Status) -> Status {
    let table = match process::get() {
        Ok(process) => &process.table,
        Err(status) => return status,
    };
    let entry = table.remove(EntryKind::Memory, pointer);
    let status = free();
    let Some(entry) = entry else { return status };
    if !status.is_success() {
        // Full: it stays counted to the end of the process, which is on the side of the wall.
        let _ = table.insert(EntryKind::Memory, pointer, entry);
        return status;
    }
    let id = LAST_ID.fetch_add(1, Ordering::Relaxed) + 1;
    let is_tracked = table.insert(EntryKind::Freed, id as u64, entry).is_ok();
    if !is_tracked || !stream.call_after(on_stream_reached, id).is_success() {
        // A driver before CUDA 10, or no memory to remember it.
        stream.synchronize();
        if is_tracked {
            on_stream_reached(core::ptr::without_provenance_mut(id));
        } else {
            account::release(entry.charge);
        }
    }
    status
}

/// The driver calls this when a stream has freed something. What a context's end took out before is not there.
extern "C" fn on_stream_reached(id: *mut c_void) {
    let Ok(process) = process::get() else { return };
    if let Some(entry) = process.table.remove(EntryKind::Freed, id.addr() as u64) {
        account::release(entry.charge);
    }
}

/// Waits until streams have freed so many bytes, or all that they are about to; gives how many.
#[cold]
pub(crate) fn wait(bytes: u64) -> u64 {
    let before = pending_bytes();
    let mut now = before;
    for _ in 0..MAX_WAIT_MS {
        if now == 0 || before.saturating_sub(now) >= bytes {
            break;
        }
        futex::sleep_milliseconds(1);
        now = pending_bytes();
    }
    before.saturating_sub(now)
}

fn pending_bytes() -> u64 {
    let mut bytes = 0;
    if let (true, Ok(process)) = (LAST_ID.load(Ordering::Relaxed) > 0, process::get()) {
        process.table.each(|kind, _, entry| {
            if kind == EntryKind::Freed {
                bytes += entry.charge.bytes();
            }
        });
    }
    bytes
}
