//! Carries out the plan for the memory of shares ([`crate::swap::plan`]): observes the shares, sets what they may have, and moves their
//! processes.
//!
//! ```text
//! lease pages: who needs memory, who works --+
//! ledgers, the driver's count ---------------+--> plan of each GPU --> limits, answers, moves
//! moves that have ended ---------------------+
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use octavo_api::config::SwapUnit;
use octavo_guard_abi::lease_page::{CAN_MOVE, CANNOT_MOVE, MANAGED, SHARED};
use octavo_process_checkpoint::CheckpointError;

use super::guards::state_file::StateBuffer;
use super::identity::ProcessIdentities;
use super::monitored_share::MonitoredShare;
use super::notify::notifier::Notify;
use super::notify::swaps::{SwapState, moved_finding, state_finding};
use crate::gpu_time::{GpuTime, ProcessMemory};
use crate::metrics::EnforcementMetrics;
use crate::process::Process;
use crate::process::freezer::Freezer;
use crate::process::proc::Proc;
use crate::swap::plan::{GpuMemory, Grants, Move, PlanSettings, ShareMemory};
use crate::swap::{
    ContainerMemory, MoveError, MoveSizes, Moved, Mover, MovingShare, living, remove_record,
    swapped,
};

/// How long guards may take to connect to a new agent. They try each 16 s at least.
const CONNECT_TIME: Duration = Duration::from_secs(20);

/// The memory of the node's shares.
#[derive(Debug)]
pub(super) struct Swapping {
    /// Until when guards may not have connected to this agent yet, once it has begun.
    connects_until: Option<Duration>,
    gpu_time: Arc<GpuTime>,
    mover: Mover,
    /// Plans by GPU.
    gpus: BTreeMap<String, GpuMemory>,
    /// Memory that programs can have of each GPU, in bytes.
    sizes: BTreeMap<String, u64>,
    /// Whether a share's memory can be moved, as last reported.
    states: BTreeMap<String, SwapState>,
    /// Shares whose calls wait.
    suspended: BTreeSet<String>,
    /// Shares that are being moved.
    moving: BTreeSet<String>,
}

/// What a step needs of the watchdog.
pub(super) struct SwapContext<'a> {
    pub(super) shares: &'a mut BTreeMap<String, MonitoredShare>,
    /// Memory of processes that are of no share, by GPU.
    pub(super) foreign: &'a BTreeMap<String, u64>,
    pub(super) identities: &'a ProcessIdentities,
    pub(super) freezer: &'a Freezer,
    pub(super) cgroup_root: &'a Path,
    pub(super) proc: &'a Proc,
    pub(super) copy: &'a mut StateBuffer,
    pub(super) metrics: &'a EnforcementMetrics,
    pub(super) notifier: &'a dyn Notify,
}

/// Sets what the shares may have.
struct Limits<'a> {
    shares: &'a mut BTreeMap<String, MonitoredShare>,
    copy: &'a mut StateBuffer,
    gpu_time: &'a GpuTime,
}

impl Grants for Limits<'_> {
    fn grant(&mut self, share: &str, bytes: u64) -> u64 {
        self.shares.get_mut(share).map_or(bytes, |share| share.grant(bytes, self.copy))
    }

    fn answer(&mut self, share: &str) {
        self.gpu_time.answer(share);
    }
}

impl Swapping {
    pub(super) fn new(gpu_time: Arc<GpuTime>, mover: Mover) -> Self {
        Self {
            connects_until: None,
            gpu_time,
            mover,
            gpus: BTreeMap::new(),
            sizes: BTreeMap::new(),
            states: BTreeMap::new(),
            suspended: BTreeSet::new(),
            moving: BTreeSet::new(),
        }
    }

    /// Sets the memory that programs can have of each GPU, in bytes.
    pub(super) fn set_sizes(&mut self, sizes: BTreeMap<String, u64>) {
        self.sizes = sizes;
    }

    /// Whether the size of a GPU with elastic shares is not known.
    pub(super) fn needs_sizes(&self, shares: &BTreeMap<String, MonitoredShare>) -> bool {
        elastic(shares).any(|(_, share)| !self.sizes.contains_key(&share.share.gpu_uuid))
    }

    /// Forgets a share that is given back.
    pub(super) fn remove(&mut self, name: &str) {
        self.states.remove(name);
        self.suspend(name, false);
    }

    /// Lets calls of a share wait, or go on.
    fn suspend(&mut self, name: &str, is_suspended: bool) {
        let is_new = if is_suspended {
            self.suspended.insert(name.to_owned())
        } else {
            self.suspended.remove(name)
        };
        if is_new {
            self.gpu_time.suspend(name, is_suspended);
        }
    }

