//! What the lease pages show about the memory of shares, and what the agent sets there. The watchdog decides about it
//! ([`crate::swap`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};

use octavo_arbiter::Lease;
use tokio::sync::futures::Notified;

use super::gpus::Gpus;
use super::{ClientId, Command, GpuTime};

/// Cap of a share of which it matters whether it works: without a cap nothing is counted.
const OBSERVED_CAP: u32 = 256;

/// The memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessMemory {
    /// Its pid.
    pub(crate) pid: u32,
    /// Bytes that a thread needs and waits for.
    pub(crate) need: Option<u64>,
    /// Whether a thread waits for a lease, or for memory that is not on the GPU.
    pub(crate) is_waiting: bool,
    /// Whether it has work in flight.
    pub(crate) is_running: bool,
    /// Whether it may have worked since the last look.
    pub(crate) is_active: bool,
    /// Flags of [`octavo_guard_abi::lease_page`].
    pub(crate) unmovable: u32,
    /// Whether its guard moves memory: a value of [`octavo_guard_abi::lease_page`].
    pub(crate) can_move: u32,
    /// Bytes on the GPU that its guard can move.
    pub(crate) movable: u64,
    /// Bytes that its guard has moved to the host.
    pub(crate) moved: u64,
}

/// Names a move of a share's memory by its guards.
pub(super) type MoveTicket = u64;

/// How far a process is with a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessMove {
    /// Its pid.
    pub(crate) pid: u32,
    /// Whether its guard moves memory. One that does not say so may be older, or have begun just now.
    pub(crate) can_move: bool,
    /// Whether its guard has ended the move.
    pub(crate) is_done: bool,
    /// How the move ended: a value of [`octavo_guard_abi::lease_page`].
    pub(crate) status: u32,
    /// Bytes that are on the host.
    pub(crate) moved: u64,
    /// Changes with each piece of memory that was copied. An older guard shows none.
    pub(crate) progress: u32,
}

/// A move of a share's memory by its guards, which are asked as they connect.
#[derive(Debug)]
pub(crate) struct PageMove<'a> {
    gpu_time: &'a GpuTime,
    share: &'a str,
    ticket: MoveTicket,
    to_host: bool,
}

impl PageMove<'_> {
    /// Asks the guards that have not been asked yet. Returns how far each process is.
    pub(crate) fn ask(&self) -> Vec<ProcessMove> {
        let (sender, receiver) = mpsc::channel();
        let share = self.share.to_owned();
        let command = MemoryCommand::Move(share, self.ticket, self.to_host, sender);
        self.gpu_time.send(Command::Memory(command));
        receiver.recv().unwrap_or_default()
    }
}

/// What the thread is asked to do.
pub(super) enum MemoryCommand {
    /// The memory of all processes, by share.
    Look(Sender<BTreeMap<String, Vec<ProcessMemory>>>),
    /// Whether a share has work in flight, once its lease has ended.
    IsRunning(String, Sender<bool>),
    /// Whether a share's calls wait for its memory.
    Suspend(String, bool),
    /// The guards of a share move its memory, to the host or not.
    Move(String, MoveTicket, bool, Sender<Vec<ProcessMove>>),
    /// Threads of a share that wait for memory try again.
    Answer(String),
    /// The GPUs on which it matters who works.
    Observe(BTreeSet<String>),
}

/// What is set about the memory of shares.
#[derive(Debug, Default)]
pub(super) struct MemoryState {
    /// Whether anything divides memory. Otherwise no request is ever met.
    is_divided: bool,
    suspended: BTreeSet<String>,
    observed: BTreeSet<String>,
}

impl MemoryState {
    pub(super) fn is_suspended(&self, share: &str) -> bool {
        self.suspended.contains(share)
    }

    /// The lease of a share, given that of its arbiter.
    pub(super) fn lease(&self, share: &str, gpu: &str, lease: Lease) -> Lease {
        match lease {
            _ if self.is_suspended(share) => Lease::None,
            Lease::Free if self.observed.contains(gpu) => Lease::Capped(OBSERVED_CAP),
            lease => lease,
        }
    }
}

