//! A node with several GPUs, in virtual time. The GPUs are models, not hardware.
//!
//! A GPU serves one context at a time, for a slice of time each, and interrupts kernels at the end of a slice. Some kernels of a gang are
//! collective: one spins, and gets on only while it is served on all GPUs of the gang. So a GPU can be busy, and nothing gets on.

use octavo_api::config::{ComputePart, ShareClass};
use octavo_arbiter::{Activity, Lease, Terms};

/// The unit of time of this model, in nanoseconds.
const TICK: u64 = 20_000;

pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// A slice of the driver's own, and a change between contexts, in ticks.
const SLICE: u64 = 100;
const SWITCH: u64 = 8;

/// From the end of a decision until threads see it, and from their word until the decision.
const DELAY: u64 = 3;

/// Launches that CUDA itself lets a stream have in flight.
const QUEUE: u64 = 1_024;

/// Of so many kernels of a gang one is collective.
const COLLECTIVE: u64 = 4;

/// A tenant, on one GPU or several. It never stops launching.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) gpus: Vec<usize>,
    pub(crate) terms: Terms,
    /// Mean duration of its kernels, in nanoseconds.
    kernel: u64,
    /// When it begins.
    from: u64,
    /// How long it waits for its results after each such time of work, if it does.
    pauses: Option<(u64, u64)>,
    /// Whether one thread launches on all its GPUs: it waits for one lease at a time.
    has_one_thread: bool,
}

impl Tenant {
    /// A normal, elastic tenant with kernels of 200 microseconds.
    pub(crate) fn of(percent: u32, gpus: &[usize]) -> Self {
        let request = ComputePart(percent * 1_000);
        let terms = Terms { request, limit: None, class: ShareClass::Normal, quantum: None };
        let (gpus, kernel) = (gpus.to_vec(), 200_000);
        Self { gpus, terms, kernel, from: 0, pauses: None, has_one_thread: false }
    }

    pub(crate) fn class(mut self, class: ShareClass) -> Self {
        self.terms.class = class;
        self
    }

    pub(crate) fn kernel(mut self, kernel: u64) -> Self {
        self.kernel = kernel;
        self
    }

    pub(crate) fn from(mut self, from: u64) -> Self {
        self.from = from;
        self
    }

    pub(crate) fn pauses(mut self, after: u64, time: u64) -> Self {
        self.pauses = Some((after, time));
        self
    }

    pub(crate) fn with_one_thread(mut self) -> Self {
        self.has_one_thread = true;
        self
    }
}

/// Gives leases to the members of all tenants.
pub(crate) trait Decide {
    fn begin(&mut self, tenants: &[Tenant]);
    /// The lease of each member of each tenant, and when to be asked again.
    fn step(&mut self, now: u64, activities: &[Vec<Activity>]) -> (Vec<Vec<Lease>>, Option<u64>);
}

/// A tenant on one GPU.
struct Member {
    gpu: usize,
    lease: Lease,
    /// What was decided last, and when it arrives.
    next_lease: Option<(u64, Lease)>,
    launched: u64,
    completed: u64,
    /// How much of the first kernel in flight is done, in ticks.
    done: u64,
    /// Time in which it got on, in ticks.
    useful: u64,
    waits: bool,
    has_drained: bool,
    is_idle: bool,
}

struct Running {
    tenant: Tenant,
    members: Vec<Member>,
    /// It pauses until then, and began to work with so much useful time.
    paused_until: u64,
    useful_before: u64,
}

#[derive(Default)]
struct Gpu {
    /// Index of the tenant that is served.
    serves: Option<usize>,
    slice_left: u64,
    switching: u64,
    /// Ticks in which it served no one, or only kernels that spin, and a tenant that has work could not get on.
    wasted: u64,
}

/// A node with its tenants.
pub(crate) struct Node<D> {
    now: u64,
    gpus: Vec<Gpu>,
    all: Vec<Running>,
    decide: D,
    decides_at: Option<u64>,
    seed: u64,
}

