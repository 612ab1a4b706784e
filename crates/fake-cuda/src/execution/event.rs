//! Events: points in stream order.

use octavo_fake_gpu::RemoteProcess;

use crate::code::{CallResult, Code};
use crate::context::{self, device_of};
use crate::device::Device;
use crate::execution::stream::{self, Default, STREAMS};
use crate::execution::{callbacks, capture};
use crate::library;
use crate::memory::ipc::IpcHandle;
use crate::memory::pool;
use crate::table::{Handle, HandleKind, Table};

/// An event.
pub(crate) struct Event {
    flags: u32,
    /// Ordinal of its device.
    device: usize,
    /// The process whose event it is, if it was opened by handle.
    owner: Option<RemoteProcess>,
    recorded: Option<Recorded>,
    /// Callbacks before it, by stream, if it was recorded after all work of a context.
    callbacks: Vec<(Handle, u64)>,
    /// The graph into which it was captured last, and the nodes before it.
    captured: Option<(Handle, Vec<Handle>)>,
}

#[derive(Clone, Copy)]
struct Recorded {
    device: usize,
    /// Mark of the work before it.
    mark: u64,
    /// Its time, once known.
    at: Option<u64>,
}

/// All events of the process.
pub(crate) static EVENTS: Table<Event> = Table::new(HandleKind::Event);

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 4;

/// First word of an event's handle.
const MAGIC: u64 = u64::from_le_bytes(*b"OCTEVENT");

impl Event {
    fn new(flags: u32, device: usize, owner: Option<RemoteProcess>) -> Self {
        Self { flags, device, owner, recorded: None, callbacks: Vec::new(), captured: None }
    }
}

/// Creates an event in the current context.
pub(crate) fn create(flags: u32) -> Result<Handle, Code> {
    let device = context::here()?.ordinal;
    if flags & INTERPROCESS != 0 && flags & NO_TIMING == 0 {
        return Err(Code::INVALID_VALUE);
    }
    EVENTS.insert(Event::new(flags, device, None))
}

/// The handle of an event for other processes.
pub(crate) fn export(event: Handle) -> Result<IpcHandle, Code> {
    let device = EVENTS.with(event, |event| {
        let is_own = event.flags & INTERPROCESS != 0 && event.owner.is_none();
        if is_own { device_of(event.device) } else { Err(Code::INVALID_VALUE) }
    })?;
    let [slot, pid, started] = device.process_handle()?.as_remote().to_words();
    let mut handle = [0; 64];
    for (place, word) in
        handle.chunks_exact_mut(8).zip([MAGIC, device.index.into(), slot, pid, started])
    {
        place.copy_from_slice(&word.to_le_bytes());
    }
    Ok(handle)
}

/// Opens an event of another process. It stands for all that its process has submitted by the time of each call: no less than what
/// was recorded.
pub(crate) fn open(handle: &IpcHandle) -> Result<Handle, Code> {
    let mut words =
        handle.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
    let mut next = || words.next().unwrap_or(0);
    let (magic, index, owner) = (next(), next(), [next(), next(), next()]);
    let devices = &library::driver()?.devices;
    let device = devices.iter().find(|device| u64::from(device.index) == index);
    let device = device.filter(|_| magic == MAGIC).ok_or(Code::INVALID_VALUE)?;
    let owner = RemoteProcess::from_words(owner);
    device.process_handle()?.submitted_by(owner).ok_or(Code::INVALID_VALUE)?;
    let flags = INTERPROCESS | NO_TIMING;
    let (device, owner) = (device.ordinal, Some(owner));
    EVENTS.insert(Event::new(flags, device, owner))
}

/// The device and the process of an event that was opened by handle and is not recorded here.
fn owner(event: Handle) -> Result<Option<(&'static Device, RemoteProcess)>, Code> {
    EVENTS.with(event, |event| {
        let owner = event.owner.filter(|_| event.recorded.is_none());
        owner.map(|owner| Ok((device_of(event.device)?, owner))).transpose()
    })
}

/// Waits for an event of another process. Returns whether it is one.
fn wait_for_owner(event: Handle) -> Result<bool, Code> {
    let Some((device, owner)) = owner(event)? else { return Ok(false) };
    device.wait_for(owner)?;
    Ok(true)
}

