//! One GPU with its tenants, in virtual time. The GPU is a model, not hardware.
//!
//! A tenant does what a guard does: it launches while it has a lease and room under the cap, rings when it waits and
//! when nothing is left in flight. Durations of kernels are seeded, and hidden from the arbiter.

use std::collections::VecDeque;

use octavo_api::config::{ComputePart, ShareClass};
use octavo_arbiter::{Activity, Lease, Terms};
use octavo_fake_gpu::contexts::{ContextId, Contexts, SLICE, SWITCH};

use crate::decide::Decide;

pub(crate) const MICROSECOND: u64 = 1_000;
pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// From the end of a decision until a tenant's threads see it, and from a tenant's word until the decision.
const DELAY: u64 = 50 * MICROSECOND;
/// Launches that CUDA itself lets a stream have in flight.
const QUEUE: usize = 1_024;

/// What the processes of a tenant do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Each launches kernels of this mean duration without end.
    Endless { kernel: u64 },
    /// Requests arrive at random, at this mean interval. Each is a number of kernels.
    Requests { every: u64, kernels: u64, kernel: u64 },
}

/// A tenant before the machine runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) terms: Terms,
    pub(crate) processes: usize,
    pub(crate) work: Work,
    /// When it begins.
    pub(crate) from: u64,
}

impl Share {
    /// An elastic, normal share with one process that never stops launching kernels of 200 microseconds.
    pub(crate) fn of(percent: u32) -> Self {
        let request = ComputePart(percent * 1_000);
        let terms = Terms { request, limit: None, class: ShareClass::Normal, quantum: None };
        Self { terms, processes: 1, work: Work::Endless { kernel: 200 * MICROSECOND }, from: 0 }
    }

    /// The same with a share of an eighth.
    pub(crate) fn eighth() -> Self {
        let mut share = Self::of(12);
        share.terms.request = ComputePart(12_500);
        share
    }

    pub(crate) fn strict(mut self) -> Self {
        self.terms.limit = Some(self.terms.request);
        self
    }

    pub(crate) fn class(mut self, class: ShareClass) -> Self {
        self.terms.class = class;
        self
    }

    pub(crate) fn work(mut self, work: Work) -> Self {
        self.work = work;
        self
    }

    pub(crate) fn processes(mut self, processes: usize) -> Self {
        self.processes = processes;
        self
    }

    pub(crate) fn from(mut self, from: u64) -> Self {
        self.from = from;
        self
    }
}

struct Process {
    context: ContextId,
    /// Kernels to launch; the endless have always one.
    todo: u64,
    next_request: u64,
    launched: u64,
    is_alive: bool,
    /// When requests arrived, and the launches after which each is done.
    requests: VecDeque<(u64, u64)>,
}

struct Tenant {
    share: Share,
    processes: Vec<Process>,
    lease: Lease,
    /// What was decided last, and when it arrives.
    next_lease: Option<(u64, Lease)>,
    /// Since when a thread waits for a lease.
    waits_since: Option<u64>,
    has_drained: bool,
    /// Whether it has nothing in flight.
    is_idle: bool,
    longest_wait: u64,
    /// Time from the arrival of each request until it was done.
    latencies: Vec<u64>,
}

/// A machine with one GPU.
pub(crate) struct Machine<D> {
    gpu: Contexts,
    tenants: Vec<Tenant>,
    decide: D,
    decides_at: Option<u64>,
    random: u64,
    /// Time in which the GPU was idle and a tenant had work.
    pub(crate) wasted: u64,
}

impl<D: Decide> Machine<D> {
    pub(crate) fn new(shares: &[Share], mut decide: D, seed: u64) -> Self {
        decide.begin(&shares.iter().map(|share| share.terms).collect::<Vec<_>>());
        let mut gpu = Contexts::new(SLICE, SWITCH);
        let tenant = |share: &Share| Tenant {
            share: *share,
            processes: (0..share.processes)
                .map(|_| Process {
                    context: gpu.create(),
                    todo: 0,
                    next_request: share.from,
                    launched: 0,
                    is_alive: true,
                    requests: VecDeque::new(),
                })
                .collect(),
            lease: Lease::None,
            next_lease: None,
            waits_since: None,
            has_drained: true,
            is_idle: true,
            longest_wait: 0,
            latencies: Vec::new(),
        };
        let tenants = shares.iter().map(tenant).collect();
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { gpu, tenants, decide, decides_at: Some(0), random, wasted: 0 }
    }