impl Gpus {
    pub(super) fn take_memory_command(&mut self, command: MemoryCommand, now: u64) {
        self.memory.is_divided = true;
        match command {
            MemoryCommand::Look(sender) => {
                let mut shares: BTreeMap<_, Vec<_>> = BTreeMap::new();
                for client in self.clients.values_mut() {
                    let memory = client.memory(now);
                    shares.entry(client.share.clone()).or_default().push(memory);
                }
                // The asker may have gone.
                let _ = sender.send(shares);
            }
            MemoryCommand::IsRunning(share, sender) => {
                self.step(now);
                let mut own = self.clients.values().filter(|client| client.share == share);
                let is_running = own.any(|client| client.work(now).is_running);
                // The asker may have gone.
                let _ = sender.send(is_running);
            }
            MemoryCommand::Suspend(share, is_suspended) => {
                let of_share = self.clients.iter().filter(|(_, client)| client.share == share);
                of_share.clone().for_each(|(_, client)| client.suspend(is_suspended));
                let ids: Vec<ClientId> = of_share.map(|(id, _)| *id).collect();
                if is_suspended {
                    self.memory.suspended.insert(share);
                } else {
                    self.memory.suspended.remove(&share);
                }
                for id in ids {
                    self.look(id, now);
                }
            }
            MemoryCommand::Move(share, ticket, to_host, sender) => {
                let own = self.clients.values_mut().filter(|client| client.share == share);
                // The asker may have gone.
                let _ = sender.send(own.map(|client| client.ask_move(ticket, to_host)).collect());
            }
            MemoryCommand::Answer(share) => {
                let of_share = self.clients.values().filter(|client| client.share == share);
                of_share.for_each(super::clients::Client::answer);
            }
            MemoryCommand::Observe(gpus) => {
                if self.memory.observed != gpus {
                    self.memory.observed = gpus;
                    self.look_at_all(now);
                }
            }
        }
    }

    /// Whether a process needs memory that it does not have. Where nothing divides memory, its request is answered at once.
    pub(super) fn has_needs(&self, id: ClientId) -> bool {
        let Some(client) = self.clients.get(&id) else { return false };
        if !self.memory.is_divided {
            client.answer_all();
            return false;
        }
        let is_suspended = self.memory.is_suspended(&client.share);
        client.needs_memory() || is_suspended && client.is_waiting()
    }
}

impl GpuTime {
    /// The memory of all processes that have a page, by the name of their share's folder. Empty if the thread is gone.
    pub(crate) fn memory(&self) -> BTreeMap<String, Vec<ProcessMemory>> {
        let (sender, receiver) = mpsc::channel();
        self.send(Command::Memory(MemoryCommand::Look(sender)));
        receiver.recv().unwrap_or_default()
    }

    /// Whether a share has work in flight. It has no lease any more if it is suspended.
    pub(crate) fn has_work(&self, share: &str) -> bool {
        let (sender, receiver) = mpsc::channel();
        self.send(Command::Memory(MemoryCommand::IsRunning(share.to_owned(), sender)));
        receiver.recv().unwrap_or(false)
    }

    /// Lets calls of a share wait while its memory is not on the GPU, or lets them go on.
    pub(crate) fn suspend(&self, share: &str, is_suspended: bool) {
        self.send(Command::Memory(MemoryCommand::Suspend(share.to_owned(), is_suspended)));
    }

    /// A move of a share's memory by its guards, to the host or back. It begins when they are asked.
    pub(crate) fn page_move<'a>(&'a self, share: &'a str, to_host: bool) -> PageMove<'a> {
        let ticket = self.last_id.fetch_add(1, Ordering::Relaxed);
        PageMove { gpu_time: self, share, ticket, to_host }
    }

    /// Lets threads of a share that wait for memory try again.
    pub(crate) fn answer(&self, share: &str) {
        self.send(Command::Memory(MemoryCommand::Answer(share.to_owned())));
    }

    /// Sets the GPUs on which it matters who works.
    pub(crate) fn observe(&self, gpus: BTreeSet<String>) {
        self.send(Command::Memory(MemoryCommand::Observe(gpus)));
    }

    /// Lets the watchdog look at the memory of shares now.
    pub(crate) fn notify_needs(&self) {
        self.needs.notify_one();
    }

    /// Waits until a process needs memory that it does not have.
    pub(crate) fn needs(&self) -> Notified<'_> {
        self.needs.notified()
    }
}
