//! Reconciles all shares of a node: assigns the driver's processes to shares, evaluates each share, and executes the
//! actions. Blocks briefly on kernel files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_api::names::{REASON_LEASES_STOPPED, REASON_OLD_GUARD};
use octavo_gpu::GpuProcess;

use super::actuator::Actuator;
use super::consumers::ClaimConsumers;
use super::context_size::ContextSizes;
use super::driver_poll::PollResult;
use super::guards::connection_quota::ConnectionQuota;
use super::guards::state_file::StateBuffer;
use super::identity::{Candidate, ProcessIdentities};
use super::monitored_share::{DriverUsage, MonitoredShare};
use super::notify::messages::{
    long_wait_finding, time_finding, unknown_functions_finding, visibility_finding,
};
use super::notify::notifier::Notify;
use super::swapping::{SwapContext, Swapping};
use super::usage_split::UsageSplit;
use super::visibility::{BlindSpot, Observation, Visibility};
use crate::backend::BackendKind;
use crate::gpu_time::{GpuTime, TimedShare};
use crate::metrics::EnforcementMetrics;
use crate::process::Process;
use crate::process::freezer::Freezer;
use crate::process::proc::Proc;
use crate::share::ActiveShare;

/// Wait of a share for GPU time that its owner should know of.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// The shares of a node, and their state between polls.
pub(super) struct ShareReconciler {
    node: String,
    proc: Proc,
    identities: ProcessIdentities,
    freezer: Freezer,
    copy: StateBuffer,
    contexts: ContextSizes,
    quota: Arc<ConnectionQuota>,
    gpu_time: Option<Arc<GpuTime>>,
    /// Divides memory, where it is swapped.
    swapping: Option<Swapping>,
    cgroup_root: PathBuf,
    /// Whether leases are wanted, but could not be started.
    pub(super) lacks_leases: bool,
    metrics: Arc<EnforcementMetrics>,
    notifier: Arc<dyn Notify>,
    /// `None` without a cluster.
    consumers: Option<Arc<ClaimConsumers>>,
    /// Shares by the names of their folders.
    shares: BTreeMap<String, MonitoredShare>,
    /// Reported foreign processes, by GPU.
    foreign: BTreeMap<String, BTreeSet<Process>>,
    /// Memory of foreign processes, by GPU.
    foreign_bytes: BTreeMap<String, u64>,
    /// Visibility by GPU: whether bypassing allocations would be detected.
    visibility: BTreeMap<String, Visibility>,
    /// Processes in the driver's last answer, by GPU.
    listed: BTreeMap<String, BTreeSet<u32>>,
}

impl ShareReconciler {
    /// A reconciler without shares. `proc` must be in the agent's own pid namespace, as the driver's pids are.
    pub(super) fn new(
        node: &str,
        proc: Proc,
        cgroup_root: &Path,
        metrics: Arc<EnforcementMetrics>,
        notifier: Arc<dyn Notify>,
        consumers: Option<Arc<ClaimConsumers>>,
        gpu_time: Option<Arc<GpuTime>>,
    ) -> Self {
        let identities = ProcessIdentities::new(proc.clone(), consumers.clone());
        let freezer = Freezer::new(cgroup_root, identities.own().clone());
        Self {
            node: node.to_owned(),
            proc,
            identities,
            freezer,
            copy: StateBuffer::default(),
            contexts: ContextSizes::default(),
            quota: ConnectionQuota::for_process(),
            gpu_time,
            swapping: None,
            cgroup_root: cgroup_root.to_owned(),
            lacks_leases: false,
            metrics,
            notifier,
            consumers,
            shares: BTreeMap::new(),
            foreign: BTreeMap::new(),
            foreign_bytes: BTreeMap::new(),
            visibility: BTreeMap::new(),
            listed: BTreeMap::new(),
        }
    }

    /// Divides the memory of shares, too.
    pub(super) fn swap_by(&mut self, swapping: Swapping) {
        self.swapping = Some(swapping);
    }

    /// Whether sizes of GPUs are needed to divide memory.
    pub(super) fn needs_sizes(&self) -> bool {
        self.swapping.as_ref().is_some_and(|swapping| swapping.needs_sizes(&self.shares))
    }

    /// Sets the memory that programs can have of each GPU, in bytes.
    pub(super) fn set_sizes(&mut self, sizes: BTreeMap<String, u64>) {
        if let Some(swapping) = &mut self.swapping {
            swapping.set_sizes(sizes);
        }
    }

