//! Streams and events, as far as leases need them: what waits for a stream marks it, so that the agent sees when its work
//! has ended. While the process's memory is swapped out, they wait.

use crate::cuda::{Opaque, Status};
use crate::leases::{self, wait_while_suspended};
use crate::process;
use crate::tracking::captures;
use crate::tracking::streams::Stream;

hooks! {
    CUDA, Status;

    /// Waits for the work of a stream.
    fn cuStreamSynchronize(stream: Opaque) -> Status {
        around_wait(Stream::legacy(stream), false, || real::cuStreamSynchronize(stream))
    }

    /// As above, with the per-thread default stream.
    fn cuStreamSynchronize_ptsz(stream: Opaque) -> Status {
        around_wait(Stream::per_thread(stream), false, || real::cuStreamSynchronize_ptsz(stream))
    }

    /// Asks whether the work of a stream has ended.
    fn cuStreamQuery(stream: Opaque) -> Status {
        around_query(Stream::legacy(stream), || real::cuStreamQuery(stream))
    }

    /// As above, with the per-thread default stream.
    fn cuStreamQuery_ptsz(stream: Opaque) -> Status {
        around_query(Stream::per_thread(stream), || real::cuStreamQuery_ptsz(stream))
    }

    /// Waits for the work of a context.
    fn cuCtxSynchronize() -> Status {
        around_wait(Stream::legacy(0), true, real::cuCtxSynchronize)
    }

    /// Waits for the work of a context that need not be the current one, since CUDA 13.0.
    fn cuCtxSynchronize_v2(context: Opaque) -> Status {
        around_wait(Stream::legacy(0), false, || real::cuCtxSynchronize_v2(context))
    }

    /// Records an event in a stream.
    fn cuEventRecord(event: Opaque, stream: Opaque) -> Status {
        around_wait(Stream::legacy(stream), false, || real::cuEventRecord(event, stream))
    }

    /// As above, with the per-thread default stream.
    fn cuEventRecord_ptsz(event: Opaque, stream: Opaque) -> Status {
        around_wait(Stream::per_thread(stream), false, || real::cuEventRecord_ptsz(event, stream))
    }

    /// Records an event in a stream, with flags.
    fn cuEventRecordWithFlags(event: Opaque, stream: Opaque, flags: u32) -> Status {
        around_wait(Stream::legacy(stream), false, || real::cuEventRecordWithFlags(event, stream, flags))
    }

    /// As above, with the per-thread default stream.
    fn cuEventRecordWithFlags_ptsz(event: Opaque, stream: Opaque, flags: u32) -> Status {
        around_wait(Stream::per_thread(stream), false, || real::cuEventRecordWithFlags_ptsz(event, stream, flags))
    }

    /// Destroys a stream, before CUDA 4.0.
    fn cuStreamDestroy(stream: Opaque) -> Status {
        forget(stream);
        captures::end_with(Stream::legacy(stream), || real::cuStreamDestroy(stream))
    }

    /// Destroys a stream. Its work goes on.
    fn cuStreamDestroy_v2(stream: Opaque) -> Status {
        forget(stream);
        captures::end_with(Stream::legacy(stream), || real::cuStreamDestroy_v2(stream))
    }
}

/// Marks a stream before `wait`, which may be for all work of the current context.
#[inline]
fn around_wait(stream: Stream, is_all: bool, wait: impl FnOnce() -> Status) -> Status {
    wait_while_suspended();
    let Some(leases) = leases::of(stream) else { return wait() };
    leases.before_wait(stream);
    let status = wait();
    leases.after_wait(status, is_all);
    status
}

/// Marks a stream before `query`. A mark in a default stream would make it wait for other streams, which the program may open
/// only afterwards.
#[inline]
fn around_query(stream: Stream, query: impl FnOnce() -> Status) -> Status {
    if stream.is_default() {
        wait_while_suspended();
        query()
    } else {
        around_wait(stream, false, query)
    }
}

fn forget(stream: Opaque) {
    wait_while_suspended();
    let Ok(process) = process::get() else { return };
    // The stream may be of another GPU than the current one.
    for share in process.shares.all() {
        if let Some(leases) = share.leases.get() {
            leases.forget(Stream::legacy(stream));
        }
    }
}
