//! The number of captures under way. While there is none, no stream is being captured, and the driver need not be asked.
//!
//! A capture that ends with its context stays in the number. Then the driver is asked more often, and memory is not moved.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::cuda::Status;
use crate::tracking::streams::Stream;

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether any stream may be being captured.
pub(crate) fn are_any() -> bool {
    COUNT.load(Ordering::SeqCst) > 0
}

/// Begins a capture with `work`. It counts from before the call: other threads may use the stream once it is captured.
pub(crate) fn begin(work: impl FnOnce() -> Status) -> Status {
    COUNT.fetch_add(1, Ordering::SeqCst);
    let status = work();
    if !status.is_success() {
        count_down();
    }
    status
}

/// Ends the capture of a stream with `work`, which may fail and end it all the same.
pub(crate) fn end(stream: Stream, work: impl FnOnce() -> Status) -> Status {
    let was_capturing = stream.is_capturing();
    let status = work();
    if was_capturing && !stream.is_capturing() {
        count_down();
    }
    status
}

/// Destroys a stream with `work`, and a capture of it with it.
pub(crate) fn end_with(stream: Stream, work: impl FnOnce() -> Status) -> Status {
    let was_capturing = stream.is_capturing();
    let status = work();
    if was_capturing && status.is_success() {
        count_down();
    }
    status
}

fn count_down() {
    // Two threads may have ended one capture.
    let _ = COUNT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
}