    /// Divides the memory of shares.
    pub(super) fn divide_memory(&mut self, at: Duration) {
        let Some(swapping) = &mut self.swapping else { return };
        swapping.step(
            at,
            &mut SwapContext {
                shares: &mut self.shares,
                foreign: &self.foreign_bytes,
                identities: &self.identities,
                freezer: &self.freezer,
                cgroup_root: &self.cgroup_root,
                proc: &self.proc,
                copy: &mut self.copy,
                metrics: &self.metrics,
                notifier: &*self.notifier,
            },
        );
    }

    /// Takes the shares that there are now.
    pub(super) fn set_shares(&mut self, shares: &[ActiveShare]) {
        let names: BTreeSet<_> = shares.iter().map(name).collect();
        let gone: Vec<_> =
            self.shares.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in gone {
            self.remove(&name);
        }
        for share in shares {
            let name = name(share);
            let old = self.shares.get_mut(&name);
            match old {
                Some(old)
                    if old.share.generation == share.generation
                        && old.share.backend == share.backend =>
                {
                    old.share = share.clone();
                }
                _ => {
                    self.remove(&name);
                    self.shares.insert(name, MonitoredShare::new(share.clone(), &self.node));
                }
            }
        }
        if let Some(gpu_time) = &self.gpu_time {
            let guarded = |share: &&ActiveShare| share.backend == Some(BackendKind::Guard);
            gpu_time.set_shares(shares.iter().filter(guarded).map(TimedShare::of).collect());
        }
        let gpus = self.gpus();
        let gone = self.foreign.keys().filter(|gpu| !gpus.contains(gpu));
        for gpu in gone {
            self.metrics.foreign(&self.node, gpu, None);
        }
        self.foreign.retain(|gpu, _| gpus.contains(gpu));
        self.foreign_bytes.retain(|gpu, _| gpus.contains(gpu));
        self.listed.retain(|gpu, _| gpus.contains(gpu));
        for (gpu, _) in self.visibility.extract_if(.., |gpu, _| !gpus.contains(gpu)) {
            self.metrics.blind(&self.node, &gpu, None);
        }
        let names = names.iter().map(String::as_str).collect();
        let pids = self.identities.pids();
        self.identities.keep(&pids, &names);
        if let Some(consumers) = &self.consumers {
            consumers.keep(&shares.iter().map(|share| share.claim.uid.as_str()).collect());
        }
    }

    /// UUIDs of the GPUs to poll.
    pub(super) fn gpus(&self) -> Vec<String> {
        let enforced = self.shares.values().filter(|share| share.is_enforced());
        let gpus: BTreeSet<_> = enforced.map(|share| share.share.gpu_uuid.clone()).collect();
        gpus.into_iter().collect()
    }

    /// Samples the slot counters before the driver is polled.
    pub(super) fn sample_slots(&mut self) {
        for share in self.shares.values_mut().filter(|share| share.is_enforced()) {
            share.sample_slots(&mut self.copy);
        }
    }

    /// Reconciles all shares with the driver's answer.
    pub(super) fn reconcile(&mut self, at: Duration, answer: &PollResult) {
        for share in self.shares.values_mut().filter(|share| share.is_enforced()) {
            share.ensure_socket(at, &self.proc, &self.quota, self.gpu_time.as_ref());
        }
        for gpu in self.gpus() {
            let (observation, found) = match answer {
                PollResult::Closed => (Observation::Blind(BlindSpot::DriverClosed), None),
                PollResult::Answered { lists, hanging } => match lists.get(&gpu) {
                    Some(Ok(list)) => {
                        let (observation, found) = self.assign_processes(&gpu, list);
                        (observation, Some(found))
                    }
                    Some(Err(error)) => {
                        tracing::debug!(node = %self.node, gpu, %error, "the driver does not tell the processes of a GPU");
                        (Observation::Blind(BlindSpot::DriverFails), None)
                    }
                    None if hanging.contains(&gpu) => {
                        (Observation::Blind(BlindSpot::DriverHangs), None)
                    }
                    None => (Observation::Pending, None),
                },
            };
            self.observe(&gpu, observation, answer);
            self.reconcile_gpu(at, &gpu, found.as_ref());
        }
        self.report_times(at);
        self.divide_memory(at);
        self.report_time_problems();
        // For a GPU without an answer the processes of the last answer are kept.
        let pids: BTreeSet<_> = self.listed.values().flatten().copied().collect();
        let names = self.shares.keys().map(String::as_str).collect();
        self.identities.keep(&pids, &names);
    }

