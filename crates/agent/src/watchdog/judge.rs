//! A look at all shares of a node: whose each process is that the driver lists, what each share has, and what
//! is done about it. Blocks on files of the kernel, for a moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use octavo_gpu::GpuProcess;
use tokio::sync::Semaphore;

use super::act::Doer;
use super::consumers::Consumers;
use super::contexts::Contexts;
use super::decision::Process;
use super::files::Copy;
use super::freezer::Freezer;
use super::identity::{Candidate, Identities};
use super::proc::Proc;
use super::share::{Found, Watched};
use super::split::Split;
use super::tell::Tell;
use super::truth::Lists;
use super::words::unknown;
use crate::claims::LiveShare;
use crate::metrics::Metrics;

/// Connections that the shares of a node may have together, for they are the agent's descriptors.
const MOST_CONNECTIONS: usize = 4096;
/// Of descriptors that the agent may have, this part at most is the guards'.
const DESCRIPTORS_PART: u64 = 4;

/// The shares of a node, and what is remembered of them.
pub(super) struct Judge {
    node: String,
    proc: Proc,
    identities: Identities,
    freezer: Freezer,
    copy: Copy,
    contexts: Contexts,
    room: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    tell: Arc<dyn Tell>,
    consumers: Arc<Consumers>,
    /// Shares by the names of their folders.
    shares: BTreeMap<String, Watched>,
    /// Processes of no share, by GPU, that people were told of.
    foreign: BTreeMap<String, BTreeSet<Process>>,
    has_seen: bool,
    /// GPUs of which it was said that the driver does not tell all.
    unknown_told: BTreeSet<String>,
}

impl Judge {
    /// A judge who knows no share. The processes are those of the agent's own pid namespace, as those in the
    /// driver's lists are.
    pub(super) fn new(
        node: &str,
        proc: Proc,
        cgroup_root: &Path,
        metrics: Arc<Metrics>,
        tell: Arc<dyn Tell>,
        consumers: Arc<Consumers>,
    ) -> Self {
        let identities = Identities::new(proc.clone(), Arc::clone(&consumers));
        let freezer = Freezer::new(cgroup_root, identities.own().clone());
        Self {
            node: node.to_owned(),
            proc,
            identities,
            freezer,
            copy: Copy::default(),
            contexts: Contexts::default(),
            room: Arc::new(Semaphore::new(room())),
            metrics,
            tell,
            consumers,
            shares: BTreeMap::new(),
            foreign: BTreeMap::new(),
            has_seen: false,
            unknown_told: BTreeSet::new(),
        }
    }

    /// Takes the shares that there are now.
    pub(super) fn adopt(&mut self, shares: &[LiveShare]) {
        let names: BTreeSet<_> = shares.iter().map(name).collect();
        let gone: Vec<_> =
            self.shares.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in gone {
            self.leave(&name);
        }
        for share in shares {
            let name = name(share);
            let old = self.shares.get_mut(&name);
            match old {
                Some(old)
                    if old.share.generation == share.generation && old.share.wall == share.wall =>
                {
                    old.share = share.clone();
                }
                _ => {
                    self.leave(&name);
                    self.shares.insert(name, Watched::new(share.clone(), &self.node));
                }
            }
        }
        let gpus = self.gpus();
        let gone = self.foreign.keys().filter(|gpu| !gpus.contains(gpu));
        for gpu in gone {
            self.metrics.wall.foreign(&self.node, gpu, None);
        }
        self.foreign.retain(|gpu, _| gpus.contains(gpu));
        let names = names.iter().map(String::as_str).collect();
        let pids = self.identities.pids();
        self.identities.keep(&pids, &names);
        self.consumers.keep(&shares.iter().map(|share| share.claim.uid.as_str()).collect());
    }

    /// UUIDs of the GPUs that are to be looked at.
    pub(super) fn gpus(&self) -> Vec<String> {
        let walled = self.shares.values().filter(|share| share.has_wall());
        let gpus: BTreeSet<_> = walled.map(|share| share.share.gpu_uuid.clone()).collect();
        gpus.into_iter().collect()
    }

    /// Looks at the ledgers, before the driver is asked.
    pub(super) fn look_ahead(&mut self) {
        for share in self.shares.values_mut().filter(|share| share.has_wall()) {
            share.look_ahead(&mut self.copy);
        }
    }

    /// Looks at all shares. `lists` is `None` where the driver did not answer.
    pub(super) fn look(&mut self, at: Duration, lists: Option<&Lists>) {
        for share in self.shares.values_mut().filter(|share| share.has_wall()) {
            share.keep(at, &self.proc, &self.room);
        }
        let mut seen_pids = BTreeSet::new();
        for gpu in self.gpus() {
            let list = match lists.and_then(|lists| lists.get(&gpu)) {
                Some(Ok(list)) => Some(list),
                Some(Err(error)) => {
                    tracing::debug!(node = %self.node, gpu, %error, "the driver does not tell the processes of a GPU");
                    None
                }
                None => None,
            };
            let found = list.map(|list| self.sort(&gpu, list, &mut seen_pids));
            self.judge(at, &gpu, found.as_ref());
        }
        if lists.is_some() {
            let names = self.shares.keys().map(String::as_str).collect();
            self.identities.keep(&seen_pids, &names);
        }
    }

