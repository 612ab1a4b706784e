//! Plain memory freed in stream order. It belongs to no pool, so the driver frees it when the
//! stream reaches the free, and it is charged until then.
//!
//! A host function queued behind the free reports that moment. The guard must not wait for the
//! stream here, since the stream may wait for the program's next call.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::cuda::{Pointer, Status};
use crate::platform::sys::futex;
use crate::process;
use crate::tracking::slabs;
use crate::tracking::streams::Stream;
use crate::tracking::table::EntryKind;

/// Identifies a pending free to the host function.
static LAST_ID: AtomicUsize = AtomicUsize::new(0);

/// How long an allocation that does not fit waits for pending frees, in milliseconds.
const MAX_WAIT_MS: u32 = 1000;

/// Frees memory with `free`, which queues it in a stream.
pub(crate) fn free(pointer: Pointer, stream: Stream, free: impl FnOnce() -> Status) -> Status {
    let table = match process::get() {
        Ok(process) => &process.table,
        Err(status) => return status,
    };
    let entry = table.remove(EntryKind::Memory, pointer);
    let status = free();
    let Some(entry) = entry else { return status };
    if !status.is_success() {
        // If the table is full, it stays charged until the process ends, so the limit still holds.
        let _ = table.insert(EntryKind::Memory, pointer, entry);
        return status;
    }
    let id = LAST_ID.fetch_add(1, Ordering::Relaxed) + 1;
    let is_tracked = table.insert(EntryKind::Freed, id as u64, entry).is_ok();
    if !is_tracked || !stream.call_after(on_stream_reached, id).is_success() {
        // A driver before CUDA 10, or no memory for an entry.
        stream.synchronize();
        if is_tracked {
            on_stream_reached(core::ptr::without_provenance_mut(id));
        } else {
            slabs::release_memory(entry);
        }
    }
    status
}

/// The driver calls this when a stream has freed something. The entry is gone if the context ended
/// first.
extern "C" fn on_stream_reached(id: *mut c_void) {
    let Ok(process) = process::get() else { return };
    if let Some(entry) = process.table.remove(EntryKind::Freed, id.addr() as u64) {
        slabs::release_memory(entry);
    }
}

/// Waits until streams have freed `bytes`, or all that is pending. Returns the bytes freed.
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
                // A piece of a slab has no charge of its own.
                bytes += entry.charge.bytes().max(1);
            }
        });
    }
    bytes
}
