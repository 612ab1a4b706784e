//! Events: points in stream order.

use crate::code::{CallResult, Code};
use crate::context::{self, device_of};
use crate::execution::capture;
use crate::execution::stream::{self, Default, STREAMS};
use crate::memory::pool;
use crate::table::{Handle, HandleKind, Table};

/// An event.
pub(crate) struct Event {
    flags: u32,
    recorded: Option<Recorded>,
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

/// Creates an event in the current context.
pub(crate) fn create(flags: u32) -> Result<Handle, Code> {
    context::current()?;
    EVENTS.insert(Event { flags, recorded: None, captured: None })
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
    let Some(recorded) = recorded(event)? else { return Ok(()) };
    let device = device_of(recorded.device)?;
    device.wait(recorded.mark)?;
    pool::synchronized(device);
    context::check_fault("cuEventSynchronize")
}

/// Succeeds if an event has completed, or was never recorded.
pub(crate) fn query(event: Handle) -> CallResult {
    let Some(recorded) = recorded(event)? else { return Ok(()) };
    let poll_done = device_of(recorded.device)?.process_handle()?.poll_done(recorded.mark);
    if poll_done { Ok(()) } else { Err(Code::NOT_READY) }
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
