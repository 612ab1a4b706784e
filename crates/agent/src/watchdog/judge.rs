//! A look at all shares of a node: whose each process is that the driver lists, what each share has, and what
//! is done about it. Blocks on files of the kernel, for a moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use octavo_gpu::GpuProcess;

use super::act::Doer;
use super::consumers::Consumers;
use super::contexts::Contexts;
use super::decision::Process;
use super::files::Copy;
use super::freezer::Freezer;
use super::identity::{Candidate, Identities};
use super::proc::Proc;
use super::room::Room;
use super::share::{Found, Watched};
use super::sight::{Blindness, Look, Sight};
use super::split::Split;
use super::tell::Tell;
use super::truth::Answer;
use super::words::{blind, unknown};
use crate::claims::LiveShare;
use crate::metrics::Metrics;

/// The shares of a node, and what is remembered of them.
pub(super) struct Judge {
    node: String,
    proc: Proc,
    identities: Identities,
    freezer: Freezer,
    copy: Copy,
    contexts: Contexts,
    room: Arc<Room>,
    metrics: Arc<Metrics>,
    tell: Arc<dyn Tell>,
    consumers: Arc<Consumers>,
    /// Shares by the names of their folders.
    shares: BTreeMap<String, Watched>,
    /// Processes of no share, by GPU, that people were told of.
    foreign: BTreeMap<String, BTreeSet<Process>>,
    /// Whether what goes round the wall would be seen, by GPU.
    sights: BTreeMap<String, Sight>,
    /// Processes that the driver listed when it answered last, by GPU.
    listed: BTreeMap<String, BTreeSet<u32>>,
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
            room: Room::of_process(),
            metrics,
            tell,
            consumers,
            shares: BTreeMap::new(),
            foreign: BTreeMap::new(),
            sights: BTreeMap::new(),
            listed: BTreeMap::new(),
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
                    if old.share.generation == share.generation
                        && old.share.backend == share.backend =>
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
            self.metrics.enforcement.foreign(&self.node, gpu, None);
        }
        self.foreign.retain(|gpu, _| gpus.contains(gpu));
        self.listed.retain(|gpu, _| gpus.contains(gpu));
        for (gpu, _) in self.sights.extract_if(.., |gpu, _| !gpus.contains(gpu)) {
            self.metrics.enforcement.blind(&self.node, &gpu, None);
        }
        let names = names.iter().map(String::as_str).collect();
        let pids = self.identities.pids();
        self.identities.keep(&pids, &names);
        self.consumers.keep(&shares.iter().map(|share| share.claim.uid.as_str()).collect());
    }

    /// UUIDs of the GPUs that are to be looked at.
    pub(super) fn gpus(&self) -> Vec<String> {
        let enforcement = self.shares.values().filter(|share| share.is_enforced());
        let gpus: BTreeSet<_> = enforcement.map(|share| share.share.gpu_uuid.clone()).collect();
        gpus.into_iter().collect()
    }

    /// Looks at the ledgers, before the driver is asked.
    pub(super) fn look_ahead(&mut self) {
        for share in self.shares.values_mut().filter(|share| share.is_enforced()) {
            share.look_ahead(&mut self.copy);
        }
    }

    /// Looks at all shares, with what the driver said.
    pub(super) fn look(&mut self, at: Duration, answer: &Answer) {
        for share in self.shares.values_mut().filter(|share| share.is_enforced()) {
            share.keep(at, &self.proc, &self.room);
        }
        for gpu in self.gpus() {
            let (look, found) = match answer {
                Answer::Closed => (Look::Blind(Blindness::Closed), None),
                Answer::Told { lists, hanging } => match lists.get(&gpu) {
                    Some(Ok(list)) => {
                        let (look, found) = self.sort(&gpu, list);
                        (look, Some(found))
                    }
                    Some(Err(error)) => {
                        tracing::debug!(node = %self.node, gpu, %error, "the driver does not tell the processes of a GPU");
                        (Look::Blind(Blindness::Refuses), None)
                    }
                    None if hanging.contains(&gpu) => (Look::Blind(Blindness::Hangs), None),
                    None => (Look::Waits, None),
                },
            };
            self.note(&gpu, look, answer);
            self.judge(at, &gpu, found.as_ref());
        }
        // Of a GPU for which the driver does not answer the processes are those that it was told of.
        let pids: BTreeSet<_> = self.listed.values().flatten().copied().collect();
        let names = self.shares.keys().map(String::as_str).collect();
        self.identities.keep(&pids, &names);
    }

    /// Takes what a look showed of a GPU; people are told of what changes.
    fn note(&mut self, gpu: &str, look: Look, answer: &Answer) {
        let sight = self.sights.entry(gpu.to_owned()).or_default();
        let before = sight.blindness();
        if sight.take(look) {
            let now = sight.blindness();
            self.metrics.enforcement.blind(&self.node, gpu, now.map(Blindness::word));
            self.tell.sight(gpu, before, now);
            if let Answer::Told { lists, .. } = answer
                && let Some(Err(error)) = lists.get(gpu)
            {
                tracing::warn!(node = %self.node, gpu, %error, "the driver does not tell the processes of a GPU");
            }
        }
    }

    /// Gives each process of a GPU to its share; those of none are told of. Says whether all was seen.
    fn sort(&mut self, gpu: &str, list: &[GpuProcess]) -> (Look, BTreeMap<String, Vec<Found>>) {
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
        let (mut foreign, mut of_many) = (BTreeSet::new(), Vec::new());
        let (mut pids, mut blindness) = (BTreeSet::new(), None);
        for listed in list {
            let Ok(owned) = self.identities.of(listed.pid, gpu, &candidates) else { continue };
            pids.insert(listed.pid);
            if listed.used_bytes.is_none() {
                blindness = Some(Blindness::NoBytes);
            } else if owned.is_unreadable {
                blindness = blindness.or(Some(Blindness::Unreadable));
            }
            match owned.shares.as_slice() {
                // Whose they are is not known, so nobody is blamed.
                [] if owned.is_asked || owned.is_unreadable => {}
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
        let look = match blindness {
            _ if list.is_empty() => Look::Empty,
            // Some end while they are looked at, and not all at every look.
            _ if pids.is_empty() => Look::Blind(Blindness::Hidden),
            Some(kind) => Look::Blind(kind),
            None => Look::Sees,
        };
        self.listed.insert(gpu.to_owned(), pids);
        self.tell_foreign(gpu, foreign);
        (look, found)
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
        self.metrics.enforcement.foreign(&self.node, gpu, Some(foreign.len()));
        let known = self.foreign.entry(gpu.to_owned()).or_default();
        let new: Vec<_> = foreign.difference(known).map(|process| process.pid).collect();
        *known = foreign;
        if !new.is_empty() {
            self.tell.foreign(gpu, &new);
        }
    }

    fn judge(&mut self, at: Duration, gpu: &str, found: Option<&BTreeMap<String, Vec<Found>>>) {
        let blindness = self.sights.get(gpu).and_then(|sight| sight.blindness());
        for (name, watched) in &mut self.shares {
            if !watched.is_enforced() || watched.share.gpu_uuid != gpu {
                continue;
            }
            let own = found.map(|found| found.get(name).map_or(&[][..], Vec::as_slice));
            let context_bytes = self.contexts.bytes(gpu);
            let seen = watched.look(at, own, context_bytes, &self.proc, &mut self.copy);
            if let Some(bytes) = seen.context_bytes {
                self.contexts.saw(gpu, name, bytes);
            }
            let backend = &self.metrics.enforcement;
            backend.count(&watched.labels, seen.report.refused, seen.report.unknown);
            if let Some(figures) = seen.figures {
                backend.set(&watched.labels, figures);
            }
            // Also of a share that came while nothing is seen.
            if watched.blindness != blindness {
                watched.blindness = blindness;
                self.tell.share(&watched.share, blind(&watched.share, blindness));
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
        self.metrics.enforcement.remove(&watched.labels);
    }
}

/// Name of a share's folder.
fn name(share: &LiveShare) -> String {
    share.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
