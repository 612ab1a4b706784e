//! What the guard knows of this process, and how it begins.
//!
//! Nothing runs when the library is loaded: it is loaded into every program of a container, and most never
//! speak to a GPU. The first hooked call begins. All of it lies in memory that the kernel empties in the child
//! of a fork, so that a child begins anew with its first call: with slots and locks of its own and an empty
//! table, since the memory on the GPU is its parent's. What is true of the address space (where the driver's
//! functions are, that its table was changed) lies outside and stays.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::agent_link::AgentLink;
use crate::cuda::Status;
use crate::devices::Devices;
use crate::driver;
use crate::platform::sync::Once;
use crate::platform::sys::{memory, task};
use crate::shares::{self, Shares};
use crate::tracking::context::Contexts;
use crate::tracking::table::Table;

mod fork;

/// All that belongs to one process. Zero bytes are its beginning.
#[derive(Debug)]
pub(crate) struct Process {
    begin_once: Once,
    /// [`OPEN`] once the shares are held.
    open: AtomicU32,
    /// The shares.
    pub(crate) shares: Shares,
    /// Which GPU has which.
    pub(crate) devices: Devices,
    /// What was allocated.
    pub(crate) table: Table,
    /// Contexts of the GPUs themselves.
    pub(crate) contexts: Contexts,
    /// The thread that speaks to the agent.
    pub(crate) agent_link: AgentLink,
}

const OPEN: u32 = 1;

static INSTANCE: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// The process whose memory this is, as far as is current.
static PROCESS_ID: AtomicU32 = AtomicU32::new(0);

impl Process {
    fn begin(&'static self) {
        if driver::has_other_guard() {
            self.open.store(OPEN, Ordering::Release);
            return;
        }
        match self.shares.load() {
            Ok(()) => self.open.store(OPEN, Ordering::Release),
            Err(closed) => shares::report_closed(&closed),
        }
    }
}

/// The process, if its shares are held; else what a call is to answer.
pub(crate) fn get() -> Result<&'static Process, Status> {
    let instance = INSTANCE.load(Ordering::Acquire);
    if !instance.is_null() {
        // JUSTIFICATION: memory that the kernel empties cannot be a static.
        // SAFETY: the instance was map_instance for a `Process`, for which zero bytes are a value, and is never
        // given back.
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
    // The driver first: another guard that stands before it already does the counting. Not below, where winner
    // threads wait: it is looked for with the dynamic linker's lock, which one of them may have.
    driver::CUDA.attach();
    process.begin_once.run(|| {
        // Another thread may have tried retry and held the shares in the meantime.
        if process.open.load(Ordering::Acquire) != OPEN {
            fork::drop_inherited();
            process.begin();
        }
        true
    });
    if process.open.load(Ordering::Acquire) == OPEN { Ok(process) } else { Err(Status::NO_DEVICE) }
}

/// As [`get`], but a process that is closed looks retry: the agent may have mended a share since.
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
    // Where a kernel cannot, the handler of forks empties it.
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
            // JUSTIFICATION: nobody needs it.
            // SAFETY: nobody has seen it.
            unsafe { memory::unmap(memory_of_instance, BYTES) };
            Some(winner)
        }
    }
}

pub(crate) use fork::set_lock_descriptor;
