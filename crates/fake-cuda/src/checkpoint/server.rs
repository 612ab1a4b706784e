//! The thread that answers requests about its process, one after the other.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::{io, ptr, thread};

use octavo_fake_gpu::process_socket;

use crate::checkpoint::message::{Answer, Request, answer_line};
use crate::checkpoint::target::Target;
use crate::code::Code;
use crate::machine::Driver;

/// Name of the thread.
const THREAD: &str = "cuda-restore";

/// The descriptor of the listening socket; -1 if there is none.
static LISTENER: AtomicI32 = AtomicI32::new(-1);

/// Starts the thread. Without it the process is none that can be checkpointed: its folder may be read-only, or another copy of the
/// library in this process was first.
pub(crate) fn start(driver: &'static Driver) {
    let Ok(listener) = process_socket::listen(&driver.location.folder) else { return };
    let descriptor = listener.as_raw_fd();
    let Ok(signals) = Signals::block() else { return };
    let run = move || serve(driver, &listener);
    if thread::Builder::new().name(THREAD.to_owned()).spawn(run).is_ok() {
        LISTENER.store(descriptor, Relaxed);
    }
    drop(signals);
}

/// Must be called in a child of `fork`: the socket belongs to the parent and must end with it.
pub(crate) fn leave_in_child() {
    let descriptor = LISTENER.swap(-1, Relaxed);
    if descriptor >= 0 {
        // JUSTIFICATION: the listener cannot be dropped, because its thread is not in the child.
        // SAFETY: closing a descriptor touches no memory, and no thread of the child uses it.
        unsafe { libc::close(descriptor) };
    }
}

/// Signals of the program, which must not reach a thread of the driver; threads inherit what is blocked.
struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks all of them for this thread, until it is dropped.
    fn block() -> io::Result<Self> {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // JUSTIFICATION: the standard library has no signal masks.
        // SAFETY: the set is writable, and filled by the call.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: one set is filled, the other writable.
        let code =
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        // SAFETY: the call above has written it.
        Ok(Self(unsafe { before.assume_init() }))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the set is a mask that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

fn serve(driver: &'static Driver, listener: &UnixListener) {
    let mut target = Target::new(driver);
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        let mut line = String::new();
        if BufReader::new(&stream).read_line(&mut line).is_err() {
            continue;
        }
        let request = Request::parse(&line);
        let answer = request
            .map_or(Err(Code::INVALID_VALUE), |request| answer(&mut target, request, &stream));
        // A caller that has ended needs no answer.
        let _ = (&stream).write_all(answer_line(answer).as_bytes());
    }
}

fn answer(target: &mut Target, request: Request, caller: &UnixStream) -> Answer {
    match request {
        Request::State => Ok(target.state() as u32),
        // SAFETY: it has no arguments and cannot fail.
        Request::Thread => u32::try_from(unsafe { libc::gettid() }).map_err(|_| Code::UNKNOWN),
        Request::Lock { timeout } => {
            caller.set_nonblocking(true).map_err(|_| Code::OPERATING_SYSTEM)?;
            let locked = target.lock(timeout, &|| has_ended(caller));
            caller.set_nonblocking(false).map_err(|_| Code::OPERATING_SYSTEM)?;
            locked.map(|()| 0)
        }
        Request::Checkpoint => target.checkpoint().map(|()| 0),
        Request::Restore(pairs) => target.restore(&pairs).map(|()| 0),
        Request::Unlock => target.unlock().map(|()| 0),
    }
}

/// Whether a caller has closed its end; it sends nothing after its request.
fn has_ended(mut caller: &UnixStream) -> bool {
    !matches!(caller.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}
