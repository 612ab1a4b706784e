//! Whose a process is that the driver lists.
//!
//! | it is of a share that | how it is known |
//! |---|---|
//! | it told on the share's socket | the kernel says who connected |
//! | is mounted in its container | its `mountinfo`: a mount of the very file system and folder of the share |
//! | another process of its cgroup is of | what was learned of that one |
//! | its pod has a claim to | the pod's UID in its cgroup, and the claim's object; see [`super::consumers`] |
//!
//! Where a mount lies says nothing: root in a container moves its mounts, takes them away, or changes its root
//! so that it sees none. The last row finds whoever did, and never spoke. It counts only where nothing else is
//! known, for a pod may have another share of the GPU in another container. A cgroup that the agent itself is
//! in, or that is the root, tells nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use octavo_guard_abi::STATE_FILE;

use crate::node::ClaimRef;
use crate::watchdog::guards::reports::GuardReports;
use crate::watchdog::overflow::Process;
use crate::watchdog::process::consumers::{ClaimConsumers, PodUse};
use crate::watchdog::process::proc::{Cgroups, Mount, NamespacedPid, Proc};

/// Cgroups that are remembered: more than a node has containers with shares.
const MAX_CGROUPS: usize = 4096;
/// Name of the folder in which the folders of shares lie.
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
    /// What its guards said.
    pub(in crate::watchdog) guard_reports: &'a GuardReports,
}

/// A process and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::watchdog) struct OwnedProcess {
    /// The process.
    pub(in crate::watchdog) process: Process,
    /// Names of the folders of its shares of the GPU, mostly one; none where it is nobody's.
    pub(in crate::watchdog) shares: Vec<String>,
    /// Whether it is being found out if it is of any share.
    pub(in crate::watchdog) is_asked: bool,
    /// Whether nothing that would tell whose it is may be read.
    pub(in crate::watchdog) is_unreadable: bool,
    /// As its own pid namespace knows it.
    pub(in crate::watchdog) inside: Option<NamespacedPid>,
}

/// What was found of processes.
#[derive(Debug)]
pub(in crate::watchdog) struct ProcessIdentities {
    proc: Proc,
    consumers: Arc<ClaimConsumers>,
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
    /// Nothing is known yet.
    pub(in crate::watchdog) fn new(proc: Proc, consumers: Arc<ClaimConsumers>) -> Self {
        let own = proc.cgroups("self").unwrap_or_default();
        Self { proc, consumers, own, known: BTreeMap::new(), by_cgroup: BTreeMap::new() }
    }

    /// Whose a process is on a GPU, among all shares of the node; fails where the process is gone, or is not
    /// seen in the agent's pid namespace.
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
            && let Some(pod) = &known.pod
        {
            for share in shares_on(gpu, candidates) {
                match self.consumers.pod_use(share.claim, pod) {
                    PodUse::Yes => shares.push(share.name.to_owned()),
                    PodUse::Asked => is_asked = true,
                    PodUse::No => {}
                }
            }
        }
        // Its pod may tell all the same.
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

    /// Forgets all but these processes, and cgroups of other shares than these.
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

    /// Cgroups that tell one container from others.
    fn keys(&self, cgroups: &Cgroups) -> impl Iterator<Item = String> + use<> {
        let unified = cgroups.unified.clone().filter(|_| cgroups.unified != self.own.unified);
        let freezer = cgroups.freezer.clone().filter(|_| cgroups.freezer != self.own.freezer);
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

/// Whether a mount is of a share's folder, or of its state file.
fn is_of(mount: &Mount, share: &Candidate<'_>) -> bool {
    // The root is the path in the file system, of which the folder's path may be a part only.
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
