//! The first process of a container: found by the names that kubelet and runtime give its cgroup, signalled, and waited for.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

pub use rustix::process::Signal;

use super::proc::{Cgroups, Proc};
use super::{Process, kill};

/// The containers of a node.
#[derive(Clone, Debug)]
pub struct Containers {
    proc: Proc,
}

impl Containers {
    /// The containers whose processes a proc file system shows.
    pub fn new(proc_root: PathBuf) -> Self {
        Self { proc: Proc::new(proc_root) }
    }

    /// Whether a process of a pod runs, by the pod's UID.
    pub fn has_pod(&self, pod: &str) -> io::Result<bool> {
        let is_of = |cgroups: &Cgroups| cgroups.pod().is_some_and(|found| found == pod);
        Ok(self.of(is_of)?.next().is_some())
    }

    /// The first process of a pod's container, by UID and ID. `None`: the container has no process.
    ///
    /// It is the oldest one whose parent is outside: a runtime starts it, and it starts the others. Processes that a person starts in
    /// the container have a parent outside, too, but are younger. The ID counts only in the name that the runtime gave.
    pub fn first_process(&self, pod: &str, container: &str) -> io::Result<Option<Process>> {
        let is_of = |cgroups: &Cgroups| {
            let found = cgroups.pod_and_container();
            found.is_some_and(|(uid, name)| uid == pod && is_container(name, container))
        };
        let pids: Vec<u32> = self.of(is_of)?.collect();
        // One that has exited meanwhile, or is about to, is none.
        let running = pids.iter().filter(|pid| !self.proc.is_ending(**pid));
        let found = running.filter_map(|pid| Some((*pid, self.proc.stat(*pid).ok()?)));
        let first =
            found.min_by_key(|(pid, stat)| (pids.contains(&stat.parent), stat.start_time, *pid));
        Ok(first.map(|(pid, stat)| Process { pid, start_time: stat.start_time }))
    }

    /// A descriptor of a process, which can be read once the process has ended. `None`: it has ended.
    pub fn open(&self, process: Process) -> io::Result<Option<OwnedFd>> {
        kill::open(&self.proc, process)
    }

    /// Pids of the processes whose cgroups are these.
    fn of(&self, is_of: impl Fn(&Cgroups) -> bool) -> io::Result<impl Iterator<Item = u32>> {
        let is_of = move |pid: &u32| {
            self.proc.cgroups(&pid.to_string()).is_ok_and(|cgroups| is_of(&cgroups))
        };
        Ok(self.proc.pids()?.into_iter().filter(is_of))
    }
}

/// Sends a signal to an open process. One that has ended gets none.
pub fn send(process: impl AsFd, signal: Signal) -> io::Result<()> {
    kill::send(process, signal)
}

/// Whether a runtime names the cgroup of a container so: `<id>` with the cgroupfs driver, `<runtime>-<id>.scope` with systemd.
/// The scope of CRI-O's `conmon`, which watches over the container, has the ID, too.
fn is_container(name: &str, id: &str) -> bool {
    let scope = name.strip_suffix(".scope").and_then(|scope| scope.rsplit_once('-'));
    scope.map_or(name == id, |(runtime, found)| {
        found == id && runtime.rsplit('-').next() != Some("conmon")
    })
}

#[cfg(test)]
mod tests;
