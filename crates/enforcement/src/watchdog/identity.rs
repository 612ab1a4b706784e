//! Finds the share of each process that the driver lists.
//!
//! | a process belongs to a share that | source |
//! |---|---|
//! | it connected to by socket | peer credentials from the kernel |
//! | is mounted in its container | its `mountinfo`: same file system and folder as the share |
//! | another process of its cgroup belongs to | the result for that process |
//! | its pod has a claim to | pod UID in its cgroup, and the claim's object; see [`super::consumers`] |
//!
//! The mount point proves nothing: root in a container can move or remove its mounts, or change its root. The last row
//! finds such processes even if they never connected. It applies only without other results, since a pod may have
//! another share of the GPU in another container. The agent's own cgroup and the root cgroup identify no container. On a machine
//! without a cluster no cgroup does: the last two rows are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use octavo_guard_abi::STATE_FILE;
use octavo_node::ClaimRef;

use crate::process::Process;
use crate::process::proc::{Cgroups, Mount, NamespacedPid, Proc};
use crate::watchdog::consumers::{ClaimConsumers, PodUse};
use crate::watchdog::guards::reports::GuardReports;

/// Cgroups kept; more than a node has containers with shares.
const MAX_CGROUPS: usize = 4096;
/// Name of the parent folder of all shares.
const SHARES_FOLDER: &str = "shares";

/// A share for which processes are looked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::watchdog) struct Candidate<'a> {
    /// Name of its folder.
    pub(in crate::watchdog) name: &'a str,
    /// Its claim.
    pub(in crate::watchdog) claim: &'a ClaimRef,
    /// Its folder.
    pub(in crate::watchdog) folder: &'a Path,
    /// UUID of its GPU.
    pub(in crate::watchdog) gpu: &'a str,
    /// Reports of its guards.
    pub(in crate::watchdog) guard_reports: &'a GuardReports,
}

/// A process and its shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::watchdog) struct OwnedProcess {
    /// The process.
    pub(in crate::watchdog) process: Process,
    /// Folder names of its shares on the GPU, usually one. Empty for a foreign process.
    pub(in crate::watchdog) shares: Vec<String>,
    /// Whether its shares are still being determined.
    pub(in crate::watchdog) is_asked: bool,
    /// Whether the files that would identify it are unreadable.
    pub(in crate::watchdog) is_unreadable: bool,
    /// As its own pid namespace knows it.
    pub(in crate::watchdog) inside: Option<NamespacedPid>,
}

/// Results for processes.
#[derive(Debug)]
pub(in crate::watchdog) struct ProcessIdentities {
    proc: Proc,
    /// `None` without a cluster.
    consumers: Option<Arc<ClaimConsumers>>,
    own: Cgroups,
    known: BTreeMap<u32, Known>,
    /// Names of shares by cgroup.
    by_cgroup: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug)]
struct Known {
    start_time: u64,
    mounts: Vec<Mount>,
    cgroups: Cgroups,
    pod: Option<String>,
    /// Whether its mounts may not be read.
    is_unreadable: bool,
    inside: Option<NamespacedPid>,
}

impl ProcessIdentities {
    /// Nothing is known yet. `consumers` is `None` on a machine without a cluster.
    pub(in crate::watchdog) fn new(proc: Proc, consumers: Option<Arc<ClaimConsumers>>) -> Self {
        let own = proc.cgroups("self").unwrap_or_default();
        Self { proc, consumers, own, known: BTreeMap::new(), by_cgroup: BTreeMap::new() }
    }

