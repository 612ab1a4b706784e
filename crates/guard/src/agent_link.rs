//! The one thread of the guard: it says to the agent who this process is and what it saw, and takes report of
//! the gate.
//!
//! It is started when the process makes its first context, by the process's own C library, so that it is a
//! thread like the others; where there is none to be had, nothing is sent_hashes and nothing else changes. It takes
//! no signals, holds no lock while it waits, and has no part in what is admitted.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use octavo_guard_abi::message::{Frame, Kind};

use crate::gate;
use crate::paths::Path;
use crate::platform::elf;
use crate::platform::sync::Mutex;
use crate::platform::sys::futex::{self, WaitScope};
use crate::platform::sys::{socket, task};
use crate::process;

mod connection;
mod outbox;

use connection::Connection;
use outbox::{Outbox, Report};

/// How often it looks without having been rung, in milliseconds.
const POLL_INTERVAL_MS: u32 = 250;

/// What the process and its thread share.
#[derive(Debug)]
pub(crate) struct AgentLink {
    started: AtomicU32,
    wakeups: AtomicU32,
    outbox: Mutex<Outbox>,
}

impl AgentLink {
    /// Starts the thread, once.
    pub(crate) fn start(&self) {
        if self.started.load(Ordering::Relaxed) == 0 && self.started.swap(1, Ordering::Relaxed) == 0
        {
            spawn_thread();
        }
    }

    /// Lets the thread poll now.
    pub(crate) fn wake(&self) {
        self.wakeups.fetch_add(1, Ordering::Release);
        futex::wake(&self.wakeups, 1);
    }

    /// Keeps a name for the agent.
    pub(crate) fn report_unknown(&self, name: &[u8], is_refused: bool) {
        if self.outbox.lock().report(name, is_refused) {
            self.wake();
        }
    }

    fn next_report(&self) -> Option<Report> {
        self.outbox.lock().next()
    }

    fn put_back(&self, report: Report) {
        self.outbox.lock().put_back(report);
    }
}

fn spawn_thread() {
    type Start = extern "C" fn(*mut c_void) -> *mut c_void;
    let create = elf::c_library(b"pthread_create");
    if create == 0 {
        return;
    }
    // JUSTIFICATION: a thread that the C library does not know of breaks it.
    // SAFETY: `int pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)`.
    let create: extern "C" fn(*mut usize, *const c_void, Start, *mut c_void) -> i32 =
        unsafe { core::mem::transmute(create) };
    let mut thread = 0;
    // A new thread inherits the mask, so that not even its first moment takes a signal of the program's.
    let mask = task::block_signals(u64::MAX);
    let failed = create(&raw mut thread, core::ptr::null(), run, core::ptr::null_mut());
    task::block_signals(mask);
    let detach = elf::c_library(b"pthread_detach");
    if failed == 0 && detach != 0 {
        // JUSTIFICATION: nobody waits for it.
        // SAFETY: `int pthread_detach(pthread_t)`.
        let detach: extern "C" fn(usize) -> i32 = unsafe { core::mem::transmute(detach) };
        detach(thread);
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    let Ok(process) = process::get() else { return core::ptr::null_mut() };
    let agent_link = &process.agent_link;
    let mut connections = [const { Connection::new() }; crate::shares::MAX_SHARES];
    loop {
        let wakeups = agent_link.wakeups.load(Ordering::Acquire);
        let now = task::milliseconds();
        for (connection, share) in connections.iter_mut().zip(process.shares.all()) {
            gate::ack_epoch(share);
            connection.poll(share, now);
        }
        // Names are the process's: the first agent that listens hears them.
        if let (Some(connection), Some(share)) =
            (connections.first_mut(), process.shares.all().first())
        {
            while let Some(report) = agent_link.next_report() {
                let kind = (Kind::Unknown, u64::from(report.is_refused()));
                if !connection.send(share, kind, report.name()) {
                    agent_link.put_back(report);
                    break;
                }
            }
        }
        futex::wait(&agent_link.wakeups, wakeups, POLL_INTERVAL_MS, WaitScope::Process);
    }
}

/// Says one thing to the agent of a share that this process has no slot of.
pub(crate) fn send_once(path: &Path, kind: Kind, value: u64, text: &[u8]) {
    /// No slot.
    const NONE: u32 = u32::MAX;
    let Ok(stream) = socket::connect(path.bytes()) else { return };
    for frame in [Frame::new(Kind::Hello, NONE, 0, b""), Frame::new(kind, NONE, value, text)] {
        // Nothing can be done for an agent that does not listen.
        let _ = socket::send(&stream, &frame.encode());
    }
}