    /// Runs until a point in time.
    pub(crate) fn run(&mut self, until: u64) {
        loop {
            self.pump();
            let Some(next) = self.next_event().filter(|next| *next <= until) else { break };
            self.advance(next);
            if self.decides_at.is_some_and(|at| at <= next) {
                self.decides_at = None;
                self.decide_now(next);
            }
        }
        self.advance(until);
    }

    /// Time for which a tenant was served so far.
    pub(crate) fn served(&self, tenant: usize) -> u64 {
        self.tenants[tenant].processes.iter().map(|process| self.gpu.served(process.context)).sum()
    }

    /// Parts of the time since the beginning, in percent.
    pub(crate) fn parts(&self) -> Vec<f64> {
        (0..self.tenants.len())
            .map(|tenant| 100.0 * self.served(tenant) as f64 / self.gpu.now() as f64)
            .collect()
    }

    /// Part of the time in which the GPU was idle and a tenant had work, in percent.
    pub(crate) fn wasted_part(&self) -> f64 {
        100.0 * self.wasted as f64 / self.gpu.now() as f64
    }

    /// The longest time for which a thread of the tenant waited for a lease.
    pub(crate) fn longest_wait(&self, tenant: usize) -> u64 {
        self.tenants[tenant].longest_wait
    }

    /// The time that a tenant's requests took, of which only one percent took longer.
    pub(crate) fn p99(&self, tenant: usize) -> u64 {
        let mut latencies = self.tenants[tenant].latencies.clone();
        latencies.sort_unstable();
        latencies[latencies.len() * 99 / 100]
    }

    pub(crate) fn now(&self) -> u64 {
        self.gpu.now()
    }

    /// Kills a tenant's processes.
    pub(crate) fn kill(&mut self, tenant: usize) {
        for process in &mut self.tenants[tenant].processes {
            process.is_alive = false;
            process.todo = 0;
            self.gpu.destroy(process.context);
        }
        self.ring();
    }

    pub(crate) fn decider(&self) -> &D {
        &self.decide
    }

    /// A random number below a limit (xorshift).
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    /// Between half and one and a half of a mean.
    fn around(&mut self, mean: u64) -> u64 {
        mean / 2 + self.random(mean + 1)
    }

    /// Lets all tenants launch what they may.
    fn pump(&mut self) {
        let now = self.gpu.now();
        for index in 0..self.tenants.len() {
            let Tenant { share, lease, .. } = self.tenants[index];
            let room = match lease {
                Lease::None => 0,
                Lease::Capped(cap) => cap as usize,
                Lease::Free => QUEUE,
            };
            let mut waits = false;
            for which in 0..self.tenants[index].processes.len() {
                self.arrive(index, which);
                let kernel = match share.work {
                    Work::Endless { kernel } | Work::Requests { kernel, .. } => kernel,
                };
                loop {
                    let process = &self.tenants[index].processes[which];
                    let (context, todo) = (process.context, process.todo);
                    if todo == 0 || self.gpu.in_flight(context) >= room {
                        waits |= todo > 0 && lease == Lease::None;
                        break;
                    }
                    let duration = self.around(kernel);
                    self.gpu.launch(context, duration);
                    let process = &mut self.tenants[index].processes[which];
                    process.launched += 1;
                    if matches!(share.work, Work::Requests { .. }) {
                        process.todo -= 1;
                    }
                }
            }
            let tenant = &mut self.tenants[index];
            if waits && tenant.waits_since.is_none() {
                tenant.waits_since = Some(now);
                self.ring();
            }
            let tenant = &mut self.tenants[index];
            if let Some(since) = tenant.waits_since {
                tenant.longest_wait = tenant.longest_wait.max(now - since);
                if !waits {
                    tenant.waits_since = None;
                }
            }
            let is_done = |process: &Process| self.gpu.in_flight(process.context) == 0;
            let is_idle = tenant.processes.iter().all(is_done);
            let has_drained = is_idle && lease == Lease::None;
            let rings = (has_drained && !tenant.has_drained) || (is_idle && !tenant.is_idle);
            tenant.is_idle = is_idle;
            tenant.has_drained |= has_drained;
            if rings {
                self.ring();
            }
        }
    }

