//! What the guard knows of this process, and how it begins.
//!
//! Nothing runs when the library is loaded: it is loaded into every program of a container, and most never
//! speak to a GPU. The first hooked call begins. All of it lies in memory that the kernel empties in the child
//! of a fork, so that a child begins anew with its first call: with slots and locks of its own and an empty
//! table, since the memory on the GPU is its parent's. What is true of the address space (where the driver's
//! functions are, that its table was changed) lies outside and stays.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::context::Contexts;
use crate::cuda::Status;
use crate::devices::Devices;
use crate::driver;
use crate::liaison::Liaison;
use crate::shares::{self, Shares};
use crate::sync::Once;
use crate::sys::{memory, task};
use crate::table::Table;

mod fork;

/// All that belongs to one process. Zero bytes are its beginning.
#[derive(Debug)]
pub(crate) struct Process {
    begun: Once,
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
    pub(crate) liaison: Liaison,
}

const OPEN: u32 = 1;

static PLACE: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// The process whose memory this is, as far as is known.
static ID: AtomicU32 = AtomicU32::new(0);

impl Process {
    fn begin(&'static self) {
        if driver::is_second() {
            self.open.store(OPEN, Ordering::Release);
            return;
        }
        match self.shares.load() {
            Ok(()) => self.open.store(OPEN, Ordering::Release),
            Err(closed) => shares::tell_why_closed(&closed),
        }
    }
}

/// The process, if its shares are held; else what a call is to answer.
pub(crate) fn get() -> Result<&'static Process, Status> {
    let place = PLACE.load(Ordering::Acquire);
    if !place.is_null() {
        // JUSTIFICATION: memory that the kernel empties cannot be a static.
        // SAFETY: the place was mapped for a `Process`, for which zero bytes are a value, and is never
        // given back.
        let process = unsafe { &*place };
        if process.open.load(Ordering::Acquire) == OPEN {
            return Ok(process);
        }
    }
    begun()
}

#[cold]
fn begun() -> Result<&'static Process, Status> {
    let process = place().ok_or(Status::NO_DEVICE)?;
    fork::leave_drivers();
    // The driver first: another guard that stands before it already does the counting. Not below, where other
    // threads wait: it is looked for with the dynamic linker's lock, which one of them may have.
    driver::CUDA.attach();
    process.begun.run(|| {
        // Another thread may have tried again and held the shares in the meantime.
        if process.open.load(Ordering::Acquire) != OPEN {
            fork::rearm();
            process.begin();
        }
        true
    });
    if process.open.load(Ordering::Acquire) == OPEN { Ok(process) } else { Err(Status::NO_DEVICE) }
}

/// As [`get`], but a process that is closed looks again: the agent may have mended a share since.
pub(crate) fn again() -> Result<&'static Process, Status> {
    if let Ok(process) = get() {
        return Ok(process);
    }
    let process = place().ok_or(Status::NO_DEVICE)?;
    if process.shares.is_empty() {
        process.begun.renew();
    }
    begun()
}

fn place() -> Option<&'static Process> {
    let known = PLACE.load(Ordering::Acquire);
    let place = if known.is_null() { mapped()? } else { known };
    // JUSTIFICATION: as in `get`.
    // SAFETY: as in `get`.
    Some(unsafe { &*place })
}

/// Maps the place, unless another thread has just done so.
fn mapped() -> Option<*mut Process> {
    const BYTES: usize = size_of::<Process>();
    let fresh = memory::fresh(BYTES).ok()?;
    // Where a kernel cannot, the handler of forks empties it.
    let _ = memory::wipe_on_fork(fresh, BYTES);
    let place = fresh.cast::<Process>().as_ptr();
    match PLACE.compare_exchange(ptr::null_mut(), place, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            ID.store(task::process(), Ordering::Relaxed);
            fork::watch();
            Some(place)
        }
        Err(other) => {
            // JUSTIFICATION: nobody needs it.
            // SAFETY: nobody has seen it.
            unsafe { memory::give_back(fresh, BYTES) };
            Some(other)
        }
    }
}

pub(crate) use fork::in_passing;
