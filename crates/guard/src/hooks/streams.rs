//! Streams and events, as far as leases need them: what waits for a stream marks it, so that the agent sees when its work
//! has ended.

use crate::cuda::{Opaque, Status};
use crate::devices;
use crate::leases::Leases;
use crate::process;
use crate::tracking::streams::Stream;

hooks! {
    CUDA, Status;

    /// Waits for the work of a stream.
    fn cuStreamSynchronize(stream: Opaque) -> Status {
        before_wait(Stream::legacy(stream));
        real::cuStreamSynchronize(stream)
    }

    /// As above, with the per-thread default stream.
    fn cuStreamSynchronize_ptsz(stream: Opaque) -> Status {
        before_wait(Stream::per_thread(stream));
        real::cuStreamSynchronize_ptsz(stream)
    }

    /// Waits for the work of a context.
    fn cuCtxSynchronize() -> Status {
        before_wait(Stream::legacy(0));
        real::cuCtxSynchronize()
    }

    /// Waits for the work of a context that need not be the current one, since CUDA 13.0.
    fn cuCtxSynchronize_v2(context: Opaque) -> Status {
        before_wait(Stream::legacy(0));
        real::cuCtxSynchronize_v2(context)
    }

    /// Records an event in a stream.
    fn cuEventRecord(event: Opaque, stream: Opaque) -> Status {
        before_wait(Stream::legacy(stream));
        real::cuEventRecord(event, stream)
    }

    /// As above, with the per-thread default stream.
    fn cuEventRecord_ptsz(event: Opaque, stream: Opaque) -> Status {
        before_wait(Stream::per_thread(stream));
        real::cuEventRecord_ptsz(event, stream)
    }

    /// Records an event in a stream, with flags.
    fn cuEventRecordWithFlags(event: Opaque, stream: Opaque, flags: u32) -> Status {
        before_wait(Stream::legacy(stream));
        real::cuEventRecordWithFlags(event, stream, flags)
    }

    /// As above, with the per-thread default stream.
    fn cuEventRecordWithFlags_ptsz(event: Opaque, stream: Opaque, flags: u32) -> Status {
        before_wait(Stream::per_thread(stream));
        real::cuEventRecordWithFlags_ptsz(event, stream, flags)
    }

    /// Destroys a stream, before CUDA 4.0.
    fn cuStreamDestroy(stream: Opaque) -> Status {
        forget(stream);
        real::cuStreamDestroy(stream)
    }

    /// Destroys a stream. Its work goes on.
    fn cuStreamDestroy_v2(stream: Opaque) -> Status {
        forget(stream);
        real::cuStreamDestroy_v2(stream)
    }
}

/// The leases of the current GPU.
#[inline]
fn leases() -> Option<&'static Leases> {
    let process = process::get().ok()?;
    if let [share] = process.shares.all() {
        return share.leases.get();
    }
    let mut share_indices = process.shares_of(devices::current().ok()?).ok()?;
    process.shares.get(share_indices.next()?)?.leases.get()
}

#[inline]
fn before_wait(stream: Stream) {
    if let Some(leases) = leases() {
        leases.before_wait(stream);
    }
}

fn forget(stream: Opaque) {
    let Ok(process) = process::get() else { return };
    // The stream may be of another GPU than the current one.
    for share in process.shares.all() {
        if let Some(leases) = share.leases.get() {
            leases.forget(Stream::legacy(stream));
        }
    }
}