    /// Lets shares go on that are on the GPU again, or whose processes have ended on the host. Their records go.
    fn resume(&mut self, context: &SwapContext<'_>) {
        let is_back = |name: &&String| {
            let share = context.shares.get(*name);
            let plan = share.and_then(|share| self.gpus.get(&share.share.gpu_uuid));
            !self.moving.contains(*name) && plan.is_none_or(|plan| !plan.is_suspended(name))
        };
        let back: Vec<_> = self.suspended.iter().filter(is_back).cloned().collect();
        for name in back {
            self.suspend(&name, false);
            if let Some(share) = context.shares.get(&name)
                && let Err(error) = remove_record(&share.share.folder)
            {
                tracing::warn!(share = name, %error, "the record of swapped processes cannot be removed");
            }
        }
    }

    /// Observes all shares, and does what the plans say.
    pub(super) fn step(&mut self, at: Duration, context: &mut SwapContext<'_>) {
        for moved in self.mover.ended() {
            self.end(at, moved, context);
        }
        let gpus: BTreeSet<_> =
            elastic(context.shares).map(|(_, share)| share.share.gpu_uuid.clone()).collect();
        self.gpus.retain(|gpu, _| gpus.contains(gpu));
        if gpus.is_empty() {
            return;
        }
        let pages = self.gpu_time.memory();
        let is_new = at < *self.connects_until.get_or_insert(at + CONNECT_TIME);
        self.adopt(at, &pages, context);
        let mut observed = BTreeSet::new();
        for gpu in gpus {
            // A GPU whose size is not known keeps what its shares may have.
            let Some(size) = self.sizes.get(&gpu).copied() else { continue };
            let usable = size.saturating_sub(context.foreign.get(&gpu).copied().unwrap_or(0));
            let plan = self.gpus.entry(gpu.clone()).or_insert_with(new_plan);
            let shares = observe(&gpu, plan, &pages, is_new, context);
            let mut limits = Limits {
                shares: &mut *context.shares,
                copy: &mut *context.copy,
                gpu_time: &self.gpu_time,
            };
            let moves = plan.step(at, usable, &shares, &mut limits);
            tracing::trace!(gpu, usable, ?shares, ?moves, "memory was divided");
            if plan.is_short() {
                observed.insert(gpu);
            }
            for planned in moves {
                self.begin(&planned, &pages, context);
            }
        }
        self.resume(context);
        self.gpu_time.observe(observed);
        self.report(&pages, context);
    }

    /// Takes over what an earlier agent left on the host: by its record, or as the guards show.
    fn adopt(
        &mut self,
        at: Duration,
        pages: &BTreeMap<String, Vec<ProcessMemory>>,
        context: &mut SwapContext<'_>,
    ) {
        let mut found = Vec::new();
        for (name, share) in elastic(context.shares) {
            let is_new = !self.states.contains_key(name);
            let left = if is_new {
                self.states.insert(name.clone(), SwapState::Swappable);
                swapped(&share.share.folder)
            } else {
                self.shown_out(name, share, pages.get(name))
            };
            found.extend(
                left.map(|left| (name.clone(), share.share.gpu_uuid.clone(), left, is_new)),
            );
        }
        for (name, gpu, left, is_new) in found {
            self.suspend(&name, true);
            let plan = self.gpus.entry(gpu).or_insert_with(new_plan);
            if is_new {
                plan.adopt_out(&name, left, at);
            } else {
                let mut limits = Limits {
                    shares: &mut *context.shares,
                    copy: &mut *context.copy,
                    gpu_time: &self.gpu_time,
                };
                plan.adopt_shown(&name, left, at, &mut limits);
            }
        }
    }

    /// What the guards of a share show on the host although the plan has it on the GPU: bytes there, and those that stay on the GPU.
    fn shown_out(
        &self,
        name: &str,
        share: &MonitoredShare,
        pages: Option<&Vec<ProcessMemory>>,
    ) -> Option<(u64, u64)> {
        let plan = self.gpus.get(&share.share.gpu_uuid);
        let is_known = plan.is_some_and(|plan| plan.is_suspended(name));
        if is_known || self.moving.contains(name) || share.share.swap_unit != SwapUnit::Pages {
            return None;
        }
        let moved = pages.into_iter().flatten().map(|page| page.moved);
        // A container writes its pages: it never has more on the host than it may have at all.
        let moved = moved.fold(0, u64::saturating_add).min(share.share.memory_bytes);
        (moved > 0).then(|| (moved, share.driver_bytes().unwrap_or(0)))
    }

