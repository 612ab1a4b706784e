//! The socket in a share's folder, on which the guards of its processes identify themselves.
//!
//! The kernel reports the pid of the peer (`SO_PEERCRED`) in this process's pid namespace, which is the host's if the
//! agent runs there. A socket is created under another name and then replaces the one that a killed agent left, so a
//! socket always exists. Guards reconnect when their connection breaks.
//!
//! Any process of a container may connect. The number of connections per share is bounded to protect the agent's
//! descriptors, and the frame rate to protect its CPU time.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as BlockingListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use octavo_guard_abi::SOCKET_FILE;
use octavo_guard_abi::message::{Frame, Kind, LEASE_PAGE, SIZE};
use rustix::fs::{Mode, OFlags};
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::gpu_time::{GpuTime, LeaseClient};
use crate::process::Process;
use crate::process::proc::Proc;
use crate::watchdog::guards::connection_quota::{ConnectionPermit, ShareQuota};
use crate::watchdog::guards::reports::GuardReports;

/// The name under which a socket is made.
const TEMP_SOCKET: &str = ".agent.sock.new";
/// Delay after a rejected connection, so that repeated attempts cost little.
const REJECT_DELAY: Duration = Duration::from_millis(20);
/// Timeout for the first frame of a connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Long-term interval between frames of a share, and the maximum burst.
const FRAME_INTERVAL: Duration = Duration::from_millis(2);
const FRAME_BURST: u32 = 512;

/// A share's socket. Dropping it ends all its connections. The file stays for the next agent to replace, and is removed
/// with the share's folder.
#[derive(Debug)]
pub(crate) struct GuardListener {
    path: PathBuf,
    file: (u64, u64),
    task: AbortHandle,
}

impl GuardListener {
    /// Listens in the folder of a share. `quota` is the share's part of all connections. Needs a tokio runtime.
    pub(crate) fn open(
        folder: &Path,
        guard_reports: Arc<GuardReports>,
        proc: Proc,
        quota: Arc<ShareQuota>,
        gpu_time: Option<Arc<GpuTime>>,
    ) -> io::Result<Self> {
        let listener = UnixListener::from_std(listen(folder)?)?;
        let path = folder.join(SOCKET_FILE);
        let file = identity(&path)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into();
        let acceptor = ConnectionAcceptor {
            name,
            guard_reports,
            proc,
            quota,
            gpu_time,
            pacer: Arc::new(FramePacer::default()),
        };
        let task = tokio::spawn(acceptor.serve(listener)).abort_handle();
        Ok(Self { path, file, task })
    }

    /// Whether the path still leads here.
    pub(crate) fn is_in_place(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.file)
    }
}

impl Drop for GuardListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Binds through the folder's descriptor, since the path may exceed the length of a socket address.
fn listen(folder: &Path) -> io::Result<BlockingListener> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, Mode::empty())?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let new = short.join(TEMP_SOCKET);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = BlockingListener::bind(&new)?;
    listener.set_nonblocking(true)?;
    // Containers run as any user.
    fs::set_permissions(&new, fs::Permissions::from_mode(0o666))?;
    fs::rename(&new, short.join(SOCKET_FILE))?;
    Ok(listener)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Accepts the connections of a share.
#[derive(Clone)]
struct ConnectionAcceptor {
    /// Name of the share's folder.
    name: Arc<str>,
    guard_reports: Arc<GuardReports>,
    proc: Proc,
    quota: Arc<ShareQuota>,
    /// Gives leases, if this agent does.
    gpu_time: Option<Arc<GpuTime>>,
    pacer: Arc<FramePacer>,
}

impl ConnectionAcceptor {
    async fn serve(self, listener: UnixListener) {
        // Dropped with this task, and the connections with it.
        let mut connections = JoinSet::new();
        loop {
            let accepted = listener.accept().await;
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) => {
                    if let Some(connection) = self.admit(&stream) {
                        connections.spawn(connection.listen(stream));
                        continue;
                    }
                }
                Err(error) => tracing::warn!(%error, "a guard's connection was not accepted"),
            }
            sleep(REJECT_DELAY).await;
        }
    }

    /// Identifies the peer, unless a quota is exhausted. A process that has exited already is ignored.
    fn admit(&self, stream: &UnixStream) -> Option<GuardConnection> {
        let permit = self.quota.try_acquire()?;
        let pid = u32::try_from(stream.peer_cred().ok()?.pid()?).ok().filter(|pid| *pid != 0)?;
        let start_time = self.proc.stat(pid).ok()?.start_time;
        let process = Process { pid, start_time };
        let is_admitted = self.guard_reports.connect(process);
        is_admitted.then(|| GuardConnection { acceptor: self.clone(), process, _permit: permit })
    }
}

/// A process that is connected.
struct GuardConnection {
    acceptor: ConnectionAcceptor,
    process: Process,
    _permit: ConnectionPermit,
}

impl GuardConnection {
    /// Reads frames until the connection ends or sends an invalid one.
    async fn listen(self, mut stream: UnixStream) {
        let mut bytes = [0; SIZE];
        let Ok(Ok(_)) = timeout(HELLO_TIMEOUT, stream.read_exact(&mut bytes)).await else { return };
        let hello = Frame::decode(&bytes).filter(|frame| frame.kind == Kind::Hello);
        // A page costs the agent more than a frame.
        self.acceptor.pacer.take().await;
        let _lease = hello.as_ref().and_then(|hello| self.lease(hello, &stream));
        let mut next = hello;
        while let Some(frame) = next {
            self.acceptor.guard_reports.take(&frame);
            if stream.read_exact(&mut bytes).await.is_err() {
                return;
            }
            self.acceptor.pacer.take().await;
            next = Frame::decode(&bytes);
        }
        tracing::debug!(pid = self.process.pid, "a guard's connection said what no guard says");
    }
}

impl GuardConnection {
    /// Gives the process leases of GPU time, if it asks for them.
    fn lease(&self, hello: &Frame, stream: &UnixStream) -> Option<LeaseClient> {
        let gpu_time = self.acceptor.gpu_time.as_ref()?;
        if hello.text() != LEASE_PAGE {
            self.acceptor.guard_reports.has_no_page(self.process);
            return None;
        }
        let (share, pid) = (&*self.acceptor.name, self.process.pid);
        let joined = gpu_time.join(share, pid, stream).inspect_err(|error| {
            tracing::debug!(share, pid, %error, "a process has no leases of GPU time");
        });
        // Another process may have had the number before it was opened.
        let is_same = |_: &LeaseClient| {
            self.acceptor.proc.stat(pid).is_ok_and(|it| it.start_time == self.process.start_time)
        };
        joined.ok().filter(is_same)
    }
}

impl Drop for GuardConnection {
    fn drop(&mut self) {
        self.acceptor.guard_reports.disconnect(self.process);
    }
}

/// Time of the next permitted frame of a share.
#[derive(Debug, Default)]
struct FramePacer(Mutex<Option<Instant>>);

impl FramePacer {
    /// Waits until one more frame is permitted.
    async fn take(&self) {
        let now = Instant::now();
        let at = {
            let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let earliest = now.checked_sub(FRAME_INTERVAL * FRAME_BURST).unwrap_or(now);
            let at = next.unwrap_or(earliest).max(earliest);
            *next = Some(at + FRAME_INTERVAL);
            at
        };
        // A moment that is past is not waited for.
        tokio::time::sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests;
