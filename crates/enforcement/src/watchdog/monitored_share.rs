//! One monitored share: its files, its socket, and its state between polls.

mod memory;
mod utilisation;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_guard_abi::LIMITS_FILE;
use octavo_guard_abi::state::SlotCopy;

use super::guards::connection_quota::ConnectionQuota;
use super::guards::listener::GuardListener;
use super::guards::reports::{GuardReports, NewReports};
use super::guards::state_file::{self, StateBuffer, StateFile};
use super::identity::OwnedProcess;
use super::overflow::{Action, Notice, OverflowState, ProcessUsage, Sample, StateDamage};
use super::visibility::BlindSpot;
use crate::backend::BackendKind;
use crate::gpu_time::GpuTime;
use crate::metrics::{ShareFigures, ShareLabels};
use crate::process::Process;
use crate::process::freezer::Freezer;
use crate::process::proc::{NamespacedPid, Proc};
use crate::share::LimitsFile;
use crate::share::{ActiveShare, CONTEXT_BYTES};

/// Consecutive polls without a state file before it counts as damage. An administrator may replace the file.
const MAX_LOOKS_WITHOUT_STATE: u32 = 5;
/// Consecutive failures before a warning. A claim that is being prepared has no files yet.
const MAX_SILENT_FAILURES: u32 = 10;
/// Interval of checks for the share's files, and the retry interval for missing ones.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Number of polls whose minimum of untracked bytes counts. Processes allocate and free between the driver's count and
/// the copy of the slots. A single poll could therefore refuse a valid allocation.
const UNTRACKED_WINDOW: usize = 3;
/// Polls of a new process in which its context is measured, and its maximum other memory, in bytes.
const CONTEXT_LEARNING_LOOKS: u32 = 50;
const CONTEXT_LEARNING_MAX_BYTES: u64 = 32 << 20;
/// Interval of reports about unknown functions.
const UNKNOWN_NAMES_INTERVAL: Duration = Duration::from_secs(30);

/// A share that is watched.
#[derive(Debug)]
pub(super) struct MonitoredShare {
    /// The share as its claim holds it.
    pub(super) share: ActiveShare,
    /// Reports of its guards.
    pub(super) guard_reports: Arc<GuardReports>,
    /// Where it is in metrics.
    pub(super) labels: ShareLabels,
    open: Option<Open>,
    listener: Option<GuardListener>,
    checked: Option<Duration>,
    tampered: Option<u64>,
    gone_looks: u32,
    failures: u32,
    names: BTreeMap<String, bool>,
    names_reported_at: Option<Duration>,
    /// Whether it waits long for GPU time, as last reported.
    pub(super) waits_long: bool,
    /// GPU time when the containers' utilisation was last written.
    used_time: Option<utilisation::UsedTime>,
    /// Why it is not held to its part of the GPU's time, as last reported.
    pub(super) time_problem: Option<&'static str>,
    /// The blind spot as last reported.
    pub(super) blind_spot: Option<BlindSpot>,
    /// Control files of its frozen cgroups.
    pub(super) frozen: BTreeSet<PathBuf>,
    peak: u64,
    /// Bytes in the slots before the driver was polled.
    before: u64,
    untracked: VecDeque<u64>,
    /// Processes of the last poll with an answer; `None` before the first.
    last: Option<BTreeMap<Process, PreviousUsage>>,
    /// What the driver counted at the last poll; `None` if it did not answer.
    driver: Option<u64>,
    last_warning: Option<String>,
}

/// A process at the last poll.
#[derive(Clone, Copy, Debug)]
struct PreviousUsage {
    driver_bytes: Option<u64>,
    slot_bytes: Option<u64>,
    /// Polls since it was first seen.
    looks: u32,
    /// Whether it came while it was looked.
    arrived_since_start: bool,
}

/// The opened files of the share.
#[derive(Debug)]
struct Open {
    limits: LimitsFile,
    limits_id: Option<(u64, u64)>,
    state: Option<StateFile>,
    /// Bytes charged for a context according to the limits file.
    context_bytes: u64,
    overflow: OverflowState,
    /// Response of an earlier agent that must be reported again.
    inherited: Option<Notice>,
}

/// A process on the share's GPU, with the driver's count.
#[derive(Clone, Debug)]
pub(super) struct DriverUsage {
    /// The process and its shares.
    pub(super) owned: OwnedProcess,
    /// Bytes as the driver counts them.
    pub(super) driver_bytes: Option<u64>,
}

/// Result of polling a share.
#[derive(Debug, Default)]
pub(super) struct PollReport {
    /// Actions to execute.
    pub(super) actions: Vec<Action>,
    /// For the metrics; `None` if the share could not be evaluated.
    pub(super) figures: Option<ShareFigures>,
    /// New reports of its guards.
    pub(super) new_reports: NewReports,
    /// Unknown functions to report, and whether they were refused.
    pub(super) names: BTreeMap<String, bool>,
    /// Measured size of a context, from a process with hardly any other memory, in bytes.
    pub(super) context_bytes: Option<u64>,
}