    fn report_times(&mut self, at: Duration) {
        let times = self.gpu_time.as_ref().map(|gpu_time| gpu_time.times()).unwrap_or_default();
        for (name, watched) in &mut self.shares {
            let time = times.get(name);
            watched.show_utilisation(at, time.map(|time| Duration::from_nanos(time.used)));
            let Some(time) = time else { continue };
            self.metrics.set_time(&watched.labels, *time);
            let waits_long = Duration::from_nanos(time.waiting) >= LONG_WAIT;
            if waits_long && !watched.waits_long {
                self.notifier.share(&watched.share, long_wait_finding(&watched.share));
            }
            watched.waits_long = waits_long;
        }
    }

    /// Reports shares that are not held to their part of the GPU's time, and those that are again.
    fn report_time_problems(&mut self) {
        let is_stopped = match &self.gpu_time {
            Some(gpu_time) => !gpu_time.is_running(),
            None if self.lacks_leases => true,
            None => return,
        };
        let guarded =
            |watched: &&mut MonitoredShare| watched.share.backend == Some(BackendKind::Guard);
        for watched in self.shares.values_mut().filter(guarded) {
            let old = watched.guard_reports.without_page();
            let problem = match old {
                _ if is_stopped => Some(REASON_LEASES_STOPPED),
                Some(_) => Some(REASON_OLD_GUARD),
                None => None,
            };
            if watched.time_problem != problem {
                watched.time_problem = problem;
                let old = old.filter(|_| !is_stopped);
                self.notifier.share(&watched.share, time_finding(&watched.share, problem, old));
            }
        }
    }

    /// Records the visibility of a GPU, and reports changes.
    fn observe(&mut self, gpu: &str, observation: Observation, answer: &PollResult) {
        let visibility = self.visibility.entry(gpu.to_owned()).or_default();
        let before = visibility.blind_spot();
        if visibility.observe(observation) {
            let now = visibility.blind_spot();
            self.metrics.blind(&self.node, gpu, now.map(BlindSpot::as_str));
            self.notifier.visibility(gpu, before, now);
            if let PollResult::Answered { lists, .. } = answer
                && let Some(Err(error)) = lists.get(gpu)
            {
                tracing::warn!(node = %self.node, gpu, %error, "the driver does not tell the processes of a GPU");
            }
        }
    }

    /// Assigns each process of a GPU to its share and reports foreign ones. Also returns whether all processes were
    /// visible.
    fn assign_processes(
        &mut self,
        gpu: &str,
        list: &[GpuProcess],
    ) -> (Observation, BTreeMap<String, Vec<DriverUsage>>) {
        let candidates: Vec<_> = self
            .shares
            .iter()
            .map(|(name, watched)| Candidate {
                name,
                claim: &watched.share.claim,
                folder: &watched.share.folder,
                gpu: &watched.share.gpu_uuid,
                guard_reports: &watched.guard_reports,
            })
            .collect();
        let mut found: BTreeMap<String, Vec<DriverUsage>> = BTreeMap::new();
        let (mut foreign, mut of_many) = (BTreeSet::new(), Vec::new());
        let mut foreign_bytes = 0_u64;
        let (mut pids, mut blind_spot) = (BTreeSet::new(), None);
        for listed in list {
            let Ok(owned) = self.identities.of(listed.pid, gpu, &candidates) else { continue };
            pids.insert(listed.pid);
            if listed.used_bytes.is_none() {
                blind_spot = Some(BlindSpot::NoBytes);
            } else if owned.is_unreadable {
                blind_spot = blind_spot.or(Some(BlindSpot::UnreadableProc));
            }
            match owned.shares.as_slice() {
                // The owner is unknown, so no share is blamed.
                [] if owned.is_asked || owned.is_unreadable => {}
                [] => {
                    foreign.insert(owned.process);
                    foreign_bytes = foreign_bytes.saturating_add(listed.used_bytes.unwrap_or(0));
                }
                [share] => {
                    let found = found.entry(share.clone()).or_default();
                    found.push(DriverUsage { owned, driver_bytes: listed.used_bytes });
                }
                _ => of_many.push(DriverUsage { owned, driver_bytes: listed.used_bytes }),
            }
        }
        if !of_many.is_empty() {
            self.split(of_many, &mut found);
        }
        let observation = match blind_spot {
            _ if list.is_empty() => Observation::Empty,
            // Some processes exit during a poll, but not all of them in every poll.
            _ if pids.is_empty() => Observation::Blind(BlindSpot::NoHostPid),
            Some(kind) => Observation::Blind(kind),
            None => Observation::Complete,
        };
        self.listed.insert(gpu.to_owned(), pids);
        self.report_foreign(gpu, foreign);
        self.foreign_bytes.insert(gpu.to_owned(), foreign_bytes);
        (observation, found)
    }

