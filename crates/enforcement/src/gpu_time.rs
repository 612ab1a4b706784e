//! Gives the processes of shares leases of GPU time. The design is in `docs/design/gpu-time.md`.
//!
//! ```text
//! guard's connection --join--> GpuTime --commands--> thread: arbiters of the node
//!                                                       |  reads activity, sets leases
//!                                                       v
//!                                          lease page of each process
//! ```
//!
//! One thread serves all GPUs of the node. It sleeps while no share waits: until a process rings its doorbell, ends, or a
//! new one joins. While shares wait for each other it looks at their pages every millisecond.
//!
//! A process whose guard is older has no page and no lease: it launches whenever it wants.

mod clients;
mod gpus;
mod memory;
mod thread;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use octavo_api::config::ComputePart;
use octavo_arbiter::{MILLISECOND, ShareTime, Terms};
use octavo_lease_page::SharedPage;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::Notify;

use crate::share::ActiveShare;
use clients::Client;
use memory::MemoryCommand;
pub(crate) use memory::{PageMove, ProcessMemory, ProcessMove};

/// A share as the arbiters know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimedShare {
    /// Name of its folder.
    pub(crate) name: String,
    /// UUID of its GPU.
    pub(crate) gpu: String,
    /// What it asks for.
    pub(crate) terms: Terms,
    /// UID of its claim, if it has one. The shares of one claim on several GPUs have their leases together.
    pub(crate) claim: Option<String>,
}

impl TimedShare {
    /// A share of a claim. Without a limit it has more than its request while others leave it.
    pub(crate) fn of(share: &ActiveShare) -> Self {
        let name = share.folder.file_name().unwrap_or_default().to_string_lossy();
        let request = ComputePart(share.compute_milli_percent);
        let limit = share.compute_limit.map(ComputePart);
        let quantum = share.quantum_ms.map(|quantum| u64::from(quantum) * MILLISECOND);
        let terms = Terms { request, limit, class: share.class, quantum };
        let claim = Some(share.claim.uid.clone());
        Self { name: name.into_owned(), gpu: share.gpu_uuid.clone(), terms, claim }
    }
}

/// Names a process that has joined.
type ClientId = u64;

/// What the thread is asked to do.
enum Command {
    /// These are the shares now.
    Shares(Vec<TimedShare>),
    /// A process of a share has a page.
    Join(ClientId, Client),
    /// The connection of a process is gone.
    Leave(ClientId),
    /// How much time each share has had so far.
    Times(Sender<BTreeMap<String, ShareTime>>),
    /// Something about the memory of shares.
    Memory(MemoryCommand),
}

/// The thread that gives leases. It ends when this and all [`LeaseClient`]s are dropped; then no process needs a lease.
#[derive(Debug)]
pub(crate) struct GpuTime {
    commands: Sender<Command>,
    wake: OwnedFd,
    last_id: AtomicU64,
    needs: Arc<Notify>,
    thread: JoinHandle<()>,
}

impl GpuTime {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let (commands, receiver) = mpsc::channel();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let needs = Arc::new(Notify::new());
        let thread = thread::LeaseThread::new(receiver, wake.try_clone()?, Arc::clone(&needs))?;
        let named = std::thread::Builder::new().name("gpu-time".to_owned());
        let thread = named.spawn(move || thread.run())?;
        Ok(Arc::new(Self { commands, wake, last_id: AtomicU64::new(0), needs, thread }))
    }

    /// Whether the thread runs. When it has failed, no process needs a lease.
    pub(crate) fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Takes the shares that there are now.
    pub(crate) fn set_shares(&self, shares: Vec<TimedShare>) {
        self.send(Command::Shares(shares));
    }

    /// Shares a page with the process at the other end of a socket. It has leases until the result is dropped.
    pub(crate) fn join(
        self: &Arc<Self>,
        share: &str,
        pid: u32,
        socket: impl AsFd,
    ) -> io::Result<LeaseClient> {
        let number = pid;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let (page, doorbell, offer) = SharedPage::create()?;
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let client = Client::new(share.to_owned(), page, doorbell, (number, process));
        // First, so that the process finds a page that is served.
        self.send(Command::Join(id, client));
        let joined = LeaseClient { of: Arc::clone(self), id };
        offer.send(socket)?;
        Ok(joined)
    }

    /// How much time each share has had so far, by the name of its folder. Empty if the thread is gone.
    pub(crate) fn times(&self) -> BTreeMap<String, ShareTime> {
        let (sender, receiver) = mpsc::channel();
        self.send(Command::Times(sender));
        receiver.recv().unwrap_or_default()
    }

    fn send(&self, command: Command) {
        // Without the thread, processes need no lease.
        if self.commands.send(command).is_ok() {
            self.wake();
        }
    }

    fn wake(&self) {
        // A counter that cannot be increased wakes the thread, too.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for GpuTime {
    fn drop(&mut self) {
        // The thread sees that no commands can come.
        let (closed, _) = mpsc::channel();
        drop(std::mem::replace(&mut self.commands, closed));
        self.wake();
    }
}

/// A process that has leases, until this is dropped.
#[derive(Debug)]
pub(crate) struct LeaseClient {
    of: Arc<GpuTime>,
    id: ClientId,
}

impl Drop for LeaseClient {
    fn drop(&mut self) {
        self.of.send(Command::Leave(self.id));
    }
}

#[cfg(test)]
pub(crate) mod tests;