impl MonitoredShare {
    /// Begins to watch a share.
    pub(super) fn new(share: ActiveShare, node: &str) -> Self {
        let labels = ShareLabels {
            node: node.to_owned(),
            namespace: share.claim.namespace.clone(),
            claim: share.claim.name.clone(),
            share: share.share_id.clone(),
            device: share.device.clone(),
            gpu: share.gpu_uuid.clone(),
        };
        Self {
            share,
            guard_reports: Arc::default(),
            labels,
            open: None,
            listener: None,
            checked: None,
            failures: 0,
            tampered: None,
            gone_looks: 0,
            names: BTreeMap::new(),
            names_reported_at: None,
            waits_long: false,
            used_time: None,
            time_problem: None,
            blind_spot: None,
            frozen: BTreeSet::new(),
            peak: 0,
            before: 0,
            untracked: VecDeque::new(),
            last: None,
            driver: None,
            last_warning: None,
        }
    }

    /// Whether the share has an enforcement backend, and so needs monitoring.
    pub(super) fn is_enforced(&self) -> bool {
        matches!(self.share.backend, Some(BackendKind::Guard | BackendKind::Driver))
    }

    /// Ensures that the share's socket exists, and closes replaced files.
    pub(super) fn ensure_socket(
        &mut self,
        at: Duration,
        proc: &Proc,
        quota: &Arc<ConnectionQuota>,
        gpu_time: Option<&Arc<GpuTime>>,
    ) {
        let interval = if self.listener.is_some() { CHECK_INTERVAL } else { RETRY_INTERVAL };
        if self.checked.is_some_and(|checked| at < checked + interval) {
            return;
        }
        self.checked = Some(at);
        if self.open.as_ref().is_some_and(|open| open.limits_id != identity(&self.share.folder)) {
            self.open = None;
        }
        if self.listener.as_ref().is_some_and(GuardListener::is_in_place) {
            return;
        }
        let (guard_reports, folder) = (Arc::clone(&self.guard_reports), &self.share.folder);
        let quota = quota.for_share(&folder.file_name().unwrap_or_default().to_string_lossy());
        match GuardListener::open(folder, guard_reports, proc.clone(), quota, gpu_time.cloned()) {
            Ok(listener) => {
                (self.listener, self.failures) = (Some(listener), 0);
                octavo_node::failpoint::hit("watchdog.listening");
            }
            Err(error) => self.fail("its socket cannot be made", &error),
        }
    }

    /// Sums the slots before the driver is polled. Memory freed in between was still there when the driver counted.
    pub(super) fn sample_slots(&mut self, copy: &mut StateBuffer) {
        self.before = state_file::bytes(&self.read_slots(copy));
    }

    /// The share's current slots; empty if unreadable.
    pub(super) fn read_slots(&self, copy: &mut StateBuffer) -> Vec<SlotCopy> {
        let state = self.open.as_ref().and_then(|open| open.state.as_ref());
        state.and_then(|state| state.slots(copy).ok()).unwrap_or_default()
    }