    /// Splits the memory of processes with several shares of a GPU by the shares' ledgers.
    fn split(&mut self, of_many: Vec<DriverUsage>, found: &mut BTreeMap<String, Vec<DriverUsage>>) {
        let mut split = UsageSplit::default();
        for process in &of_many {
            for name in &process.owned.shares {
                if let Some(watched) = self.shares.get(name) {
                    split.add(name, watched.share.memory_bytes, || {
                        watched.read_slots(&mut self.copy)
                    });
                }
            }
        }
        for process in of_many {
            for (name, part) in split.split(&process) {
                found.entry(name).or_default().push(part);
            }
        }
    }

    fn report_foreign(&mut self, gpu: &str, foreign: BTreeSet<Process>) {
        self.metrics.foreign(&self.node, gpu, Some(foreign.len()));
        let known = self.foreign.entry(gpu.to_owned()).or_default();
        let new: Vec<_> = foreign.difference(known).map(|process| process.pid).collect();
        *known = foreign;
        if !new.is_empty() {
            self.notifier.foreign_processes(gpu, &new);
        }
    }

    fn reconcile_gpu(
        &mut self,
        at: Duration,
        gpu: &str,
        found: Option<&BTreeMap<String, Vec<DriverUsage>>>,
    ) {
        let blind_spot = self.visibility.get(gpu).and_then(|visibility| visibility.blind_spot());
        for (name, watched) in &mut self.shares {
            if !watched.is_enforced() || watched.share.gpu_uuid != gpu {
                continue;
            }
            let own = found.map(|found| found.get(name).map_or(&[][..], Vec::as_slice));
            let context_bytes = self.contexts.bytes(gpu);
            let polled = watched.poll(at, own, context_bytes, &self.proc, &mut self.copy);
            if let Some(bytes) = polled.context_bytes {
                self.contexts.record(gpu, name, bytes);
            }
            let metrics = &self.metrics;
            metrics.count(&watched.labels, polled.new_reports.refused, polled.new_reports.unknown);
            if let Some(figures) = polled.figures {
                metrics.set(&watched.labels, figures);
            }
            // This includes shares that were added during a blind spot.
            if watched.blind_spot != blind_spot {
                watched.blind_spot = blind_spot;
                self.notifier.share(&watched.share, visibility_finding(&watched.share, blind_spot));
            }
            if !polled.names.is_empty() {
                self.notifier.share(
                    &watched.share,
                    unknown_functions_finding(&watched.share, &polled.names),
                );
            }
            let actuator = Actuator {
                node: &self.node,
                proc: &self.proc,
                freezer: &self.freezer,
                identities: &self.identities,
                notifier: &*self.notifier,
                metrics: &self.metrics,
            };
            actuator.apply_all(watched, polled.actions);
        }
    }

    /// Stops monitoring a share. Its containers are thawed, since the kubelet ends them.
    fn remove(&mut self, name: &str) {
        let Some(watched) = self.shares.remove(name) else { return };
        if let Some(swapping) = &mut self.swapping {
            swapping.remove(name);
        }
        let is_known = Freezer::has_frozen(&watched.share.folder);
        let thawed = if is_known { self.freezer.thaw(&watched.share.folder) } else { Ok(()) };
        // The folder may be removed already, and with it a record from a poll in between.
        let thawed = thawed.and(Freezer::thaw_controls(&watched.frozen));
        if let Err(error) = thawed {
            tracing::warn!(node = %self.node, share = name, %error, "a share that is given back stays frozen");
        }
        self.metrics.remove(&watched.labels);
    }
}

/// Name of a share's folder.
fn name(share: &ActiveShare) -> String {
    share.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