    fn begin(
        &mut self,
        planned: &Move,
        pages: &BTreeMap<String, Vec<ProcessMemory>>,
        context: &SwapContext<'_>,
    ) {
        let (Move::Out(name, _) | Move::In(name)) = planned;
        let Some(share) = context.shares.get(name) else { return };
        let moving = MovingShare {
            name: name.clone(),
            folder: share.share.folder.clone(),
            unit: share.share.swap_unit,
        };
        self.moving.insert(name.clone());
        let Move::Out(name, bytes) = planned else {
            self.mover.back(moving);
            return;
        };
        self.suspend(name, true);
        let by_pages = share.share.swap_unit == SwapUnit::Pages;
        let meant = pages.get(name).into_iter().flatten();
        // Guards move their own memory alone.
        let meant = meant.filter(|page| !by_pages || page.can_move == CAN_MOVE);
        let others = share.processes().filter(|_| !by_pages);
        let connected = meant.filter_map(|page| {
            let start_time = context.proc.stat(page.pid).ok()?.start_time;
            Some(Process { pid: page.pid, start_time })
        });
        let processes: BTreeSet<_> = connected.chain(others).collect();
        let containers = processes.iter().filter_map(|process| {
            let cgroups = context.identities.cgroups(*process)?;
            let control = context.freezer.control(process.pid, &cgroups)?;
            ContainerMemory::of(context.cgroup_root, &control)
        });
        let containers = containers.collect();
        let taken = self.others_on_host(name, context.shares);
        let parts = self.gpus.get(&share.share.gpu_uuid).and_then(|plan| plan.parts(name));
        let staying = parts.map_or(0, |(_, staying)| staying);
        let sizes = MoveSizes { bytes: *bytes, staying, taken };
        self.mover.out(moving, processes.into_iter().collect(), containers, sizes);
    }

    /// Bytes of a share on the host, or on their way.
    fn on_host(&self, name: &str, share: &MonitoredShare) -> u64 {
        self.gpus.get(&share.share.gpu_uuid).map_or(0, |plan| plan.swapped(name))
    }

    /// Bytes of all shares but one that are on the host, or on their way.
    fn others_on_host(&self, name: &str, shares: &BTreeMap<String, MonitoredShare>) -> u64 {
        let others = elastic(shares).filter(|(other, _)| *other != name);
        others.map(|(other, share)| self.on_host(other, share)).fold(0, u64::saturating_add)
    }

    /// Takes the end of a move.
    fn end(&mut self, at: Duration, moved: Moved, context: &mut SwapContext<'_>) {
        let Moved { share: name, is_out, took, result } = moved;
        self.moving.remove(&name);
        let Some(share) = context.shares.get(&name) else { return };
        let Some(plan) = self.gpus.get_mut(&share.share.gpu_uuid) else { return };
        let left = swapped(&share.share.folder);
        match (&result, is_out) {
            (Err(MoveError::Stuck(_)), _) => plan.adopt_out(&name, left.unwrap_or((0, 0)), at),
            (result, true) => plan.left(&name, at, result.is_ok()),
            // Whatever became of the record, the processes are back.
            (Ok(()) | Err(MoveError::Remove(_)), false) => plan.returned(&name, at, true),
            (Err(_), false) => plan.returned(&name, at, false),
        }
        let is_done = result.is_ok();
        context.metrics.count_move(&share.labels, is_out, is_done, took);
        match &result {
            Ok(()) => {
                let bytes = left.map(|(bytes, _)| bytes);
                let finding = moved_finding(&share.share, is_out, bytes, took);
                context.notifier.share(&share.share, finding);
                self.set_state(&name, SwapState::Swappable, None, context);
            }
            Err(error) => {
                let state = match (error, error.reason()) {
                    (MoveError::NoHostMemory(_), _) => SwapState::NoHostMemory,
                    (_, Some(CheckpointError::NoSupport)) => SwapState::DriverTooOld,
                    _ => SwapState::Failed,
                };
                self.set_state(&name, state, Some(&error.to_string()), context);
            }
        }
    }