    /// Evaluates the share with its processes on the GPU; `None` if the driver did not answer. `context_bytes` is the
    /// known size of a context.
    pub(super) fn poll(
        &mut self,
        at: Duration,
        found: Option<&[DriverUsage]>,
        context_bytes: Option<u64>,
        proc: &Proc,
        copy: &mut StateBuffer,
    ) -> PollReport {
        let new_reports = self.guard_reports.take_new();
        self.tampered = new_reports.tampered;
        let names = self.take_names(at, &new_reports);
        let mut result = PollReport { new_reports, names, ..PollReport::default() };
        if let Err(error) = self.ensure_open() {
            self.fail("its files are not usable", &error);
            return result;
        }
        let limit_bytes = self.share.memory_bytes;
        let Some(slots) = self.slots(copy) else { return result };
        let Some(open) = &mut self.open else { return result };
        let mut processes = found.map(|found| usages(found, slots.as_deref().unwrap_or(&[])));
        if let Some(processes) = &mut processes {
            let counted = [CONTEXT_BYTES, open.context_bytes];
            result.context_bytes = update_previous(&mut self.last, processes, counted);
        }
        if let Some(bytes) = context_bytes.filter(|bytes| *bytes != open.context_bytes) {
            match open.limits.set_context_bytes(bytes) {
                Ok(()) => open.context_bytes = bytes,
                Err(error) => tracing::debug!(%error, "what a context takes is not written down"),
            }
        }
        let in_slots = slots.as_deref().map(state_file::bytes).map_err(|damage| *damage);
        let used = in_slots.unwrap_or(0);
        let slots_bytes = in_slots.map(|bytes| bytes.max(self.before));
        // An earlier agent may have measured it.
        let context_bytes = context_bytes.or(Some(open.context_bytes));
        let mut sample = Sample { at, limit_bytes, processes, slots_bytes, context_bytes };
        if sample.driver_bytes().is_some_and(|bytes| bytes > limit_bytes)
            && let Some(processes) = &mut sample.processes
        {
            for used in processes {
                used.is_ending = proc.is_ending(used.process.pid);
            }
        }
        self.driver = sample.driver_bytes();
        let inherited = open.inherited.take().map(Action::Notify);
        result.actions = inherited.into_iter().chain(open.overflow.step(&sample)).collect();
        let (driver, untracked) = match (sample.driver_bytes(), sample.untracked_bytes()) {
            (Some(driver), Some(untracked)) => {
                (driver, min_of_last(&mut self.untracked, untracked))
            }
            // Without an answer the former values stay.
            _ => {
                open.limits.live().map_or((0, 0), |live| (live.driver_bytes, live.untracked_bytes))
            }
        };
        let written = open
            .limits
            .set_untracked(untracked, driver)
            // Write it even if unchanged in memory, since the file may have been rewritten.
            .and_then(|()| open.limits.set_gate(open.overflow.gate()));
        let gate = open.overflow.gate() as u32;
        octavo_node::failpoint::hit("watchdog.told-guards");
        if let Err(error) = written {
            self.warn_once("its limits cannot be written", &error);
        }
        // Truncate only now: an agent killed earlier would have removed the evidence.
        if let Some(state) = self.open.as_ref().and_then(|open| open.state.as_ref())
            && let Err(error) = state.truncate_to_size()
        {
            self.warn_once("its ledger cannot be truncated to its size", &error);
        }
        self.peak = self.peak.max(used).max(driver);
        let processes = sample.processes.map_or(0, |processes| processes.len() as u64);
        let peak = self.peak;
        result.figures = Some(ShareFigures {
            limit: limit_bytes,
            used,
            driver,
            untracked,
            peak,
            processes,
            gate,
        });
        result
    }

    /// Notes that processes could not be frozen.
    pub(super) fn record_freeze_failure(&mut self, processes: &[Process]) {
        if let Some(open) = &mut self.open {
            open.overflow.record_freeze_failure(processes);
        }
    }

    /// Records that some containers could not be thawed.
    pub(super) fn record_thaw_failure(&mut self) {
        if let Some(open) = &mut self.open {
            open.overflow.record_thaw_failure();
        }
    }

    /// Records a failure that may be temporary.
    fn fail(&mut self, what: &str, error: &io::Error) {
        self.failures = self.failures.saturating_add(1);
        if self.failures > MAX_SILENT_FAILURES {
            self.warn_once(what, error);
        }
    }

    /// Logs a problem once, until another one occurs.
    pub(super) fn warn_once(&mut self, what: &str, error: &dyn Display) {
        let last_warning = format!("{what}: {error}");
        if self.last_warning.as_ref() != Some(&last_warning) {
            let (claim, share) = (&self.share.claim, &self.share.share_id);
            tracing::warn!(%claim, share, "a share cannot be monitored fully: {last_warning}");
            self.last_warning = Some(last_warning);
        }
    }

    fn ensure_open(&mut self) -> io::Result<()> {
        if self.open.is_some() {
            return Ok(());
        }
        let folder = &self.share.folder;
        let limits_id = identity(folder);
        let limits = LimitsFile::open(folder)?;
        let terms = limits
            .terms()
            .map_err(|damage| io::Error::other(format!("{LIMITS_FILE} is damaged ({damage:?})")))?;
        let state = match self.share.backend {
            Some(BackendKind::Guard) => match StateFile::open(folder, terms.generation) {
                Ok(state) => Some(state),
                Err(error) if self.gone_looks < MAX_LOOKS_WITHOUT_STATE => {
                    self.gone_looks += 1;
                    return Err(error);
                }
                Err(_) => None,
            },
            _ => None,
        };
        let live = limits.live()?;
        // The figure of an earlier agent is old.
        limits.set_utilisation(None)?;
        self.used_time = None;
        self.untracked = [live.untracked_bytes].into();
        let overflow =
            OverflowState::new(self.share.overflow, live.gate, Freezer::has_frozen(folder));
        let inherited = overflow.inherited(live.driver_bytes);
        let context_bytes = terms.context_bytes;
        self.open = Some(Open { limits, limits_id, state, context_bytes, overflow, inherited });
        Ok(())
    }

