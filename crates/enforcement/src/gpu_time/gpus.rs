//! The arbiters of the node's GPUs, with the processes that they give leases to.

use std::collections::{BTreeMap, BTreeSet};

use octavo_arbiter::{Activity, Node, NodeShare, Settings, ShareTime};

use super::clients::Client;
use super::memory::MemoryState;
use super::{ClientId, TimedShare};

/// The arbiters, and all processes.
#[derive(Debug)]
pub(super) struct Gpus {
    node: Node<String, String>,
    /// GPU of each share.
    gpu_of: BTreeMap<String, String>,
    pub(super) memory: MemoryState,
    pub(super) clients: BTreeMap<ClientId, Client>,
}

impl Default for Gpus {
    fn default() -> Self {
        let node = Node::new(Settings::default());
        let memory = MemoryState::default();
        Self { node, gpu_of: BTreeMap::new(), memory, clients: BTreeMap::new() }
    }
}

impl Gpus {
    /// Takes the shares that there are now.
    pub(super) fn set_shares(&mut self, shares: Vec<TimedShare>, now: u64) {
        let gpus = shares.iter().map(|share| (share.name.clone(), share.gpu.clone()));
        self.gpu_of = gpus.collect();
        let shares = shares.into_iter().map(|TimedShare { name, gpu, terms, claim }| NodeShare {
            gpu,
            name,
            terms,
            claim,
        });
        self.node.set_shares(now, shares);
        let Self { gpu_of, clients, .. } = self;
        let unknown = clients.values_mut().filter(|client| !gpu_of.contains_key(&client.share));
        unknown.for_each(Client::release);
    }

    /// Adds a process. That of a share which is not known yet launches whenever it wants.
    pub(super) fn join(&mut self, id: ClientId, mut client: Client, now: u64) {
        if !self.gpu_of.contains_key(&client.share) {
            client.release();
        }
        client.suspend(self.memory.is_suspended(&client.share));
        self.clients.insert(id, client);
        self.look(id, now);
    }

    /// Removes a process, which may have ended.
    pub(super) fn leave(&mut self, id: ClientId, now: u64) -> Option<Client> {
        self.look(id, now);
        self.clients.remove(&id)
    }

    /// Makes a step of a process's GPU due.
    pub(super) fn look(&mut self, id: ClientId, now: u64) {
        if let Some(client) = self.clients.get(&id) {
            self.node.look(&client.share, now);
        }
    }

    /// Makes a step due for each process that cannot ring.
    pub(super) fn look_at_deaf(&mut self, now: u64) {
        for client in self.clients.values().filter(|client| client.is_deaf) {
            self.node.look(&client.share, now);
        }
    }

    /// Makes a step of all GPUs due.
    pub(super) fn look_at_all(&mut self, now: u64) {
        self.node.look_at_all(now);
    }

    /// When the next step is due.
    pub(super) fn due(&self) -> Option<u64> {
        self.node.due()
    }

    /// Makes all steps that are due.
    pub(super) fn step(&mut self, now: u64) {
        let Self { node, gpu_of, memory, clients } = self;
        let gpus: BTreeSet<String> = node.step(now, |share| {
            let mut activity = activity(clients, share, now);
            // Of a share that is not on the GPU, threads wait for its memory, and for no lease.
            activity.is_waiting &= !memory.is_suspended(share);
            activity
        });
        if gpus.is_empty() {
            return;
        }
        for client in clients.values_mut() {
            if let Some(gpu) = gpu_of.get(&client.share).filter(|gpu| gpus.contains(*gpu)) {
                client.set(memory.lease(&client.share, gpu, node.lease(&client.share)), now);
            }
        }
    }

    /// How much time each share has had so far. A holder that is alone is seldom looked at, so all are looked at now.
    pub(super) fn times(&mut self, now: u64) -> BTreeMap<String, ShareTime> {
        self.node.look_at_all(now);
        self.step(now);
        self.node.times().map(|(share, time)| (share.clone(), time)).collect()
    }
}

/// What the processes of a share do, summed up.
fn activity(clients: &BTreeMap<ClientId, Client>, share: &str, now: u64) -> Activity {
    let own = clients.values().filter(|client| client.share == share);
    own.fold(Activity::default(), |sum, client| {
        let work = client.work(now);
        Activity {
            processes: sum.processes + 1,
            running: sum.running + u32::from(work.is_running),
            is_waiting: sum.is_waiting || work.is_waiting,
            completed: sum.completed.saturating_add(work.completed),
        }
    })
}
