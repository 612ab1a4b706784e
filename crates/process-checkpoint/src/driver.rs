//! The driver's library, and its functions about other processes.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::time::Duration;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::CheckpointError;
use crate::steps::{ActionError, ProcessState, Step, Target};

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type Resolve =
    unsafe extern "C" fn(*const c_char, &mut *const c_void, c_int, u64, &mut c_int) -> c_int;
type GetState = unsafe extern "C" fn(c_int, &mut c_uint) -> c_int;
/// The four steps have the same form: a pid, and a structure of 64 bytes.
type StepCall = unsafe extern "C" fn(c_int, *const [c_uint; 16]) -> c_int;

/// The CUDA version of the first driver with these functions, as `cuGetProcAddress` takes it.
const SINCE: c_int = 12_080;

/// Results of the driver with a meaning here.
mod code {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const INVALID_VALUE: i32 = 1;
    pub(super) const OUT_OF_MEMORY: i32 = 2;
    pub(super) const NOT_FOUND: i32 = 500;
    pub(super) const NOT_READY: i32 = 600;
    pub(super) const NOT_PERMITTED: i32 = 800;
    pub(super) const NOT_SUPPORTED: i32 = 801;
}

/// The functions of an open driver.
pub(crate) struct Driver {
    get_state: GetState,
    lock: StepCall,
    checkpoint: StepCall,
    restore: StepCall,
    unlock: StepCall,
    /// Last, because the functions are its own.
    _library: Library,
}

impl Driver {
    /// Opens and initialises a library.
    pub(crate) fn open(path: &Path) -> Result<Self, ActionError> {
        // SAFETY: it is the driver's library; every program of CUDA runs its initialisers.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| {
            let message = format!("{} cannot be opened: {error}", path.display());
            ActionError::new(CheckpointError::Failed, message)
        })?;
        // SAFETY: its type in cuda.h.
        let init = unsafe { library.get::<Init>(b"cuInit\0") };
        let init = init.map_err(|error| failed(format!("no CUDA driver: {error}")))?;
        // SAFETY: it takes flags, which must be 0.
        match unsafe { init(0) } {
            code::SUCCESS => {}
            other => return Err(failed(format!("cuInit: CUDA error {other}"))),
        }
        // SAFETY: its type in cuda.h.
        let resolve = unsafe { library.get::<Resolve>(b"cuGetProcAddress_v2\0") };
        let resolve = *resolve.map_err(|_| no_support())?;
        // SAFETY: each has this type in cuda.h.
        let get_state = unsafe {
            std::mem::transmute::<*const c_void, GetState>(find(
                resolve,
                c"cuCheckpointProcessGetState",
            )?)
        };
        let step = |name| {
            let address = find(resolve, name)?;
            // JUSTIFICATION: the driver returns functions as addresses.
            // SAFETY: not null, and each has this type in cuda.h, with a structure of 64 bytes.
            Ok(unsafe { std::mem::transmute::<*const c_void, StepCall>(address) })
        };
        Ok(Self {
            get_state,
            lock: step(c"cuCheckpointProcessLock")?,
            checkpoint: step(c"cuCheckpointProcessCheckpoint")?,
            restore: step(c"cuCheckpointProcessRestore")?,
            unlock: step(c"cuCheckpointProcessUnlock")?,
            _library: library,
        })
    }
}

/// The address of a function; never null.
fn find(resolve: Resolve, name: &CStr) -> Result<*const c_void, ActionError> {
    let (mut found, mut status) = (std::ptr::null(), 0);
    // SAFETY: the name lives through the call, and the results are local variables.
    let code = unsafe { resolve(name.as_ptr(), &mut found, SINCE, 0, &mut status) };
    if code == code::SUCCESS && !found.is_null() { Ok(found) } else { Err(no_support()) }
}

/// A process, by its pid in this process's namespace.
pub(crate) struct CudaProcess<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) pid: i32,
}

impl Target for CudaProcess<'_> {
    fn state(&self) -> Result<ProcessState, ActionError> {
        let mut state = 0;
        // SAFETY: the result is a local variable.
        let code = unsafe { (self.driver.get_state)(self.pid, &mut state) };
        match (code, state) {
            (code::SUCCESS, 0) => Ok(ProcessState::Running),
            (code::SUCCESS, 1) => Ok(ProcessState::Locked),
            (code::SUCCESS, 2) => Ok(ProcessState::Checkpointed),
            (code::SUCCESS, 3) => Ok(ProcessState::Failed),
            (code::SUCCESS, other) => Err(failed(format!(
                "process {} is in the state {other}, between two steps",
                self.pid
            ))),
            (code::NOT_SUPPORTED | code::NOT_FOUND, _) => Err(no_support()),
            (code::INVALID_VALUE, _) => {
                Err(self.error("state", code::INVALID_VALUE, CheckpointError::NoProcess))
            }
            (code, _) => Err(self.error("state", code, CheckpointError::Failed)),
        }
    }

    fn step(&mut self, step: Step, timeout: Duration) -> Result<(), ActionError> {
        let mut args = [0; 16];
        let call = match step {
            Step::Lock => {
                // 0 would be no timeout.
                args[0] = c_uint::try_from(timeout.as_millis()).unwrap_or(c_uint::MAX).max(1);
                self.driver.lock
            }
            Step::Checkpoint => self.driver.checkpoint,
            Step::Restore => self.driver.restore,
            Step::Unlock => self.driver.unlock,
        };
        // SAFETY: a structure of 64 bytes that lives through the call; what is reserved in it is zero.
        let code = unsafe { call(self.pid, &raw const args) };
        let reason = match (step, code) {
            (_, code::SUCCESS) => return Ok(()),
            (Step::Lock, code::NOT_READY) => CheckpointError::LockTimedOut,
            (Step::Restore, code::OUT_OF_MEMORY) => CheckpointError::NoMemory,
            (_, code::NOT_SUPPORTED) => CheckpointError::Refused,
            _ => CheckpointError::Failed,
        };
        Err(self.error(step, code, reason))
    }
}

impl CudaProcess<'_> {
    /// The error of a call.
    fn error(
        &self,
        call: impl std::fmt::Display,
        code: i32,
        reason: CheckpointError,
    ) -> ActionError {
        let why = match (code, reason) {
            (code::NOT_PERMITTED, _) => {
                "this process needs the capability SYS_PTRACE, or the user of the other".to_owned()
            }
            (code, CheckpointError::Failed) => format!("CUDA error {code}"),
            (code, reason) => format!("{reason} (CUDA error {code})"),
        };
        ActionError::new(reason, format!("{call} of process {}: {why}", self.pid))
    }
}

fn failed(message: String) -> ActionError {
    ActionError::new(CheckpointError::Failed, message)
}

fn no_support() -> ActionError {
    let message = format!("{}: it needs 570 or later", CheckpointError::NoSupport);
    ActionError::new(CheckpointError::NoSupport, message)
}
