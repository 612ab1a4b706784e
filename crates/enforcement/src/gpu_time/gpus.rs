//! The arbiters of all GPUs, with the processes that they give leases to.

use std::collections::BTreeMap;

use octavo_arbiter::{Activity, Arbiter, Settings, ShareTime};

use super::clients::Client;
use super::memory::MemoryState;
use super::{ClientId, TimedShare};

/// The arbiters by GPU, and all processes.
#[derive(Debug, Default)]
pub(super) struct Gpus {
    arbiters: BTreeMap<String, GpuArbiter>,
    /// GPU of each share.
    gpu_of: BTreeMap<String, String>,
    pub(super) memory: MemoryState,
    pub(super) clients: BTreeMap<ClientId, Client>,
}

#[derive(Debug)]
struct GpuArbiter {
    arbiter: Arbiter<String>,
    /// When its next step is due; `None` if none is until a process rings.
    due: Option<u64>,
}

impl Gpus {
    /// Takes the shares that there are now.
    pub(super) fn set_shares(&mut self, shares: Vec<TimedShare>, now: u64) {
        let mut by_gpu: BTreeMap<String, Vec<_>> = BTreeMap::new();
        self.gpu_of.clear();
        for TimedShare { name, gpu, terms } in shares {
            self.gpu_of.insert(name.clone(), gpu.clone());
            by_gpu.entry(gpu).or_default().push((name, terms));
        }
        self.arbiters.retain(|gpu, _| by_gpu.contains_key(gpu));
        for (gpu, shares) in by_gpu {
            let new = || GpuArbiter { arbiter: Arbiter::new(Settings::default(), now), due: None };
            let gpu = self.arbiters.entry(gpu).or_insert_with(new);
            gpu.arbiter.set_shares(shares);
            gpu.due = Some(now);
        }
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
        let gpu = self.clients.get(&id).and_then(|client| self.gpu_of.get(&client.share));
        if let Some(gpu) = gpu.and_then(|gpu| self.arbiters.get_mut(gpu)) {
            gpu.due = Some(now);
        }
    }

    /// Makes a step due for each process that cannot ring.
    pub(super) fn look_at_deaf(&mut self, now: u64) {
        let deaf = self.clients.iter().filter(|(_, client)| client.is_deaf);
        let ids: Vec<ClientId> = deaf.map(|(id, _)| *id).collect();
        for id in ids {
            self.look(id, now);
        }
    }

    /// Makes a step of all GPUs due.
    pub(super) fn look_at_all(&mut self, now: u64) {
        self.arbiters.values_mut().for_each(|gpu| gpu.due = Some(now));
    }

    /// When the next step is due.
    pub(super) fn due(&self) -> Option<u64> {
        self.arbiters.values().filter_map(|gpu| gpu.due).min()
    }

    /// Makes all steps that are due.
    pub(super) fn step(&mut self, now: u64) {
        let Self { arbiters, gpu_of, memory, clients } = self;
        for (uuid, gpu) in
            arbiters.iter_mut().filter(|(_, gpu)| gpu.due.is_some_and(|at| at <= now))
        {
            let is_here = |client: &Client| gpu_of.get(&client.share) == Some(uuid);
            gpu.due = gpu.arbiter.step(now, |share| {
                let own = clients.values().filter(|client| client.share == *share);
                own.fold(Activity { is_drained: true, ..Activity::default() }, |sum, client| {
                    let work = client.work(now);
                    // Of a share that is not on the GPU, threads wait for its memory, and for no lease.
                    let is_waiting = work.is_waiting && !memory.is_suspended(share);
                    Activity {
                        processes: sum.processes + 1,
                        running: sum.running + u32::from(work.is_running),
                        is_waiting: sum.is_waiting || is_waiting,
                        completed: sum.completed.saturating_add(work.completed),
                        is_drained: sum.is_drained && !work.is_running,
                    }
                })
            });
            for client in clients.values_mut().filter(|client| is_here(client)) {
                let lease = memory.lease(&client.share, uuid, gpu.arbiter.lease(&client.share));
                client.set(lease, now);
            }
        }
    }

    /// How much time each share has had so far. A holder that is alone is seldom looked at, so all are looked at now.
    pub(super) fn times(&mut self, now: u64) -> BTreeMap<String, ShareTime> {
        self.look_at_all(now);
        self.step(now);
        let times = self.arbiters.values().flat_map(|gpu| gpu.arbiter.times());
        times.map(|(share, time)| (share.clone(), time)).collect()
    }
}
