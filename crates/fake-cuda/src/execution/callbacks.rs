//! Functions of the host that run in the order of a stream.
//!
//! They run on a thread of their own, which is started with the first of them, one after the
//! other and each when the work before it is done. They may take as long as they like and wait
//! for what the program's threads do; they must not call CUDA.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::code::{CallResult, Code};
use crate::device::Device;
use crate::execution::stream::Stream;
use crate::table::{Handle, lock};

/// A function of the host and what it is called with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callback {
    /// `CUhostFn`.
    Plain(unsafe extern "C" fn(usize), usize),
    /// `CUstreamCallback`, with the stream that it was added to.
    OfStream(unsafe extern "C" fn(Handle, u32, usize), Handle, usize),
}

struct Job {
    device: &'static Device,
    /// The work that must be done before.
    mark: u64,
    stream: Handle,
    /// How many of the stream this one is.
    number: u64,
    callback: Callback,
}

struct Queue {
    jobs: VecDeque<Job>,
    /// How many of each stream have run.
    done: BTreeMap<Handle, u64>,
    has_thread: bool,
}

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { jobs: VecDeque::new(), done: BTreeMap::new(), has_thread: false });
static CHANGED: Condvar = Condvar::new();
static HAS_CALLBACKS: AtomicBool = AtomicBool::new(false);

/// Has a callback run when the stream's work so far is done.
pub(crate) fn submit(handle: Handle, stream: &mut Stream, callback: Callback) -> CallResult {
    HAS_CALLBACKS.store(true, Relaxed);
    let mut queue = lock(&QUEUE);
    if !queue.has_thread {
        let thread = std::thread::Builder::new().name("octavo-callback".to_owned());
        thread.spawn(run).map_err(|_| Code::OPERATING_SYSTEM)?;
        queue.has_thread = true;
    }
    stream.callbacks += 1;
    let (mark, number) = (stream.tail, stream.callbacks);
    queue.jobs.push_back(Job { device: stream.device()?, mark, stream: handle, number, callback });
    CHANGED.notify_all();
    Ok(())
}

/// Whether any callback was ever submitted.
pub(crate) fn has_callbacks() -> bool {
    HAS_CALLBACKS.load(Relaxed)
}

/// Whether so many callbacks of a stream have run.
pub(crate) fn are_done(stream: Handle, count: u64) -> bool {
    count == 0 || lock(&QUEUE).has_done(stream, count)
}

/// Waits until so many callbacks of a stream have run.
pub(crate) fn wait(stream: Handle, count: u64) {
    if count == 0 {
        return;
    }
    let mut queue = lock(&QUEUE);
    while !queue.has_done(stream, count) {
        queue = wait_for_change(queue);
    }
}

/// Forgets a stream that is destroyed.
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
        // A lost GPU ends its work; the callback runs, as callers wait for it.
        let _ = job.device.wait(job.mark);
        job.callback.call();
        lock(&QUEUE).done.insert(job.stream, job.number);
        CHANGED.notify_all();
    }
}

impl Callback {
    fn call(self) {
        match self {
            Self::Plain(function, data) => {
                // JUSTIFICATION: calling it is what the program asked for.
                // SAFETY: the program promises a function of this type and data that it takes.
                unsafe { function(data) }
            }
            Self::OfStream(function, stream, data) => {
                // SAFETY: as above.
                unsafe { function(stream, 0, data) }
            }
        }
    }
}