/// Records an event in a stream.
pub(crate) fn record(event: Handle, argument: Handle, default: Default) -> CallResult {
    EVENTS.with(event, |_| Ok(()))?;
    let handle = stream::resolve(argument, default)?;
    let (graph, recorded) = STREAMS.with(handle, |stream| {
        if let Some(capture) = &stream.capture {
            return Ok((Some((capture.graph, capture.last.clone())), None));
        }
        let process = stream.process_handle()?;
        let done = process.done_at(stream.tail);
        let at = done.map(|_| process.now());
        Ok((None, Some(Recorded { device: stream.device, mark: stream.tail, at })))
    })?;
    EVENTS.with(event, |event| {
        (event.captured, event.recorded) = (graph, recorded);
        event.callbacks.clear();
        Ok(())
    })
}

/// Records an event after all work of a context.
pub(crate) fn record_all(event: Handle, context: Handle) -> CallResult {
    let device = context::device_of_handle(context)?;
    stream::refuse_captures(context)?;
    let mark = device.process_handle()?.submitted();
    let callbacks = stream::callbacks_of(context);
    EVENTS.with(event, |event| {
        event.recorded = Some(Recorded { device: device.ordinal, mark, at: None });
        (event.captured, event.callbacks) = (None, callbacks);
        Ok(())
    })
}

/// Makes a stream wait for an event.
pub(crate) fn wait(argument: Handle, event: Handle, default: Default) -> CallResult {
    let (recorded, captured) =
        EVENTS.with(event, |event| Ok((event.recorded, event.captured.clone())))?;
    let handle = stream::resolve(argument, default)?;
    if let Some((graph, nodes)) = captured {
        return capture::join(handle, graph, &nodes);
    }
    let device = STREAMS.with(handle, |stream| {
        stream.refuse_capture()?;
        Ok(stream.device)
    })?;
    if wait_for_owner(event)? {
        return Ok(());
    }
    match recorded {
        // Work on one GPU is done in the order of submission; work on another is awaited.
        Some(recorded) if recorded.device != device => {
            device_of(recorded.device)?.wait(recorded.mark)
        }
        _ => Ok(()),
    }
}

/// Waits until an event has completed.
pub(crate) fn synchronize(event: Handle) -> CallResult {
    if wait_for_owner(event)? {
        return Ok(());
    }
    let Some(recorded) = recorded(event)? else { return Ok(()) };
    let device = device_of(recorded.device)?;
    device.wait(recorded.mark)?;
    for (stream, count) in EVENTS.with(event, |event| Ok(event.callbacks.clone()))? {
        callbacks::wait(stream, count);
    }
    pool::synchronized(device);
    context::check_fault("cuEventSynchronize")
}

/// Succeeds if an event has completed, or was never recorded.
pub(crate) fn query(event: Handle) -> CallResult {
    if let Some((device, owner)) = owner(event)? {
        let process = device.process_handle()?;
        let mark = process.submitted_by(owner);
        let is_done = mark.is_none_or(|mark| process.poll_done_by(owner, mark));
        return if is_done { Ok(()) } else { Err(Code::NOT_READY) };
    }
    let Some(recorded) = recorded(event)? else { return Ok(()) };
    let poll_done = device_of(recorded.device)?.process_handle()?.poll_done(recorded.mark);
    let mut before = EVENTS.with(event, |event| Ok(event.callbacks.clone()))?.into_iter();
    let is_done = poll_done && before.all(|(stream, count)| callbacks::are_done(stream, count));
    if is_done { Ok(()) } else { Err(Code::NOT_READY) }
}

/// Milliseconds between two events.
pub(crate) fn elapsed(start: Handle, end: Handle) -> Result<f32, Code> {
    let (start, end) = (moment(start)?, moment(end)?);
    if start.0 != end.0 {
        return Err(Code::INVALID_HANDLE);
    }
    #[expect(clippy::cast_precision_loss, reason = "CUDA answers in single precision")]
    let millis = |nanos: u64| nanos as f32 / 1e6;
    Ok(if end.1 >= start.1 { millis(end.1 - start.1) } else { -millis(start.1 - end.1) })
}

/// The device of an event and its time.
fn moment(handle: Handle) -> Result<(usize, u64), Code> {
    EVENTS.with(handle, |event| {
        if event.flags & NO_TIMING != 0 || event.captured.is_some() {
            return Err(Code::INVALID_HANDLE);
        }
        let recorded = event.recorded.as_mut().ok_or(Code::INVALID_HANDLE)?;
        if recorded.at.is_none() {
            recorded.at = device_of(recorded.device)?.process_handle()?.done_at(recorded.mark);
        }
        Ok((recorded.device, recorded.at.ok_or(Code::NOT_READY)?))
    })
}

fn recorded(event: Handle) -> Result<Option<Recorded>, Code> {
    EVENTS.with(event, |event| {
        if event.captured.is_some() { Err(Code::CAPTURED_EVENT) } else { Ok(event.recorded) }
    })
}
