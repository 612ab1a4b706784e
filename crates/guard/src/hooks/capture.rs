//! Captures of streams into graphs. The guard only counts them, so that it asks about the capture of a stream while there is one.

use crate::cuda::{Opaque, Status};
use crate::platform::ffi::Out;
use crate::tracking::captures;
use crate::tracking::streams::Stream;

hooks! {
    CUDA, Status;

    /// Begins a capture, before CUDA 10.1.
    fn cuStreamBeginCapture(stream: Opaque) -> Status {
        captures::begin(|| real::cuStreamBeginCapture(stream))
    }

    /// As above, with the per-thread default stream.
    fn cuStreamBeginCapture_ptsz(stream: Opaque) -> Status {
        captures::begin(|| real::cuStreamBeginCapture_ptsz(stream))
    }

    /// Begins a capture.
    fn cuStreamBeginCapture_v2(stream: Opaque, mode: u32) -> Status {
        captures::begin(|| real::cuStreamBeginCapture_v2(stream, mode))
    }

    /// As above, with the per-thread default stream.
    fn cuStreamBeginCapture_v2_ptsz(stream: Opaque, mode: u32) -> Status {
        captures::begin(|| real::cuStreamBeginCapture_v2_ptsz(stream, mode))
    }

    /// Begins a capture into a graph that is there.
    fn cuStreamBeginCaptureToGraph(
        stream: Opaque, graph: Opaque, after: Opaque, edges: Opaque, count: usize, mode: u32,
    ) -> Status {
        captures::begin(|| real::cuStreamBeginCaptureToGraph(stream, graph, after, edges, count, mode))
    }

    /// As above, with the per-thread default stream.
    fn cuStreamBeginCaptureToGraph_ptsz(
        stream: Opaque, graph: Opaque, after: Opaque, edges: Opaque, count: usize, mode: u32,
    ) -> Status {
        captures::begin(|| real::cuStreamBeginCaptureToGraph_ptsz(stream, graph, after, edges, count, mode))
    }

    /// Begins a capture that updates a graph, since CUDA 13.3.
    fn cuStreamBeginRecaptureToGraph(
        stream: Opaque, mode: u32, graph: Opaque, callback: Opaque, data: Opaque,
    ) -> Status {
        captures::begin(|| real::cuStreamBeginRecaptureToGraph(stream, mode, graph, callback, data))
    }

    /// As above, with the per-thread default stream.
    fn cuStreamBeginRecaptureToGraph_ptsz(
        stream: Opaque, mode: u32, graph: Opaque, callback: Opaque, data: Opaque,
    ) -> Status {
        captures::begin(|| real::cuStreamBeginRecaptureToGraph_ptsz(stream, mode, graph, callback, data))
    }

    /// Ends a capture.
    fn cuStreamEndCapture(stream: Opaque, graph: Out<Opaque>) -> Status {
        captures::end(Stream::legacy(stream), || real::cuStreamEndCapture(stream, graph))
    }

    /// As above, with the per-thread default stream.
    fn cuStreamEndCapture_ptsz(stream: Opaque, graph: Out<Opaque>) -> Status {
        captures::end(Stream::per_thread(stream), || real::cuStreamEndCapture_ptsz(stream, graph))
    }
}
