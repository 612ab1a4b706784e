//! Streams: work in order.

use octavo_fake_gpu::ProcessHandle;

use crate::code::{CallResult, Code};
use crate::context::{self, CONTEXTS, device_of};
use crate::device::Device;
use crate::execution::callbacks;
use crate::execution::capture::Capture;
use crate::library;
use crate::memory::pool;
use crate::table::{Handle, HandleKind, Table};

/// A stream.
pub(crate) struct Stream {
    /// Ordinal of its device.
    pub(crate) device: usize,
    pub(crate) context: Handle,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) id: u64,
    /// Capture state, if work goes into a graph instead of the GPU.
    pub(crate) capture: Option<Capture>,
    /// Mark of its last work.
    pub(crate) tail: u64,
    /// Number of callbacks submitted so far.
    pub(crate) callbacks: u64,
    /// Ring of the marks of its last launches; allocated with the first one.
    ring: Vec<u64>,
    launches: usize,
}

/// All streams of the process.
pub(crate) static STREAMS: Table<Stream> = Table::new(HandleKind::Stream);

/// Maximum number of queued launches of a stream; the next one waits.
const MAX_QUEUED_LAUNCHES: usize = 1024;

/// Meaning of stream 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    /// The legacy default stream of the context.
    Legacy,
    /// The per-thread default stream.
    PerThread,
}

/// Creates a stream.
pub(crate) fn create(
    device: usize,
    context: Handle,
    flags: u32,
    priority: i32,
) -> Result<Handle, Code> {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static IDS: AtomicU64 = AtomicU64::new(1);
    let id = IDS.fetch_add(1, Relaxed);
    STREAMS.insert(Stream {
        device,
        context,
        flags,
        priority,
        id,
        capture: None,
        tail: 0,
        callbacks: 0,
        ring: Vec::new(),
        launches: 0,
    })
}

/// Destroys a stream; its work goes on.
pub(crate) fn destroy(handle: Handle) -> CallResult {
    let stream = STREAMS.remove(handle)?;
    callbacks::wait(handle, stream.callbacks);
    callbacks::forget(handle);
    Ok(())
}

/// Destroys all streams of a context.
pub(crate) fn destroy_of(context: Handle) {
    for handle in of_context(context) {
        // It is destroyed already.
        let _ = STREAMS.remove(handle);
    }
}

fn of_context(context: Handle) -> Vec<Handle> {
    let belongs =
        |handle: &Handle| STREAMS.with(*handle, |stream| Ok(stream.context == context)) == Ok(true);
    STREAMS.handles().into_iter().filter(belongs).collect()
}

/// The stream of an argument: 0, 1 and 2 mean default streams.
pub(crate) fn resolve(argument: Handle, default: Default) -> Result<Handle, Code> {
    match (argument, default) {
        (0, Default::Legacy) | (1, _) => context::default_stream(true),
        (0, Default::PerThread) | (2, _) => context::default_stream(false),
        (handle, _) => Ok(handle),
    }
}

/// Runs `body` with the stream of an argument.
pub(crate) fn with<A>(
    argument: Handle,
    default: Default,
    body: impl FnOnce(&mut Stream) -> Result<A, Code>,
) -> Result<A, Code> {
    STREAMS.with(resolve(argument, default)?, body)
}

impl Stream {
    /// This process's handle on the stream's GPU.
    pub(crate) fn process_handle(&self) -> Result<&'static ProcessHandle, Code> {
        device_of(self.device)?.process_handle()
    }

    /// The stream's device.
    pub(crate) fn device(&self) -> Result<&'static Device, Code> {
        device_of(self.device)
    }

    /// Submits work of `nanos` nanoseconds; waits while the queue is full.
    pub(crate) fn submit(&mut self, nanos: u64) -> Result<u64, Code> {
        let device = device_of(self.device)?;
        let process = device.process_handle()?;
        let place = self.launches % MAX_QUEUED_LAUNCHES;
        if self.ring.is_empty() {
            self.ring = vec![0; MAX_QUEUED_LAUNCHES];
        }
        if !process.is_known_done(self.ring[place]) {
            // With a virtual clock, waiting is cheap, so half of the queue is drained at once.
            let step = if process.is_virtual() { MAX_QUEUED_LAUNCHES / 2 } else { 0 };
            device.wait(self.ring[(place + step) % MAX_QUEUED_LAUNCHES])?;
        }
        if let Some(mark) = process.mark_before_room() {
            device.wait(mark)?;
        }
        let mark = process.submit(nanos);
        self.ring[place] = mark;
        self.launches = self.launches.wrapping_add(1);
        self.tail = mark;
        Ok(mark)
    }

    /// Fails while the stream is being captured.
    pub(crate) fn refuse_capture(&self) -> CallResult {
        if self.capture.is_some() { Err(Code::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }
}

/// Fails while any stream of a context is being captured.
pub(crate) fn refuse_captures(context: Handle) -> CallResult {
    if !crate::execution::capture::is_any() {
        return Ok(());
    }
    of_context(context).into_iter().try_for_each(|handle| {
        // A destroyed stream is not captured.
        let answer = STREAMS.with(handle, |stream| Ok(stream.refuse_capture()));
        answer.unwrap_or(Ok(()))
    })
}

/// The callbacks of a context's streams so far: streams, and their numbers.
pub(crate) fn callbacks_of(context: Handle) -> Vec<(Handle, u64)> {
    if !callbacks::has_callbacks() {
        return Vec::new();
    }
    let count = |handle| STREAMS.with(handle, |stream| Ok((handle, stream.callbacks))).ok();
    of_context(context).into_iter().filter_map(count).collect()
}

/// Waits for all callbacks of a context's streams.
pub(crate) fn wait_for_callbacks_of(context: Handle) {
    for (handle, count) in callbacks_of(context) {
        callbacks::wait(handle, count);
    }
}

/// Waits for all work of a stream.
pub(crate) fn synchronize(argument: Handle, default: Default) -> CallResult {
    let handle = resolve(argument, default)?;
    let (device, tail, count) = STREAMS.with(handle, |stream| {
        stream.refuse_capture()?;
        Ok((stream.device()?, stream.tail, stream.callbacks))
    })?;
    device.wait(tail)?;
    callbacks::wait(handle, count);
    pool::synchronized(device);
    context::check_fault("cuStreamSynchronize")
}

/// Succeeds if all work of a stream is done.
pub(crate) fn query(argument: Handle, default: Default) -> CallResult {
    let handle = resolve(argument, default)?;
    let (process, tail, count) = STREAMS.with(handle, |stream| {
        stream.refuse_capture()?;
        Ok((stream.process_handle()?, stream.tail, stream.callbacks))
    })?;
    if process.poll_done(tail) && callbacks::are_done(handle, count) {
        Ok(())
    } else {
        Err(Code::NOT_READY)
    }
}

/// The context of a stream.
pub(crate) fn context_of(argument: Handle, default: Default) -> Result<Handle, Code> {
    with(argument, default, |stream| Ok(stream.context))
}

/// Creates a stream in the current context.
pub(crate) fn create_here(flags: u32, priority: i32) -> Result<Handle, Code> {
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let context = context::current()?;
    let device = CONTEXTS.with(context, |context| Ok(context.device));
    library::driver()?;
    create(device.map_err(|_| Code::INVALID_CONTEXT)?, context, flags, priority)
}
