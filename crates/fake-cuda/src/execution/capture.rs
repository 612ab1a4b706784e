//! Stream capture into graphs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::code::{CallResult, Code};
use crate::execution::graph::{self, Op};
use crate::execution::stream::{self, Default, STREAMS};
use crate::table::Handle;

/// Capture state of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Capture {
    pub(crate) graph: Handle,
    pub(crate) id: u64,
    /// Dependencies of the stream's next node.
    pub(crate) last: Vec<Handle>,
    /// Whether the capture began in this stream.
    is_origin: bool,
    /// Whether the graph existed before.
    is_given: bool,
}

/// Number of captures under way.
static ANY: AtomicUsize = AtomicUsize::new(0);

/// Whether any stream may be capturing.
pub(crate) fn is_any() -> bool {
    ANY.load(Relaxed) > 0
}

/// Begins a capture into an existing graph (with the dependencies of its next node) or a new one.
pub(crate) fn begin(
    argument: Handle,
    default: Default,
    given: Option<(Handle, Vec<Handle>)>,
) -> CallResult {
    static IDS: AtomicU64 = AtomicU64::new(1);
    // The legacy stream waits for all others, which a graph cannot.
    if argument == 1 || (argument == 0 && default == Default::Legacy) {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    let handle = stream::resolve(argument, default)?;
    STREAMS.with(handle, |stream| {
        if stream.capture.is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        let is_given = given.is_some();
        let (graph, last) = match given {
            Some(given) => given,
            None => (graph::create()?, Vec::new()),
        };
        let id = IDS.fetch_add(1, Relaxed);
        stream.capture = Some(Capture { graph, id, last, is_origin: true, is_given });
        ANY.fetch_add(1, Relaxed);
        Ok(())
    })
}

/// Ends the capture that began in a stream. Returns its graph.
pub(crate) fn end(argument: Handle, default: Default) -> Result<Handle, Code> {
    let handle = stream::resolve(argument, default)?;
    let capture = STREAMS.with(handle, |stream| {
        let capture = stream.capture.clone().ok_or(Code::ILLEGAL_STATE)?;
        if !capture.is_origin {
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        stream.capture = None;
        Ok(capture)
    })?;
    ANY.fetch_sub(1, Relaxed);
    let is_joined = leave(capture.graph, &capture.last);
    if is_joined {
        return Ok(capture.graph);
    }
    if !capture.is_given {
        graph::destroy(capture.graph)?;
    }
    Err(Code::STREAM_CAPTURE_UNJOINED)
}

/// Ends the capture of all other streams. Returns whether all their work is joined to the origin.
fn leave(graph: Handle, last: &[Handle]) -> bool {
    let mut is_joined = true;
    for other in STREAMS.handles() {
        // A destroyed stream has no capture any more.
        let _ = STREAMS.with(other, |stream| {
            if let Some(capture) = stream.capture.take_if(|capture| capture.graph == graph) {
                is_joined &= capture.last.iter().all(|node| graph::is_before(*node, last));
            }
            Ok(())
        });
    }
    is_joined
}

/// Adds a stream to a capture, after some nodes of its graph.
pub(crate) fn join(handle: Handle, graph: Handle, nodes: &[Handle]) -> CallResult {
    STREAMS.with(handle, |stream| {
        match &mut stream.capture {
            Some(capture) if capture.graph == graph => capture.last.extend_from_slice(nodes),
            Some(_) => return Err(Code::STREAM_CAPTURE_UNMATCHED),
            None => {
                let last = nodes.to_vec();
                let part = Capture { graph, id: 0, last, is_origin: false, is_given: true };
                stream.capture = Some(part);
            }
        }
        Ok(())
    })
}

/// Adds work to the graph that a stream is captured into.
pub(crate) fn add(handle: Handle, op: Op) -> CallResult {
    STREAMS.with(handle, |stream| {
        let capture = stream.capture.as_mut().ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
        let node = graph::add(capture.graph, &capture.last, op)?;
        capture.last = vec![node];
        Ok(())
    })
}

/// Whether a stream is being captured.
pub(crate) fn is_capturing(handle: Handle) -> Result<bool, Code> {
    if !is_any() {
        return Ok(false);
    }
    STREAMS.with(handle, |stream| Ok(stream.capture.is_some()))
}
