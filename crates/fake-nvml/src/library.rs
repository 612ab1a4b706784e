//! State of this copy of the library, and its entry points from C.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventSet_t, nvmlReturn_t};
use octavo_fake_gpu::locate::{self, MachineLocation};
use octavo_machine::{Event, KernelModule, MachineError, State};

use crate::code::{CallResult, Code};
use crate::handle::Handles;
use crate::session::{Device, Session};

/// State of a copy of the library: empty until it is initialised.
struct Library {
    /// Initialisations without a shutdown.
    users: u32,
    /// Sessions so far.
    sessions: u32,
    session: Option<Session>,
}

static LIBRARY: Mutex<Library> = Mutex::new(Library { users: 0, sessions: 0, session: None });

/// `nvmlInit`: reads the machine the first time, then only counts.
pub(crate) fn init(call: &str) -> nvmlReturn_t {
    catch_panics(|| {
        let mut library = lock();
        let mut opened = None;
        let session = if let Some(session) = &mut library.session {
            session
        } else {
            let location = location().ok_or(Code::LIBRARY_NOT_FOUND)?;
            if !location.may_open("nvidiactl") {
                return Err(Code::DRIVER_NOT_LOADED);
            }
            let anchor = (&raw const LIBRARY).addr();
            let handles = Handles::new(anchor, library.sessions.wrapping_add(1));
            let session = Session::open(&location, handles);
            write_error_file(&location.folder, session.as_ref().err());
            opened.insert(session.map_err(|error| code_of(&error))?)
        };
        session.begin(call)?;
        // Read after this process became a client of the driver: who unloads it looks for clients.
        if !session.state().is_loaded(KernelModule::Nvidia) {
            return Err(Code::DRIVER_NOT_LOADED);
        }
        if opened.is_some() {
            library.session = opened;
            library.sessions = library.sessions.wrapping_add(1);
        }
        library.users += 1;
        Ok(())
    })
}

/// `nvmlShutdown`: the last one drops everything.
pub(crate) fn shutdown(call: &str) -> nvmlReturn_t {
    catch_panics(|| {
        let mut library = lock();
        library.session.as_mut().ok_or(Code::UNINITIALIZED)?.begin(call)?;
        library.users -= 1;
        if library.users == 0 {
            library.session = None;
        }
        Ok(())
    })
}

/// A call on the whole machine.
pub(crate) fn on_machine(
    call: &str,
    body: &mut dyn FnMut(&mut Session) -> CallResult,
) -> nvmlReturn_t {
    catch_panics(|| {
        let mut library = lock();
        let session = library.session.as_mut().ok_or(Code::UNINITIALIZED)?;
        session.begin(call)?;
        body(session)
    })
}

/// A call on one GPU.
pub(crate) fn on_gpu(
    call: &str,
    handle: nvmlDevice_t,
    body: &mut dyn FnMut(&mut Device<'_>) -> CallResult,
) -> nvmlReturn_t {
    on_machine(call, &mut |session| body(&mut session.device(call, handle)?))
}

/// A call on one GPU or one MIG device.
pub(crate) fn on_device(
    call: &str,
    handle: nvmlDevice_t,
    body: &mut dyn FnMut(&mut Device<'_>) -> CallResult,
) -> nvmlReturn_t {
    on_machine(call, &mut |session| body(&mut session.any_device(call, handle)?))
}

/// A call on the machine that takes as long as its state says. Other calls go on meanwhile.
pub(crate) fn on_machine_slowly(
    call: &str,
    millis: fn(&State) -> u64,
    body: &mut dyn FnMut(&mut Session) -> CallResult,
) -> nvmlReturn_t {
    let mut wait = Duration::ZERO;
    let code = on_machine(call, &mut |session| {
        wait = Duration::from_millis(millis(session.state()));
        Ok(())
    });
    if code != Code::of(Ok(())) {
        return code;
    }
    if !wait.is_zero() {
        std::thread::sleep(wait);
    }
    on_machine(call, body)
}

/// Interval at which a wait polls the state file, unless the file has another one. An inotify instance would report at once, but a
/// user has 128 of them, and a lab has hundreds of nodes.
const STATE_POLL_MILLIS: u64 = 250;

/// Waits for the next event of a set, without holding anything while it sleeps. `tell` receives the
/// event with the handle of its GPU.
pub(crate) fn wait(
    call: &str,
    handle: nvmlEventSet_t,
    timeout_ms: u32,
    tell: &mut dyn FnMut(nvmlDevice_t, Event) -> CallResult,
) -> nvmlReturn_t {
    catch_panics(|| {
        let deadline = Instant::now() + Duration::from_millis(timeout_ms.into());
        loop {
            let mut library = lock();
            let session = library.session.as_mut().ok_or(Code::UNINITIALIZED)?;
            let set = session.set(handle)?.clone();
            session.begin(call)?;
            if let Some(event) = set.take(session.state()) {
                return tell(session.handle(event.gpu), event);
            }
            let interval = session.state().event_look_millis.unwrap_or(STATE_POLL_MILLIS).max(1);
            drop(library);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Code::TIMEOUT);
            }
            std::thread::sleep(left.min(Duration::from_millis(interval)));
        }
    })
}

/// Where the machine's description is; the library's own folder if there is none.
fn location() -> Option<MachineLocation> {
    let own = || Some(MachineLocation { folder: locate::library_folder()?, devices: None });
    locate::machine().or_else(own)
}

fn lock() -> MutexGuard<'static, Library> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a call so that no panic reaches the C caller, where unwinding is undefined.
fn catch_panics(body: impl FnOnce() -> CallResult) -> nvmlReturn_t {
    Code::of(catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::UNKNOWN)))
}

fn code_of(error: &MachineError) -> Code {
    match error {
        MachineError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Code::LIBRARY_NOT_FOUND
        }
        _ => Code::UNKNOWN,
    }
}

/// Writes the reason of a failed start to a file, as far as possible: NVML's codes carry no text of
/// their own.
fn write_error_file(folder: &Path, error: Option<&MachineError>) {
    let path = folder.join("machine.error");
    let _ = match error {
        Some(error) => {
            let cause = std::error::Error::source(error).map(|e| format!(": {e}"));
            std::fs::write(path, format!("{error}{}\n", cause.unwrap_or_default()))
        }
        None => std::fs::remove_file(path),
    };
}
