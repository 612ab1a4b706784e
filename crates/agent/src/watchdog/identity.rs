//! Whose a process is that the driver lists.
//!
//! | it is of a share that | how it is known |
//! |---|---|
//! | it told on the share's socket | the kernel says who connected |
//! | is mounted in its container | its `mountinfo`: the mount, of the very file system and folder of the share |
//! | another process of its cgroup is of | what was learned of that one |
//!
//! The last one finds a process that took the mount away. A mount alone would not do: a container that may
//! mount can put anything at the path of another one's share. A cgroup that the agent itself is in, or that is
//! the root, tells nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use octavo_guard_abi::{SHARES, STATE_FILE};

use super::decision::Process;
use super::heard::Heard;
use super::proc::{Cgroups, Inside, Mount, Proc};

/// Cgroups that are remembered: more than a node has containers with shares.
const MOST_CGROUPS: usize = 4096;

/// A share for which processes are looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    /// Name of its folder.
    pub(super) name: &'a str,
    /// Its folder.
    pub(super) folder: &'a Path,
    /// UUID of its GPU.
    pub(super) gpu: &'a str,
    /// What its guards said.
    pub(super) heard: &'a Heard,
}

/// A process and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    /// The process.
    pub(super) process: Process,
    /// Name of the share's folder; `None` where it is nobody's.
    pub(super) share: Option<String>,
    /// As its own pid namespace knows it.
    pub(super) inside: Option<Inside>,
}

/// What was found of processes.
#[derive(Debug)]
pub(super) struct Identities {
    proc: Proc,
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
    inside: Option<Inside>,
}

impl Identities {
    /// Nothing is known yet.
    pub(super) fn new(proc: Proc) -> Self {
        let own = proc.cgroups("self").unwrap_or_default();
        Self { proc, own, known: BTreeMap::new(), by_cgroup: BTreeMap::new() }
    }

    /// Whose a process is on a GPU, among all shares of the node; fails where the process is gone, or is not
    /// seen in the agent's pid namespace.
    pub(super) fn of(
        &mut self,
        pid: u32,
        gpu: &str,
        shares: &[Candidate<'_>],
    ) -> io::Result<Owned> {
        let start_time = self.proc.stat(pid)?.start_time;
        let process = Process { pid, start_time };
        if self.known.get(&pid).is_none_or(|known| known.start_time != start_time) {
            self.known.insert(pid, self.learn(process));
        }
        let Some(known) = self.known.get(&pid) else { return Err(io::ErrorKind::NotFound.into()) };
        let told = shares.iter().filter(|share| share.heard.is_connected(process));
        let told: Vec<_> = told.map(|share| share.name).collect();
        let mounted = shares.iter().filter(|share| known.mounts.iter().any(|m| is_of(m, share)));
        let mounted: Vec<_> = mounted.map(|share| share.name).collect();
        let keys: Vec<_> = self.keys(&known.cgroups).collect();
        for key in &keys {
            if self.by_cgroup.len() < MOST_CGROUPS || self.by_cgroup.contains_key(key) {
                let names = told.iter().chain(&mounted).map(|name| (*name).to_owned());
                let names: Vec<_> = names.collect();
                if !names.is_empty() {
                    self.by_cgroup.entry(key.clone()).or_default().extend(names);
                }
            }
        }
        let inherited = keys.iter().filter_map(|key| self.by_cgroup.get(key)).flatten();
        let names = told.iter().chain(&mounted).copied().chain(inherited.map(String::as_str));
        let on_gpu = |name: &&str| shares.iter().any(|s| s.name == *name && s.gpu == gpu);
        let share = names.into_iter().find(on_gpu).map(str::to_owned);
        Ok(Owned { process, share, inside: known.inside })
    }

    /// The cgroups of a process that was looked at.
    pub(super) fn cgroups(&self, process: Process) -> Option<Cgroups> {
        let known = self.known.get(&process.pid)?;
        (known.start_time == process.start_time).then(|| known.cgroups.clone())
    }

    /// The cgroups of the agent itself.
    pub(super) fn own(&self) -> &Cgroups {
        &self.own
    }

    /// Pids of the processes that are known.
    pub(super) fn pids(&self) -> BTreeSet<u32> {
        self.known.keys().copied().collect()
    }

    /// Forgets all but these processes, and cgroups of other shares than these.
    pub(super) fn keep(&mut self, pids: &BTreeSet<u32>, shares: &BTreeSet<&str>) {
        self.known.retain(|pid, _| pids.contains(pid));
        self.by_cgroup.retain(|_, names| {
            names.retain(|name| shares.contains(&**name));
            !names.is_empty()
        });
    }

    fn learn(&self, process: Process) -> Known {
        let Process { pid, start_time } = process;
        let mounts = self.proc.mounts(pid, SHARES).unwrap_or_else(|error| {
            tracing::debug!(pid, %error, "the mounts of a process cannot be read");
            Vec::new()
        });
        let cgroups = self.proc.cgroups(&pid.to_string()).unwrap_or_default();
        Known { start_time, mounts, cgroups, inside: self.proc.inside(pid) }
    }

    /// Cgroups that tell one container from others.
    fn keys(&self, cgroups: &Cgroups) -> impl Iterator<Item = String> + use<> {
        let unified = cgroups.unified.clone().filter(|_| cgroups.unified != self.own.unified);
        let freezer = cgroups.freezer.clone().filter(|_| cgroups.freezer != self.own.freezer);
        let unified = unified.map(|path| format!("unified:{path}"));
        unified.into_iter().chain(freezer.map(|path| format!("freezer:{path}")))
    }
}

/// Whether a mount is of a share's folder, or of its state file.
fn is_of(mount: &Mount, share: &Candidate<'_>) -> bool {
    let at = format!("{SHARES}/{}", share.name);
    let below = match mount.point.strip_prefix(&at) {
        Some("") => "",
        Some(rest) if rest.strip_prefix('/') == Some(STATE_FILE) => STATE_FILE,
        _ => return false,
    };
    let Ok(folder) = fs::metadata(share.folder) else { return false };
    let device = (rustix::fs::major(folder.dev()), rustix::fs::minor(folder.dev()));
    // The root is the path in the file system, of which the folder's path may be a part only.
    let source = Path::new(&mount.root);
    let source = if below.is_empty() { Some(source) } else { source.parent() };
    let is_folder =
        source.is_some_and(|source| source.ends_with(Path::new("shares").join(share.name)));
    device == mount.device && is_folder
}

#[cfg(test)]
mod tests;