    /// Gives each process of a GPU to its share; those of none are told of.
    fn sort(
        &mut self,
        gpu: &str,
        list: &[GpuProcess],
        seen_pids: &mut BTreeSet<u32>,
    ) -> BTreeMap<String, Vec<Found>> {
        let candidates: Vec<_> = self
            .shares
            .iter()
            .map(|(name, watched)| Candidate {
                name,
                claim: &watched.share.claim,
                folder: &watched.share.folder,
                gpu: &watched.share.gpu_uuid,
                heard: &watched.heard,
            })
            .collect();
        let mut found: BTreeMap<String, Vec<Found>> = BTreeMap::new();
        let (mut foreign, mut of_many, mut unseen) = (BTreeSet::new(), Vec::new(), 0);
        for listed in list {
            let Ok(owned) = self.identities.of(listed.pid, gpu, &candidates) else {
                unseen += 1;
                continue;
            };
            self.has_seen = true;
            seen_pids.insert(listed.pid);
            if listed.used_bytes.is_none() && self.unknown_told.insert(gpu.to_owned()) {
                tracing::warn!(
                    node = %self.node, gpu,
                    "the driver does not tell how much memory processes have on this GPU: shares are held by \
                     the guard alone, and what goes round it is not seen"
                );
            }
            match owned.shares.as_slice() {
                [] if owned.is_asked => {}
                [] => {
                    foreign.insert(owned.process);
                }
                [share] => {
                    let found = found.entry(share.clone()).or_default();
                    found.push(Found { owned, driver_bytes: listed.used_bytes });
                }
                _ => of_many.push(Found { owned, driver_bytes: listed.used_bytes }),
            }
        }
        if !of_many.is_empty() {
            self.split(of_many, &mut found);
        }
        if unseen > 0 && !self.has_seen {
            // Once: then it is seen, or there is nothing that more words would change.
            self.has_seen = true;
            tracing::error!(
                node = %self.node, gpu, processes = unseen,
                "none of the processes that the driver lists is seen here: the agent must run in the host's pid \
                 namespace (hostPID: true), or nothing that goes round the guard is caught"
            );
        }
        self.tell_foreign(gpu, foreign);
        found
    }

    /// Gives what processes with several shares of a GPU have to each of these, by what their ledgers say.
    fn split(&mut self, of_many: Vec<Found>, found: &mut BTreeMap<String, Vec<Found>>) {
        let mut split = Split::default();
        for process in &of_many {
            for name in &process.owned.shares {
                if let Some(watched) = self.shares.get(name) {
                    split.add(name, watched.share.memory_bytes, || {
                        watched.look_at_slots(&mut self.copy)
                    });
                }
            }
        }
        for process in of_many {
            for (name, part) in split.parts(&process) {
                found.entry(name).or_default().push(part);
            }
        }
    }

    fn tell_foreign(&mut self, gpu: &str, foreign: BTreeSet<Process>) {
        self.metrics.wall.foreign(&self.node, gpu, Some(foreign.len()));
        let known = self.foreign.entry(gpu.to_owned()).or_default();
        let new: Vec<_> = foreign.difference(known).map(|process| process.pid).collect();
        *known = foreign;
        if !new.is_empty() {
            self.tell.foreign(gpu, &new);
        }
    }

    fn judge(&mut self, at: Duration, gpu: &str, found: Option<&BTreeMap<String, Vec<Found>>>) {
        for (name, watched) in &mut self.shares {
            if !watched.has_wall() || watched.share.gpu_uuid != gpu {
                continue;
            }
            let own = found.map(|found| found.get(name).map_or(&[][..], Vec::as_slice));
            let context_bytes = self.contexts.bytes(gpu);
            let seen = watched.look(at, own, context_bytes, &self.proc, &mut self.copy);
            if let Some(bytes) = seen.context_bytes {
                self.contexts.saw(gpu, name, bytes);
            }
            let wall = &self.metrics.wall;
            wall.count(&watched.labels, seen.report.refused, seen.report.unknown);
            if let Some(figures) = seen.figures {
                wall.set(&watched.labels, figures);
            }
            if !seen.names.is_empty() {
                self.tell.share(&watched.share, unknown(&watched.share, &seen.names));
            }
            let doer = Doer {
                node: &self.node,
                proc: &self.proc,
                freezer: &self.freezer,
                identities: &self.identities,
                tell: &*self.tell,
                metrics: &self.metrics,
            };
            doer.act_all(watched, seen.actions);
        }
    }

    /// Ends the watch over a share: what is frozen goes on, for its containers are ended by others.
    fn leave(&mut self, name: &str) {
        let Some(watched) = self.shares.remove(name) else { return };
        let is_known = Freezer::has_frozen(&watched.share.folder);
        let thawed = if is_known { self.freezer.thaw(&watched.share.folder) } else { Ok(()) };
        // The folder may be gone already, and with it what was written there of a look that came between.
        let thawed = thawed.and(Freezer::thaw_these(&watched.frozen));
        if let Err(error) = thawed {
            tracing::warn!(node = %self.node, share = name, %error, "a share that is given back stays frozen");
        }
        self.metrics.wall.remove(&watched.labels);
    }
}

/// Name of a share's folder.
fn name(share: &LiveShare) -> String {
    share.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// How many connections of guards there may be.
fn room() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let part = limit.map_or(u64::MAX, |limit| limit / DESCRIPTORS_PART);
    usize::try_from(part).unwrap_or(MOST_CONNECTIONS).min(MOST_CONNECTIONS)
}

#[cfg(test)]
mod tests;
