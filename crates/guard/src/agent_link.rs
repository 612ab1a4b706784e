//! The link to the agent: the guard's only thread. It reports this process and its events to the
//! agent, acknowledges the epoch of the gate, and moves memory when the agent asks for it.
//!
//! The process's own C library starts the thread when the program initialises the driver, so that it
//! is a thread like others. Without a C library there are no reports, and nothing else changes. The
//! thread takes no signals of the program, holds no lock while it waits, and has no part in
//! admission.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use octavo_guard_abi::message::{Frame, Kind};

use crate::gate;
use crate::movable;
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

/// Interval between polls without a wake-up, in milliseconds.
const POLL_INTERVAL_MS: u32 = 250;

/// The same where the agent may ask for moves of memory.
const MOVE_INTERVAL_MS: u32 = 20;

/// Signals 32 to 34, by which C libraries reach all their threads, as for `setuid`. They wait for ever for a thread that blocks them.
const C_LIBRARY_SIGNALS: u64 = 7 << 31;

/// State that the process and its thread share.
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

    /// Makes the thread poll now.
    pub(crate) fn wake(&self) {
        self.wakeups.fetch_add(1, Ordering::Release);
        futex::wake(&self.wakeups, 1);
    }

    /// Queues the name of an unknown function for the agent.
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
    // JUSTIFICATION: a thread unknown to the C library breaks it.
    // SAFETY: `int pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)`.
    let create: extern "C" fn(*mut usize, *const c_void, Start, *mut c_void) -> i32 =
        unsafe { core::mem::transmute(create) };
    let mut thread = 0;
    // A new thread inherits the signal mask, so that it never takes a signal of the program.
    let mask = task::block_signals(!C_LIBRARY_SIGNALS);
    let failed = create(&raw mut thread, core::ptr::null(), run, core::ptr::null_mut());
    task::block_signals(mask);
    let detach = elf::c_library(b"pthread_detach");
    if failed == 0 && detach != 0 {
        // JUSTIFICATION: the thread is never joined.
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
            share.leases.show_unmovable(process.unmovable.flags());
            movable::serve(process, share);
        }
        // Names belong to the process: they go to the agent of the first share.
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
        // The agent wakes no thread when it asks for a move.
        let moves = process.shares.all().iter().any(|share| share.moves_pages);
        let interval = if moves { MOVE_INTERVAL_MS } else { POLL_INTERVAL_MS };
        futex::wait(&agent_link.wakeups, wakeups, interval, WaitScope::Process);
    }
}

/// Sends one report to the agent of a share in which this process has no slot.
pub(crate) fn send_once(path: &Path, kind: Kind, value: u64, text: &[u8]) {
    /// No slot.
    const NONE: u32 = u32::MAX;
    let Ok(stream) = socket::connect(path.bytes()) else { return };
    for frame in [Frame::new(Kind::Hello, NONE, 0, b""), Frame::new(kind, NONE, value, text)] {
        // An agent that does not listen gets no report.
        let _ = socket::send(&stream, &frame.encode());
    }
}
