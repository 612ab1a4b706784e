//! Streams and their capture.

use std::ffi::{c_int, c_uint};

use crate::code::{CallResult, Code};
use crate::execution::callbacks::{self, Callback};
use crate::execution::capture;
use crate::execution::graph::Op;
use crate::execution::stream::{self, Default, STREAMS};
use crate::memory::heap::{self, Range};
use crate::pointers::{In, Out};
use crate::table::Handle;

calls! { CALLS = call;
    fn cuStreamCreate(handle: Out<Handle>, flags: c_uint) {
        handle.check()?;
        handle.put(stream::create_here(flags, 0)?)
    }

    fn cuStreamCreateWithPriority(handle: Out<Handle>, flags: c_uint, priority: c_int) {
        handle.check()?;
        handle.put(stream::create_here(flags, priority.clamp(-5, 0))?)
    }

    fn cuStreamDestroy(handle: Handle) { stream::destroy(handle) }

    fn cuStreamDestroy_v2(handle: Handle) { stream::destroy(handle) }

    /// Capture mode of a thread; no mode has an effect here.
    fn cuThreadExchangeStreamCaptureMode(mode: Out<c_uint>) {
        mode.check()?;
        mode.put(0)
    }
}

stream_calls! { STREAM = hot_call;
    fn cuStreamQuery, cuStreamQuery_ptsz(default, handle: Handle) {
        stream::query(handle, default)
    }

    fn cuStreamSynchronize, cuStreamSynchronize_ptsz(default, handle: Handle) {
        stream::synchronize(handle, default)
    }

    fn cuStreamGetFlags, cuStreamGetFlags_ptsz(default, handle: Handle, flags: Out<c_uint>) {
        flags.put(stream::with(handle, default, |stream| Ok(stream.flags))?)
    }

    fn cuStreamGetPriority, cuStreamGetPriority_ptsz(
        default,
        handle: Handle,
        priority: Out<c_int>,
    ) {
        priority.put(stream::with(handle, default, |stream| Ok(stream.priority))?)
    }

    fn cuStreamGetId, cuStreamGetId_ptsz(default, handle: Handle, id: Out<u64>) {
        id.put(stream::with(handle, default, |stream| Ok(stream.id))?)
    }

    fn cuStreamGetCtx, cuStreamGetCtx_ptsz(default, handle: Handle, context: Out<Handle>) {
        context.put(stream::context_of(handle, default)?)
    }

    fn cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz(
        default,
        handle: Handle,
        context: Out<Handle>,
        green: Out<Handle>,
    ) {
        green.offer(0);
        context.put(stream::context_of(handle, default)?)
    }

    fn cuStreamGetDevice, cuStreamGetDevice_ptsz(default, handle: Handle, ordinal: Out<c_int>) {
        let device = stream::with(handle, default, |stream| Ok(stream.device))?;
        ordinal.put(c_int::try_from(device).unwrap_or(0))
    }

    fn cuStreamAddCallback, cuStreamAddCallback_ptsz(
        default,
        handle: Handle,
        function: Option<unsafe extern "C" fn(Handle, u32, usize)>,
        data: usize,
        _flags: c_uint,
    ) {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        let own = stream::resolve(handle, default)?;
        STREAMS.with(own, |stream| {
            stream.refuse_capture()?;
            callbacks::submit(own, stream, Callback::OfStream(function, handle, data))
        })
    }

    fn cuLaunchHostFunc, cuLaunchHostFunc_ptsz(
        default,
        handle: Handle,
        function: Option<unsafe extern "C" fn(usize)>,
        data: usize,
    ) {
        let callback = Callback::Plain(function.ok_or(Code::INVALID_VALUE)?, data);
        let handle = stream::resolve(handle, default)?;
        if capture::is_capturing(handle)? {
            return capture::add(handle, Op::Host(callback));
        }
        STREAMS.with(handle, |stream| callbacks::submit(handle, stream, callback))
    }

    fn cuStreamWriteValue32, cuStreamWriteValue32_ptsz(
        default,
        handle: Handle,
        address: u64,
        value: c_uint,
        flags: c_uint,
    ) {
        store(handle, default, Callback::Store { address, value: value.into(), bytes: 4 }, flags)
    }

    fn cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz(
        default,
        handle: Handle,
        address: u64,
        value: c_uint,
        flags: c_uint,
    ) {
        store(handle, default, Callback::Store { address, value: value.into(), bytes: 4 }, flags)
    }

    fn cuStreamWriteValue64, cuStreamWriteValue64_ptsz(
        default,
        handle: Handle,
        address: u64,
        value: u64,
        flags: c_uint,
    ) {
        store(handle, default, Callback::Store { address, value, bytes: 8 }, flags)
    }

    fn cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz(
        default,
        handle: Handle,
        address: u64,
        value: u64,
        flags: c_uint,
    ) {
        store(handle, default, Callback::Store { address, value, bytes: 8 }, flags)
    }

    /// Managed memory is accessible everywhere.
    fn cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz(
        default,
        handle: Handle,
        _address: u64,
        _size: u64,
        _flags: c_uint,
    ) {
        stream::with(handle, default, |_| Ok(()))
    }
}