impl<D: Decide> Node<D> {
    pub(crate) fn new(tenants: &[Tenant], mut decide: D, seed: u64) -> Self {
        decide.begin(tenants);
        let count = tenants.iter().flat_map(|it| &it.gpus).max().map_or(0, |last| last + 1);
        let member = |gpu: &usize| Member {
            gpu: *gpu,
            lease: Lease::None,
            next_lease: None,
            launched: 0,
            completed: 0,
            done: 0,
            useful: 0,
            waits: false,
            has_drained: true,
            is_idle: true,
        };
        let running = |tenant: &Tenant| Running {
            tenant: tenant.clone(),
            members: tenant.gpus.iter().map(member).collect(),
            paused_until: 0,
            useful_before: 0,
        };
        // The GPUs are not in step.
        let gpu = |index: u64| Gpu { slice_left: index * 37 % SLICE, ..Gpu::default() };
        Self {
            now: 0,
            gpus: (0..count as u64).map(gpu).collect(),
            all: tenants.iter().map(running).collect(),
            decide,
            decides_at: Some(0),
            seed,
        }
    }

    /// Runs until a time in nanoseconds.
    pub(crate) fn run(&mut self, until: u64) {
        while self.now * TICK < until {
            self.take_leases();
            self.launch();
            if self.decides_at.is_some_and(|at| at <= self.now) {
                self.decides_at = None;
                self.decide_now();
            }
            self.serve();
            self.now += 1;
        }
    }

    /// Time in which a tenant got on, on the GPU where it got on least, in nanoseconds.
    pub(crate) fn useful(&self, tenant: usize) -> u64 {
        self.all[tenant].useful() * TICK
    }

    /// The same as a part of the time since the beginning, in percent.
    pub(crate) fn part(&self, tenant: usize) -> f64 {
        100.0 * self.all[tenant].useful() as f64 / self.now as f64
    }

    /// Part of the time that a GPU lost although it had work, in percent.
    pub(crate) fn wasted_part(&self, gpu: usize) -> f64 {
        100.0 * self.gpus[gpu].wasted as f64 / self.now as f64
    }

    fn take_leases(&mut self) {
        for member in self.all.iter_mut().flat_map(|running| &mut running.members) {
            if let Some((at, lease)) = member.next_lease
                && at <= self.now
            {
                member.next_lease = None;
                member.has_drained &= lease == Lease::None;
                member.lease = lease;
            }
        }
    }

    fn launch(&mut self) {
        let mut rings = false;
        for running in &mut self.all {
            let has_work = running.has_work(self.now);
            // One thread launches a kernel on all its GPUs, and then the next one.
            let mut least = running.members.iter().map(|member| member.launched).min().unwrap_or(0);
            loop {
                let mut has_launched = false;
                for member in &mut running.members {
                    let may_launch = !running.tenant.has_one_thread || member.launched == least;
                    let has_room = member.launched - member.completed < member.room();
                    if has_work && may_launch && has_room {
                        member.launched += 1;
                        has_launched = true;
                    } else if running.tenant.has_one_thread && may_launch {
                        break;
                    }
                }
                least = running.members.iter().map(|member| member.launched).min().unwrap_or(0);
                if !has_launched {
                    break;
                }
            }
            let mut thread_waits = false;
            for member in &mut running.members {
                let is_next =
                    !running.tenant.has_one_thread || (!thread_waits && member.launched == least);
                let waits = has_work && member.lease == Lease::None && is_next;
                thread_waits |= is_next;
                rings |= waits && !member.waits;
                member.waits = waits;
                let is_idle = member.launched == member.completed;
                let has_drained = is_idle && member.lease == Lease::None;
                rings |= (has_drained && !member.has_drained) || (is_idle && !member.is_idle);
                member.is_idle = is_idle;
                member.has_drained |= has_drained;
            }
        }
        if rings {
            let at = self.now + DELAY;
            self.decides_at = Some(self.decides_at.map_or(at, |earlier| earlier.min(at)));
        }
    }