    /// Finds the shares of a process on a GPU among all shares of the node. Fails if the process exited or is outside
    /// the agent's pid namespace.
    pub(in crate::watchdog) fn of(
        &mut self,
        pid: u32,
        gpu: &str,
        candidates: &[Candidate<'_>],
    ) -> io::Result<OwnedProcess> {
        let start_time = self.proc.stat(pid)?.start_time;
        let process = Process { pid, start_time };
        if self.known.get(&pid).is_none_or(|known| known.start_time != start_time) {
            self.known.insert(pid, self.learn(process));
        }
        let Some(known) = self.known.get(&pid) else { return Err(io::ErrorKind::NotFound.into()) };
        let reported = candidates.iter().filter(|share| share.guard_reports.is_connected(process));
        let reported: Vec<_> = reported.map(|share| share.name).collect();
        let mounted =
            candidates.iter().filter(|share| known.mounts.iter().any(|m| is_of(m, share)));
        let mounted: Vec<_> = mounted.map(|share| share.name).collect();
        let keys: Vec<_> = self.keys(&known.cgroups).collect();
        for key in &keys {
            if self.by_cgroup.len() < MAX_CGROUPS || self.by_cgroup.contains_key(key) {
                let names = reported.iter().chain(&mounted).map(|name| (*name).to_owned());
                let names: Vec<_> = names.collect();
                if !names.is_empty() {
                    self.by_cgroup.entry(key.clone()).or_default().extend(names);
                }
            }
        }
        let inherited = keys.iter().filter_map(|key| self.by_cgroup.get(key)).flatten();
        let names = reported.iter().chain(&mounted).copied().chain(inherited.map(String::as_str));
        let on_gpu = |name: &&str| shares_on(gpu, candidates).any(|share| share.name == *name);
        let names: BTreeSet<_> = names.filter(on_gpu).map(str::to_owned).collect();
        let (mut shares, mut is_asked) = (names.into_iter().collect::<Vec<_>>(), false);
        if shares.is_empty()
            && let (Some(pod), Some(consumers)) = (&known.pod, &self.consumers)
        {
            for share in shares_on(gpu, candidates) {
                match consumers.pod_use(share.claim, pod) {
                    PodUse::Yes => shares.push(share.name.to_owned()),
                    PodUse::Asked => is_asked = true,
                    PodUse::No => {}
                }
            }
        }
        // Its pod may identify it nevertheless.
        let is_unreadable = known.is_unreadable && shares.is_empty() && !is_asked;
        Ok(OwnedProcess { process, shares, is_asked, is_unreadable, inside: known.inside })
    }

    /// The cgroups of a process that was looked at.
    pub(in crate::watchdog) fn cgroups(&self, process: Process) -> Option<Cgroups> {
        let known = self.known.get(&process.pid)?;
        (known.start_time == process.start_time).then(|| known.cgroups.clone())
    }

    /// The cgroups of the agent itself.
    pub(in crate::watchdog) fn own(&self) -> &Cgroups {
        &self.own
    }

    /// Pids of the processes that are known.
    pub(in crate::watchdog) fn pids(&self) -> BTreeSet<u32> {
        self.known.keys().copied().collect()
    }

    /// Drops other processes, and cgroups of other shares.
    pub(in crate::watchdog) fn keep(&mut self, pids: &BTreeSet<u32>, shares: &BTreeSet<&str>) {
        self.known.retain(|pid, _| pids.contains(pid));
        self.by_cgroup.retain(|_, names| {
            names.retain(|name| shares.contains(&**name));
            !names.is_empty()
        });
    }

    fn learn(&self, process: Process) -> Known {
        let Process { pid, start_time } = process;
        let mounts = self.proc.mounts(pid, SHARES_FOLDER);
        if let Err(error) = &mounts {
            tracing::debug!(pid, %error, "the mounts of a process cannot be read");
        }
        let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let is_unreadable = mounts.as_ref().is_err_and(is_denied);
        let mounts = mounts.unwrap_or_default();
        let cgroups = self.proc.cgroups(&pid.to_string()).unwrap_or_default();
        let pod = cgroups.pod();
        Known { start_time, mounts, cgroups, pod, is_unreadable, inside: self.proc.inside(pid) }
    }

    /// Cgroups that identify a container.
    fn keys(&self, cgroups: &Cgroups) -> impl Iterator<Item = String> + use<> {
        let has_containers = self.consumers.is_some();
        let identifies =
            |path: &Option<String>, own: &Option<String>| has_containers && path != own;
        let unified =
            cgroups.unified.clone().filter(|_| identifies(&cgroups.unified, &self.own.unified));
        let freezer =
            cgroups.freezer.clone().filter(|_| identifies(&cgroups.freezer, &self.own.freezer));
        let unified = unified.map(|path| format!("unified:{path}"));
        unified.into_iter().chain(freezer.map(|path| format!("freezer:{path}")))
    }
}

/// The shares of a GPU.
fn shares_on<'a>(
    gpu: &str,
    candidates: &'a [Candidate<'a>],
) -> impl Iterator<Item = &'a Candidate<'a>> {
    candidates.iter().filter(move |share| share.gpu == gpu)
}

/// Whether a mount is that of a share's folder or state file.
fn is_of(mount: &Mount, share: &Candidate<'_>) -> bool {
    // The mount root is a path in the file system, which may contain only the end of the folder's path.
    let source = Path::new(&mount.root);
    let own = Path::new(SHARES_FOLDER).join(share.name);
    if !source.ends_with(&own) && !source.ends_with(own.join(STATE_FILE)) {
        return false;
    }
    let Ok(folder) = fs::metadata(share.folder) else { return false };
    let device = (rustix::fs::major(folder.dev()), rustix::fs::minor(folder.dev()));
    device == mount.device
}

#[cfg(test)]
mod tests;
