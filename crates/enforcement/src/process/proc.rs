//! Process information from `/proc`.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::PathBuf;

/// Maximum bytes read from a file. A process controls its number of mounts.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Flag of a thread that is ending (`PF_EXITING`).
const PF_EXITING: u64 = 4;

/// The proc file system.
#[derive(Clone, Debug)]
pub(crate) struct Proc {
    root: PathBuf,
}

/// The used fields of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Pid of its parent.
    pub(crate) parent: u32,
    /// When it began, in clock ticks since boot.
    pub(crate) start_time: u64,
    /// Whether the thread is ending.
    pub(crate) is_exiting: bool,
}

/// Paths of a process in the hierarchies with a freezer; `None` at their root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cgroups {
    /// Path in the unified hierarchy.
    pub(crate) unified: Option<String>,
    /// Path in the hierarchy of version 1's freezer.
    pub(crate) freezer: Option<String>,
}

/// A mount of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Major and minor number of the file system.
    pub(crate) device: (u32, u32),
    /// The mounted path of the file system.
    pub(crate) root: String,
}

impl Cgroups {
    /// UID of the pod of a process, from the kubelet's cgroup names: `pod<uid>` with the cgroupfs driver,
    /// `...-pod<uid>.slice` with underscores with systemd. The outermost match counts, since a container may create any
    /// names below its own cgroup.
    pub(crate) fn pod(&self) -> Option<String> {
        self.pod_and_container().map(|(pod, _)| pod)
    }

    /// UID of the pod, and the name of the cgroup that the runtime made in it.
    pub(crate) fn pod_and_container(&self) -> Option<(String, &str)> {
        [&self.unified, &self.freezer].into_iter().flatten().find_map(|path| {
            let mut path = path.split('/').skip_while(|segment| matches!(*segment, "" | ".."));
            let pod = path.find_map(pod_of)?;
            Some((pod, path.next().unwrap_or_default()))
        })
    }
}

/// A process as its own pid namespace knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamespacedPid {
    /// Its pid.
    pub(crate) pid: u64,
    /// Inode of the namespace, where it may be read.
    pub(crate) namespace: Option<u64>,
}

impl Proc {
    /// The proc file system at a path.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The used fields of a process's `stat`.
    pub(crate) fn stat(&self, pid: u32) -> io::Result<Stat> {
        stat_of(&self.read(&format!("{pid}/stat"))?).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("/proc/{pid}/stat is not understood"),
            )
        })
    }

    /// Whether all threads of a process are exiting. The first thread may exit before others.
    pub(crate) fn is_ending(&self, pid: u32) -> bool {
        let Ok(threads) = fs::read_dir(self.root.join(format!("{pid}/task"))) else { return true };
        threads.flatten().all(|thread| {
            let thread = thread.file_name();
            let stat = self.read(&format!("{pid}/task/{}/stat", thread.to_string_lossy()));
            // A thread that disappeared has exited.
            stat.map_or(true, |text| stat_of(&text).is_some_and(|stat| stat.is_exiting))
        })
    }

    /// Pids of all processes.
    pub(crate) fn pids(&self) -> io::Result<Vec<u32>> {
        let entries = fs::read_dir(&self.root)?.flatten();
        Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// The cgroups of a process, or of this process for `self`.
    pub(crate) fn cgroups(&self, pid: &str) -> io::Result<Cgroups> {
        Ok(cgroups_of(&self.read(&format!("{pid}/cgroup"))?))
    }

    /// The mounts of a process whose file system path contains this folder name.
    pub(crate) fn mounts(&self, pid: u32, folder: &str) -> io::Result<Vec<Mount>> {
        let text = self.read(&format!("{pid}/mountinfo"))?;
        let mounts = text.lines().filter_map(mount_of);
        let has = |mount: &Mount| mount.root.split('/').any(|segment| segment == folder);
        Ok(mounts.filter(has).collect())
    }

    /// Whether a process maps a memory file of this name (`memfd_create`). It is assumed of one whose maps cannot be read.
    pub(crate) fn maps_memory_file(&self, pid: u32, name: &str) -> bool {
        let Ok(maps) = File::open(self.root.join(format!("{pid}/maps"))) else { return true };
        let path = format!("/memfd:{name} ");
        let mut lines = BufReader::new(maps).split(b'\n').map_while(Result::ok);
        lines.any(|line| String::from_utf8_lossy(&line).contains(&path))
    }

    /// A process as its own pid namespace knows it.
    pub(crate) fn inside(&self, pid: u32) -> Option<NamespacedPid> {
        let status = self.read(&format!("{pid}/status")).ok()?;
        let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let link = fs::read_link(self.root.join(format!("{pid}/ns/pid"))).ok();
        let namespace = link
            .and_then(|link| link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok());
        Some(NamespacedPid { pid: pids.split_whitespace().next_back()?.parse().ok()?, namespace })
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        File::open(self.root.join(path))?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
        // A process names itself as it likes.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Parses a `stat` line. The name in parentheses may contain anything.
fn stat_of(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // Fields 4, 9 and 22 of proc(5). The first field after the name is number 3.
    let parent = fields.nth(1)?.parse().ok()?;
    let flags: u64 = fields.nth(4)?.parse().ok()?;
    let start_time = fields.nth(12)?.parse().ok()?;
    Some(Stat { parent, start_time, is_exiting: flags & PF_EXITING != 0 })
}

fn cgroups_of(text: &str) -> Cgroups {
    let mut cgroups = Cgroups::default();
    for line in text.lines() {
        let mut dependencies = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (dependencies.next(), dependencies.next(), dependencies.next())
        else {
            continue;
        };
        let path = (path != "/").then(|| path.to_owned());
        if controllers.is_empty() {
            cgroups.unified = path;
        } else if controllers.split(',').any(|controller| controller == "freezer") {
            cgroups.freezer = path;
        }
    }
    cgroups
}

fn mount_of(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ');
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    Some(Mount { device, root: fields.next()?.to_owned() })
}

/// The pod's UID in the name of a cgroup.
fn pod_of(name: &str) -> Option<String> {
    let uid = match name.strip_suffix(".slice") {
        Some(slice) => slice.rsplit_once("pod").filter(|(before, _)| before.ends_with('-'))?.1,
        None => name.strip_prefix("pod")?,
    };
    let uid = uid.replace('_', "-");
    let groups: Vec<_> = uid.split('-').map(str::len).collect();
    let is_uid = matches!(groups.as_slice(), [8, 4, 4, 4, 12] | [32]);
    let is_hex = uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    (is_uid && is_hex).then_some(uid)
}

#[cfg(test)]
mod tests;
