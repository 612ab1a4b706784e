//! Host functions in stream order, and writes of the GPU (`cuStreamWriteValue`).
//!
//! They run on one thread, which starts with the first of them, in sequence and each after the work
//! before it. They may take any time and wait for the program's threads; they must not call CUDA.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::code::{CallResult, Code};
use crate::device::Device;
use crate::execution::stream::Stream;
use crate::memory::heap;
use crate::table::{Handle, lock};

/// A host function and its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callback {
    /// `CUhostFn`.
    Plain(unsafe extern "C" fn(usize), usize),
    /// `CUstreamCallback`, with its stream.
    OfStream(unsafe extern "C" fn(Handle, u32, usize), Handle, usize),
    /// A write of the GPU, of as many bytes.
    Store {
        /// Where, in registered host memory or in memory of the GPU.
        address: u64,
        /// What.
        value: u64,
        /// 4 or 8.
        bytes: u64,
    },
}

struct Job {
    device: &'static Device,
    /// Mark of the work that must be done before.
    mark: u64,
    stream: Handle,
    /// Its number within the stream.
    number: u64,
    callback: Callback,
}

struct Queue {
    jobs: VecDeque<Job>,
    /// Number of finished callbacks per stream.
    done: BTreeMap<Handle, u64>,
    /// Number of callbacks that have not finished.
    unfinished: usize,
    has_thread: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    jobs: VecDeque::new(),
    done: BTreeMap::new(),
    unfinished: 0,
    has_thread: false,
});
static CHANGED: Condvar = Condvar::new();
static HAS_CALLBACKS: AtomicBool = AtomicBool::new(false);

/// Queues a callback to run when the stream's work so far is done.
pub(crate) fn submit(handle: Handle, stream: &mut Stream, callback: Callback) -> CallResult {
    HAS_CALLBACKS.store(true, Relaxed);
    let mut queue = lock(&QUEUE);
    if !queue.has_thread {
        let thread = std::thread::Builder::new().name("octavo-callback".to_owned());
        thread.spawn(run).map_err(|_| Code::OPERATING_SYSTEM)?;
        queue.has_thread = true;
    }
    stream.callbacks += 1;
    queue.unfinished += 1;
    let (mark, number) = (stream.tail, stream.callbacks);
    queue.jobs.push_back(Job { device: stream.device()?, mark, stream: handle, number, callback });
    CHANGED.notify_all();
    Ok(())
}

/// Whether any callback was ever submitted.
pub(crate) fn has_callbacks() -> bool {
    HAS_CALLBACKS.load(Relaxed)
}

/// Whether no callback of any stream is to run.
pub(crate) fn are_all_done() -> bool {
    lock(&QUEUE).unfinished == 0
}

/// Whether `count` callbacks of a stream have run.
pub(crate) fn are_done(stream: Handle, count: u64) -> bool {
    count == 0 || lock(&QUEUE).has_done(stream, count)
}

/// Waits until `count` callbacks of a stream have run.
pub(crate) fn wait(stream: Handle, count: u64) {
    if count == 0 {
        return;
    }
    let mut queue = lock(&QUEUE);
    while !queue.has_done(stream, count) {
        queue = wait_for_change(queue);
    }
}

/// Removes a destroyed stream.
pub(crate) fn forget(stream: Handle) {
    if has_callbacks() {
        lock(&QUEUE).done.remove(&stream);
    }
}

impl Queue {
    fn has_done(&self, stream: Handle, count: u64) -> bool {
        self.done.get(&stream).is_some_and(|done| *done >= count)
    }
}

fn wait_for_change(queue: MutexGuard<'static, Queue>) -> MutexGuard<'static, Queue> {
    CHANGED.wait(queue).unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn run() {
    loop {
        let mut queue = lock(&QUEUE);
        let job = loop {
            match queue.jobs.pop_front() {
                Some(job) => break job,
                None => queue = wait_for_change(queue),
            }
        };
        drop(queue);
        // A lost GPU ends its work; the callback runs anyway, because callers wait for it.
        let _ = job.device.wait(job.mark);
        job.callback.call();
        let mut queue = lock(&QUEUE);
        queue.done.insert(job.stream, job.number);
        queue.unfinished -= 1;
        drop(queue);
        CHANGED.notify_all();
    }
}

impl Callback {
    /// Calls the function, or writes.
    pub(crate) fn call(self) {
        match self {
            Self::Plain(function, data) => {
                // JUSTIFICATION: the program asked for the call.
                // SAFETY: by contract a function of this type, with an argument that it takes.
                unsafe { function(data) }
            }
            Self::OfStream(function, stream, data) => {
                // SAFETY: as above.
                unsafe { function(stream, 0, data) }
            }
            Self::Store { address, value, bytes } => heap::store(address, value, bytes),
        }
    }
}