    /// The share's slots, or their damage; `None` if it is too early to tell.
    fn slots(&mut self, copy: &mut StateBuffer) -> Option<Result<Vec<SlotCopy>, StateDamage>> {
        if let Some(value) = self.tampered {
            return Some(Err(StateDamage::Reported(value)));
        }
        if self.share.backend != Some(BackendKind::Guard) {
            return Some(Ok(Vec::new()));
        }
        let state = self.open.as_ref().and_then(|open| open.state.as_ref());
        let slots = state.map_or(Err(StateDamage::Gone), |state| state.slots(copy));
        if slots == Err(StateDamage::Gone) {
            self.gone_looks = self.gone_looks.saturating_add(1);
            // The file may be in the middle of a replacement.
            return (self.gone_looks > MAX_LOOKS_WITHOUT_STATE).then_some(slots);
        }
        self.gone_looks = 0;
        Some(slots)
    }

    /// Unknown functions to report now.
    fn take_names(&mut self, at: Duration, new_reports: &NewReports) -> BTreeMap<String, bool> {
        self.names.extend(new_reports.names.clone());
        let is_due =
            self.names_reported_at.is_none_or(|reported| at >= reported + UNKNOWN_NAMES_INTERVAL);
        if self.names.is_empty() || !is_due {
            return BTreeMap::new();
        }
        self.names_reported_at = Some(at);
        std::mem::take(&mut self.names)
    }
}

/// Which file a share's limits are now.
fn identity(folder: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(folder.join(LIMITS_FILE)).ok()?;
    Some((found.dev(), found.ino()))
}

/// The minimum of the latest values, including `newest`.
fn min_of_last(last: &mut VecDeque<u64>, newest: u64) -> u64 {
    last.push_back(newest);
    while last.len() > UNTRACKED_WINDOW {
        last.pop_front();
    }
    last.iter().copied().min().unwrap_or(newest)
}

/// Memory of each process, with its slots.
fn usages(found: &[DriverUsage], slots: &[SlotCopy]) -> Vec<ProcessUsage> {
    let usages = found.iter().map(|found| {
        let process = found.owned.process;
        let own = slots.iter().filter(|slot| is_slot_of(slot, process, found.owned.inside));
        let mut slot_bytes = None;
        let (mut context_bytes, mut has_unknown) = (0_u64, false);
        for slot in own {
            has_unknown |= slot.unknown > 0;
            slot_bytes = Some(slot_bytes.unwrap_or(0_u64).saturating_add(slot.used_bytes));
            context_bytes = context_bytes.saturating_add(slot.context_bytes);
        }
        let driver_bytes = found.driver_bytes;
        let (is_new, is_ending) = (false, false);
        ProcessUsage {
            process,
            driver_bytes,
            slot_bytes,
            context_bytes,
            has_unknown,
            is_new,
            is_ending,
        }
    });
    usages.collect()
}

/// Replaces the processes of the last poll and marks new ones. Returns the size of a context if a process shows it.
/// `counted` lists the possible charges for one context.
fn update_previous(
    last: &mut Option<BTreeMap<Process, PreviousUsage>>,
    processes: &mut [ProcessUsage],
    counted: [u64; 2],
) -> Option<u64> {
    let mut now = BTreeMap::new();
    let mut largest = None;
    for used in processes {
        let ProcessUsage { process, driver_bytes, slot_bytes, context_bytes, .. } = *used;
        let before = last.as_ref().and_then(|last| last.get(&process));
        let looks = before.map_or(0, |before| before.looks.saturating_add(1));
        // The start of processes from before monitoring is unknown.
        let arrived_since_start =
            before.map_or(last.is_some(), |before| before.arrived_since_start);
        used.is_new = arrived_since_start && (looks as usize) < UNTRACKED_WINDOW;
        now.insert(process, PreviousUsage { driver_bytes, slot_bytes, looks, arrived_since_start });
        let is_steady = before.is_some_and(|before| {
            before.driver_bytes == driver_bytes && before.slot_bytes == slot_bytes
        });
        let (Some(driver), Some(slot)) = (driver_bytes, slot_bytes) else { continue };
        let beside = slot.saturating_sub(context_bytes);
        let is_one = context_bytes > 0 && counted.contains(&context_bytes);
        if is_steady
            && is_one
            && looks < CONTEXT_LEARNING_LOOKS
            && beside <= CONTEXT_LEARNING_MAX_BYTES
        {
            largest = largest.max(Some(driver.saturating_sub(beside)));
        }
    }
    *last = Some(now);
    largest
}

/// Whether a slot belongs to a process, according to the slot.
pub(super) fn is_slot_of(slot: &SlotCopy, process: Process, inside: Option<NamespacedPid>) -> bool {
    inside.is_some_and(|inside| {
        let is_namespace = inside.namespace.is_none_or(|known| known == slot.pid_namespace);
        slot.pid == inside.pid && slot.start_time == process.start_time && is_namespace
    })
}

#[cfg(test)]
mod tests;