    fn decide_now(&mut self) {
        let activity = |running: &Running, member: &Member| {
            let in_flight = member.launched > member.completed;
            let is_counted = member.lease != Lease::Free || member.next_lease.is_some();
            Activity {
                processes: u32::from(running.tenant.from <= self.now * TICK),
                running: u32::from(in_flight && is_counted),
                is_waiting: member.waits,
                completed: member.completed,
            }
        };
        let activities: Vec<Vec<Activity>> = self
            .all
            .iter()
            .map(|running| running.members.iter().map(|it| activity(running, it)).collect())
            .collect();
        let (leases, next) = self.decide.step(self.now * TICK, &activities);
        for (running, leases) in self.all.iter_mut().zip(leases) {
            for (member, lease) in running.members.iter_mut().zip(leases) {
                let last = member.next_lease.map_or(member.lease, |(_, lease)| lease);
                if lease != last {
                    member.next_lease = Some((self.now + DELAY, lease));
                }
            }
        }
        self.decides_at = next.map(|next| next.div_ceil(TICK).max(self.now + 1));
    }

    /// Serves for a tick.
    fn serve(&mut self) {
        let in_flight = |running: &Running, gpu: usize| {
            let mut members = running.members.iter();
            members.any(|member| member.gpu == gpu && member.launched > member.completed)
        };
        for (index, gpu) in self.gpus.iter_mut().enumerate() {
            let goes_on = gpu.serves.is_some_and(|it| in_flight(&self.all[it], index));
            if goes_on && gpu.slice_left > 0 {
                gpu.slice_left -= 1;
                gpu.switching = gpu.switching.saturating_sub(1);
                continue;
            }
            let last = gpu.serves.unwrap_or(0);
            let mut ring = (1..=self.all.len()).map(|step| (last + step) % self.all.len());
            let next = ring.find(|it| in_flight(&self.all[*it], index));
            if next.is_some() && next != gpu.serves {
                gpu.switching = SWITCH;
            }
            gpu.serves = next;
            // The GPUs are not in step.
            gpu.slice_left = SLICE + 3 * index as u64;
        }
        let mut gets_on = vec![false; self.gpus.len()];
        for (index, running) in self.all.iter_mut().enumerate() {
            let serves =
                |gpu: usize| self.gpus[gpu].serves == Some(index) && self.gpus[gpu].switching == 0;
            let first = running.members.iter().map(|member| member.completed).min().unwrap_or(0);
            let all_here = running.members.iter().all(|member| {
                serves(member.gpu) && member.completed == first && member.launched > first
            });
            let is_gang = running.members.len() > 1;
            for member in &mut running.members {
                let is_collective = is_gang && member.completed % COLLECTIVE == 0;
                if !serves(member.gpu) || (is_collective && !all_here) {
                    continue;
                }
                gets_on[member.gpu] = true;
                member.useful += 1;
                member.done += 1;
                let place = (self.seed, index as u64, member.completed);
                if member.done >= duration(place, running.tenant.kernel) {
                    member.completed += 1;
                    member.done = 0;
                }
            }
            if let Some((after, time)) = running.tenant.pauses
                && (running.useful() - running.useful_before) * TICK >= after
            {
                running.useful_before = running.useful();
                running.paused_until = self.now + time / TICK;
            }
        }
        for (index, gpu) in self.gpus.iter_mut().enumerate() {
            // A gang that is alone on a GPU waits for its others there, and costs no one anything.
            let here = || {
                let all = self.all.iter().filter(|running| running.has_work(self.now));
                all.filter(|running| running.tenant.gpus.contains(&index))
            };
            let is_wanted = here().count() > 1 || here().any(|it| it.members.len() == 1);
            if !gets_on[index] && is_wanted && gpu.switching == 0 {
                gpu.wasted += 1;
            }
        }
    }
}

impl Running {
    fn has_work(&self, now: u64) -> bool {
        now * TICK >= self.tenant.from && self.paused_until <= now
    }

    fn useful(&self) -> u64 {
        self.members.iter().map(|member| member.useful).min().unwrap_or(0)
    }
}

impl Member {
    fn room(&self) -> u64 {
        match self.lease {
            Lease::None => 0,
            Lease::Capped(cap) => u64::from(cap),
            Lease::Free => QUEUE,
        }
    }
}

/// Duration of a kernel in ticks, between half and one and a half of a mean: the same on all GPUs of a gang.
fn duration((seed, tenant, kernel): (u64, u64, u64), mean: u64) -> u64 {
    let mut random = (seed << 48 ^ tenant << 40 ^ kernel).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    random ^= random >> 29;
    random = random.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    random ^= random >> 32;
    (mean / 2 + random % (mean + 1)) / TICK + 1
}