    /// Adds the requests that have arrived.
    fn arrive(&mut self, tenant: usize, which: usize) {
        let now = self.gpu.now();
        let share = self.tenants[tenant].share;
        let process = &mut self.tenants[tenant].processes[which];
        if !process.is_alive || now < process.next_request {
            return;
        }
        match share.work {
            Work::Endless { .. } => {
                process.todo = 1;
                process.next_request = u64::MAX;
            }
            Work::Requests { every, kernels, .. } => {
                process.todo += kernels;
                process.requests.push_back((now, process.launched + process.todo));
                let gap = self.around(every);
                self.tenants[tenant].processes[which].next_request = now + gap;
            }
        }
    }

    /// Makes the decision come soon.
    fn ring(&mut self) {
        let at = self.gpu.now() + DELAY;
        self.decides_at = Some(self.decides_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn next_event(&self) -> Option<u64> {
        let leases = self.tenants.iter().filter_map(|tenant| tenant.next_lease).map(|(at, _)| at);
        let requests = self.tenants.iter().flat_map(|tenant| &tenant.processes);
        let requests = requests
            .filter(|process| process.is_alive && process.next_request < u64::MAX)
            .map(|process| process.next_request);
        leases.chain(requests).chain(self.gpu.next_end()).chain(self.decides_at).min()
    }

    fn advance(&mut self, to: u64) {
        let from = self.gpu.now();
        let is_wanted = self
            .tenants
            .iter()
            .flat_map(|tenant| &tenant.processes)
            .any(|process| process.todo > 0);
        if self.gpu.next_end().is_none() && is_wanted {
            self.wasted += to - from;
        }
        self.gpu.advance(to);
        for tenant in &mut self.tenants {
            for process in &mut tenant.processes {
                let completed = self.gpu.completed(process.context);
                while let Some((arrived, _)) =
                    process.requests.pop_front_if(|(_, done_at)| *done_at <= completed)
                {
                    tenant.latencies.push(to - arrived);
                }
            }
            if let Some((at, lease)) = tenant.next_lease
                && at <= to
            {
                tenant.next_lease = None;
                tenant.has_drained &= lease == Lease::None;
                tenant.lease = lease;
            }
        }
    }

    fn decide_now(&mut self, now: u64) {
        let activities: Vec<Activity> =
            self.tenants.iter().map(|tenant| self.activity(tenant)).collect();
        let (leases, next) = self.decide.step(now, &activities);
        for (tenant, lease) in self.tenants.iter_mut().zip(leases) {
            let last = tenant.next_lease.map_or(tenant.lease, |(_, lease)| lease);
            if lease != last {
                tenant.next_lease = Some((now + DELAY, lease));
            }
        }
        self.decides_at = next.map(|next| next.max(now + 1));
    }

    /// What a tenant's guards would show.
    fn activity(&self, tenant: &Tenant) -> Activity {
        let alive = || tenant.processes.iter().filter(|process| process.is_alive);
        let is_counted = tenant.lease != Lease::Free || tenant.next_lease.is_some();
        let runs = |process: &&Process| is_counted && self.gpu.in_flight(process.context) > 0;
        Activity {
            processes: alive().filter(|process| process.launched > 0 || process.todo > 0).count()
                as u32,
            running: alive().filter(runs).count() as u32,
            is_waiting: tenant.waits_since.is_some(),
            completed: alive().map(|process| self.gpu.completed(process.context)).sum(),
        }
    }
}