stream_calls! { CAPTURE = call;
    fn cuStreamBeginCapture, cuStreamBeginCapture_ptsz(default, handle: Handle) {
        capture::begin(handle, default, None)
    }

    fn cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz(
        default,
        handle: Handle,
        mode: c_uint,
    ) {
        check_mode(mode)?;
        capture::begin(handle, default, None)
    }

    fn cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz(
        default,
        handle: Handle,
        graph: Handle,
        nodes: In<Handle>,
        _edges: usize,
        count: usize,
        mode: c_uint,
    ) {
        check_mode(mode)?;
        let nodes = nodes.list(count)?;
        capture::begin(handle, default, Some((graph, nodes)))
    }

    fn cuStreamEndCapture, cuStreamEndCapture_ptsz(default, handle: Handle, graph: Out<Handle>) {
        graph.put(0)?;
        graph.put(capture::end(handle, default)?)
    }

    fn cuStreamIsCapturing, cuStreamIsCapturing_ptsz(
        default,
        handle: Handle,
        status: Out<c_uint>,
    ) {
        status.check()?;
        status.put(capture::is_capturing(stream::resolve(handle, default)?)?.into())
    }

    fn cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz(
        default,
        handle: Handle,
        status: Out<c_uint>,
        id: Out<u64>,
    ) {
        info(handle, default, status, id, Out::at(0))
    }

    /// The dependencies of the next node are not reported.
    fn cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz(
        default,
        handle: Handle,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: Out<Handle>,
        nodes: Out<usize>,
        count: Out<usize>,
    ) {
        nodes.offer(0);
        count.offer(0);
        info(handle, default, status, id, graph)
    }

    fn cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz(
        default,
        handle: Handle,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: Out<Handle>,
        nodes: Out<usize>,
        edges: Out<usize>,
        count: Out<usize>,
    ) {
        nodes.offer(0);
        edges.offer(0);
        count.offer(0);
        info(handle, default, status, id, graph)
    }
}

/// Queues a write. It must lie in memory that the GPU can write.
fn store(handle: Handle, default: Default, store: Callback, flags: c_uint) -> CallResult {
    let Callback::Store { address, bytes, .. } = store else { return Err(Code::INVALID_VALUE) };
    let is_aligned = address.is_multiple_of(bytes);
    let is_within = |range: Range| address + bytes <= range.start + range.size;
    // `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER` is the only flag.
    if flags > 1 || !is_aligned || !heap::find(address).is_some_and(is_within) {
        return Err(Code::INVALID_VALUE);
    }
    let handle = stream::resolve(handle, default)?;
    STREAMS.with(handle, |stream| {
        stream.refuse_capture()?;
        let is_idle = stream.process_handle()?.is_known_done(stream.tail)
            && callbacks::are_done(handle, stream.callbacks);
        if is_idle {
            store.call();
            return Ok(());
        }
        callbacks::submit(handle, stream, store)
    })
}

fn check_mode(mode: c_uint) -> CallResult {
    if mode <= 2 { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

fn info(
    handle: Handle,
    default: Default,
    status: Out<c_uint>,
    id: Out<u64>,
    graph: Out<Handle>,
) -> CallResult {
    status.check()?;
    let capture = stream::with(handle, default, |stream| Ok(stream.capture.clone()))?;
    if let Some(capture) = &capture {
        id.offer(capture.id);
        graph.offer(capture.graph);
    }
    status.put(capture.is_some().into())
}
