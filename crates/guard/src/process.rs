//! State of this process, and its start.
//!
//! Nothing runs when the library is loaded: every program of a container loads it, and most never
//! use a GPU. The first hooked call starts it. The state lies in memory that the kernel zeroes in
//! the child of a fork. So a child starts again with its first call, with its own slots and locks
//! and an empty table, since the GPU memory belongs to its parent. Facts about the address space
//! stay outside: the driver's function addresses, and that its table was patched.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::agent_link::AgentLink;
use crate::cuda::Status;
use crate::devices::Devices;
use crate::driver;
use crate::movable::{self, Movable};
use crate::platform::sync::Once;
use crate::platform::sys::{memory, task};
use crate::shares::{self, Shares};
use crate::tracking::account::advances::Advances;
use crate::tracking::context::Contexts;
use crate::tracking::table::Table;
use crate::unknown::Reported;
use crate::unmovable::Unmovable;

mod fork;

/// State of one process. Zero bytes are its initial value.
#[derive(Debug)]
pub(crate) struct Process {
    begin_once: Once,
    /// [`OPEN`] once the shares are opened.
    open: AtomicU32,
    /// The shares.
    pub(crate) shares: Shares,
    /// The shares of each GPU.
    pub(crate) devices: Devices,
    /// Allocations.
    pub(crate) table: Table,
    /// Primary contexts of the GPUs.
    pub(crate) contexts: Contexts,
    /// Calls with an advance.
    pub(crate) advances: Advances,
    /// The thread that reports to the agent.
    pub(crate) agent_link: AgentLink,
    /// Its memory that the guard can move.
    pub(crate) movable: Movable,
    /// Unknown functions that were reported.
    pub(crate) reported: Reported,
    /// Why its memory cannot be moved to the host.
    pub(crate) unmovable: Unmovable,
}

const OPEN: u32 = 1;

static INSTANCE: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// Pid of the process that owns the instance, as far as known.
static PROCESS_ID: AtomicU32 = AtomicU32::new(0);

impl Process {
    fn begin(&'static self) {
        if driver::has_other_guard() {
            self.open.store(OPEN, Ordering::Release);
            return;
        }
        match self.shares.load() {
            Ok(()) => {
                movable::begin(&self.shares);
                self.open.store(OPEN, Ordering::Release);
            }
            Err(closed) => shares::report_closed(&closed),
        }
    }
}

/// The process if its shares are open, else the status that a call returns.
pub(crate) fn get() -> Result<&'static Process, Status> {
    let instance = INSTANCE.load(Ordering::Acquire);
    if !instance.is_null() {
        // JUSTIFICATION: memory that the kernel zeroes cannot be a static.
        // SAFETY: the memory was mapped for a `Process`, for which zero bytes are a value, and is
        // never unmapped.
        let process = unsafe { &*instance };
        if process.open.load(Ordering::Acquire) == OPEN {
            return Ok(process);
        }
    }
    get_slow()
}

#[cold]
fn get_slow() -> Result<&'static Process, Status> {
    let process = instance().ok_or(Status::NO_DEVICE)?;
    fork::abandon_drivers();
    // The driver comes first: another guard that stands before it already counts. This is outside
    // of `begin_once`, where other threads wait: the search takes the dynamic linker's lock, which
    // one of those may hold.
    driver::CUDA.attach();
    process.begin_once.run(|| {
        // Another thread may have retried and opened the shares meanwhile.
        if process.open.load(Ordering::Acquire) != OPEN {
            fork::drop_inherited();
            process.begin();
        }
        true
    });
    if process.open.load(Ordering::Acquire) == OPEN { Ok(process) } else { Err(Status::NO_DEVICE) }
}

/// Like [`get`], but a closed process retries: the agent may have repaired a share since.
pub(crate) fn retry() -> Result<&'static Process, Status> {
    if let Ok(process) = get() {
        return Ok(process);
    }
    let process = instance().ok_or(Status::NO_DEVICE)?;
    if process.shares.is_empty() {
        process.begin_once.reset();
    }
    get_slow()
}

fn instance() -> Option<&'static Process> {
    let current = INSTANCE.load(Ordering::Acquire);
    let instance = if current.is_null() { map_instance()? } else { current };
    // JUSTIFICATION: as in `get`.
    // SAFETY: as in `get`.
    Some(unsafe { &*instance })
}

/// Maps the instance, unless another thread has just done so.
fn map_instance() -> Option<*mut Process> {
    const BYTES: usize = size_of::<Process>();
    let memory_of_instance = memory::map_anonymous(BYTES).ok()?;
    // If the kernel cannot wipe it on fork, the fork handler does.
    let _ = memory::wipe_on_fork(memory_of_instance, BYTES);
    let instance = memory_of_instance.cast::<Process>().as_ptr();
    match INSTANCE.compare_exchange(ptr::null_mut(), instance, Ordering::AcqRel, Ordering::Acquire)
    {
        Ok(_) => {
            PROCESS_ID.store(task::process(), Ordering::Relaxed);
            fork::register_handler();
            Some(instance)
        }
        Err(winner) => {
            // JUSTIFICATION: another thread's instance is used.
            // SAFETY: no reference to this memory exists.
            unsafe { memory::unmap(memory_of_instance, BYTES) };
            Some(winner)
        }
    }
}

pub(crate) use fork::RecordedDescriptor;
