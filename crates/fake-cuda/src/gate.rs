//! The way of a program's calls into the driver: it is closed while the process is locked for a checkpoint.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::code::Code;
use crate::table::lock;

/// How the gate answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// It passes.
    Open,
    /// It waits.
    Closed,
    /// It fails: the process is lost.
    Broken,
}

/// Calls that have passed and not ended.
static IN_FLIGHT: AtomicU64 = AtomicU64::new(0);
/// Not 0 unless the gate is open, for a look without the lock.
static IS_SHUT: AtomicU64 = AtomicU64::new(0);
static GATE: Mutex<Gate> = Mutex::new(Gate::Open);
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// Calls of this thread that have passed: a destructor of the program may call the driver from within a call.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A call that has passed, until it is dropped.
pub(crate) struct Passed;

/// Lets a call pass, once the gate is open. Fails if the process is lost.
pub(crate) fn pass() -> Result<Passed, Code> {
    if DEPTH.get() == 0 {
        loop {
            IN_FLIGHT.fetch_add(1, SeqCst);
            if IS_SHUT.load(SeqCst) == 0 {
                break;
            }
            IN_FLIGHT.fetch_sub(1, SeqCst);
            wait()?;
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    Ok(Passed)
}

impl Drop for Passed {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            IN_FLIGHT.fetch_sub(1, SeqCst);
        }
    }
}

fn wait() -> Result<(), Code> {
    let mut gate = lock(&GATE);
    while *gate == Gate::Closed {
        gate = CHANGED.wait(gate).unwrap_or_else(PoisonError::into_inner);
    }
    if *gate == Gate::Broken { Err(Code::UNKNOWN) } else { Ok(()) }
}

/// Opens, closes or breaks the gate. Calls that wait see it.
pub(crate) fn set(to: Gate) {
    let mut gate = lock(&GATE);
    *gate = to;
    IS_SHUT.store(u64::from(to != Gate::Open), SeqCst);
    CHANGED.notify_all();
}

/// Whether no call is in flight. While the gate is closed it remains so.
pub(crate) fn is_idle() -> bool {
    IN_FLIGHT.load(SeqCst) == 0
}