    /// Reports whether memory can be moved, and where it is.
    fn report(
        &mut self,
        pages: &BTreeMap<String, Vec<ProcessMemory>>,
        context: &mut SwapContext<'_>,
    ) {
        let names: Vec<_> = elastic(context.shares).map(|(name, _)| name.clone()).collect();
        for name in names {
            let Some(share) = context.shares.get(&name) else { continue };
            context.metrics.set_swapped(&share.labels, self.on_host(&name, share));
            let known = self.states.get(&name).copied().unwrap_or(SwapState::Swappable);
            let state = match obstacle(share.share.swap_unit, pages.get(&name)) {
                Some(obstacle) => obstacle,
                None if known.is_of_program() => SwapState::Swappable,
                None => known,
            };
            self.set_state(&name, state, None, context);
        }
    }

    /// Reports a state if it is new.
    fn set_state(
        &mut self,
        name: &str,
        state: SwapState,
        why: Option<&str>,
        context: &SwapContext<'_>,
    ) {
        if self.states.insert(name.to_owned(), state) != Some(state)
            && let Some(share) = context.shares.get(name)
        {
            context.notifier.share(&share.share, state_finding(&share.share, state, why));
        }
    }
}

fn new_plan() -> GpuMemory {
    GpuMemory::new(PlanSettings::default())
}

/// The shares that may have more than their requests.
fn elastic(
    shares: &BTreeMap<String, MonitoredShare>,
) -> impl Iterator<Item = (&String, &MonitoredShare)> {
    shares.iter().filter(|(_, share)| share.share.memory_request < share.share.memory_bytes)
}

/// Why the memory of some processes cannot be moved; `None` if it can, as far as is known.
fn obstacle(unit: SwapUnit, pages: Option<&Vec<ProcessMemory>>) -> Option<SwapState> {
    let mut pages = pages.into_iter().flatten();
    if unit == SwapUnit::Pages {
        return pages.any(|page| page.can_move == CANNOT_MOVE).then_some(SwapState::SeveralGpus);
    }
    let flags = pages.fold(0, |flags, page| flags | page.unmovable);
    match (flags & MANAGED != 0, flags & SHARED != 0) {
        (true, _) => Some(SwapState::Managed),
        (false, true) => Some(SwapState::Shared),
        _ => None,
    }
}

/// Whether guards that move memory of a share have yet to connect. Before the driver lists processes, the ledger shows that there are
/// some.
fn is_connecting(share: &MonitoredShare, used: u64, pages: &[ProcessMemory]) -> bool {
    let is_missing = |process: Process| !pages.iter().any(|page| page.pid == process.pid);
    let is_unseen = pages.is_empty() && used > 0;
    share.share.swap_unit == SwapUnit::Pages && (is_unseen || share.processes().any(is_missing))
}

/// The shares of a GPU as the plan sees them. To a new agent guards may not have connected yet.
fn observe(
    gpu: &str,
    plan: &GpuMemory,
    pages: &BTreeMap<String, Vec<ProcessMemory>>,
    is_new: bool,
    context: &mut SwapContext<'_>,
) -> BTreeMap<String, ShareMemory> {
    let (copy, proc) = (&mut *context.copy, context.proc);
    let shares = context.shares.iter().filter(|(_, share)| share.share.gpu_uuid == gpu);
    let observed = shares.map(|(name, monitored)| {
        let share = &monitored.share;
        let used = monitored.used_bytes(copy);
        let own = pages.get(name);
        let pages = own.into_iter().flatten();
        let connected = own.map_or(&[][..], Vec::as_slice);
        let needs = pages.clone().filter_map(|page| page.need);
        // Each of several processes may have it; the others ask again.
        let need = needs.min();
        // They may not have connected to this agent yet.
        let is_away = plan.swapped(name) > 0;
        let away = if is_away { living(&share.folder, proc) } else { 0 };
        let observed = ShareMemory {
            request: share.memory_request,
            // What cannot be observed is not divided.
            limit: if used.is_some() { share.memory_bytes } else { share.memory_request },
            class: share.class,
            used: used.unwrap_or(0),
            driver: monitored.driver_bytes(),
            // A process may have no guard, or have closed its connection.
            processes: pages.clone().count().max(monitored.processes().count()).max(away),
            need,
            is_waiting: pages.clone().any(|page| page.is_waiting),
            is_active: pages.clone().any(|page| page.is_active),
            is_unmovable: obstacle(share.swap_unit, own).is_some(),
            movable: match share.swap_unit {
                SwapUnit::Processes => None,
                SwapUnit::Pages => {
                    Some(pages.clone().map(|page| page.movable).fold(0, u64::saturating_add))
                }
            },
            is_connecting: is_new && is_connecting(monitored, used.unwrap_or(0), connected),
        };
        (name.clone(), observed)
    });
    observed.collect()
}

#[cfg(test)]
mod tests;
