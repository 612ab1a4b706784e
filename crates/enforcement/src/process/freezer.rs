//! Freezes and thaws the containers of processes.
//!
//! A cgroup is recorded beside the share's folder before it is frozen, so that a killed agent leaves no unknown frozen
//! cgroup. It is not in the folder, whose file system a container can fill. Both last for one boot.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use octavo_node::failpoint;

use crate::process::Process;
use crate::process::proc::Cgroups;

/// File in a share's folder in which earlier versions recorded the control files.
const OLD_FILE: &str = "frozen";
/// The control file of the unified hierarchy.
const UNIFIED: &str = "cgroup.freeze";
/// The control file of version 1.
const VERSION_1: &str = "freezer.state";

/// Why something is not frozen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FreezeError {
    /// There is no cgroup to freeze.
    #[error(
        "the process has no cgroup of its own that can be frozen: the agent must see the host's cgroups \
         (cgroupRoot) and the container must not share the agent's"
    )]
    NoCgroup,
    /// The system refused.
    #[error("{path} cannot be written: {source}; the agent needs the host's cgroups, writable")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Maximum number and depth of folders searched for a cgroup with a partially known path.
const MAX_FOLDERS: usize = 20_000;
const MAX_DEPTH: usize = 8;

/// The freezer of a node.
#[derive(Clone, Debug)]
pub(crate) struct Freezer {
    hierarchies: PathBuf,
    own: Cgroups,
}

impl Freezer {
    /// A freezer for a cgroup hierarchy. `own` are the cgroups of the agent, which are never frozen.
    pub(crate) fn new(cgroup_root: &Path, own: Cgroups) -> Self {
        Self { hierarchies: cgroup_root.to_owned(), own }
    }

    /// Freezes the cgroup of a process for the share with this folder; returns the control file.
    pub(crate) fn freeze(
        &self,
        folder: &Path,
        process: Process,
        cgroups: &Cgroups,
    ) -> Result<PathBuf, FreezeError> {
        let control = self.control(process.pid, cgroups).ok_or(FreezeError::NoCgroup)?;
        let mut frozen = read(folder);
        if frozen.insert(control.clone()) {
            save(folder, &frozen)?;
        }
        failpoint::hit("watchdog.freezing");
        write(&control, true)?;
        failpoint::hit("watchdog.frozen");
        Ok(control)
    }

    /// Thaws the cgroups of these control files.
    pub(crate) fn thaw_controls(controls: &BTreeSet<PathBuf>) -> Result<(), FreezeError> {
        controls.iter().try_for_each(|control| thaw_one(control))
    }

    /// Thaws all cgroups recorded for a share.
    pub(crate) fn thaw(&self, folder: &Path) -> Result<(), FreezeError> {
        let mut frozen = read(folder);
        while let Some(control) = frozen.first().cloned() {
            // The agent wrote the line itself, but check the path before writing to it.
            if control.starts_with(&self.hierarchies) {
                thaw_one(&control)?;
            }
            failpoint::hit("watchdog.thawed");
            frozen.remove(&control);
            save(folder, &frozen)?;
        }
        Ok(())
    }

    /// Whether anything is written down as frozen.
    pub(crate) fn has_frozen(folder: &Path) -> bool {
        record(folder).exists() || folder.join(OLD_FILE).exists()
    }

    /// The control file for the cgroup of a process, unless the agent is in that cgroup.
    pub(crate) fn control(&self, pid: u32, cgroups: &Cgroups) -> Option<PathBuf> {
        let Cgroups { unified, freezer } = cgroups;
        let (own_unified, own_freezer) = (self.own.unified.as_deref(), self.own.freezer.as_deref());
        [
            ("", unified, own_unified, UNIFIED),
            ("unified", unified, own_unified, UNIFIED),
            ("freezer", freezer, own_freezer, VERSION_1),
        ]
        .into_iter()
        .find_map(|(base, path, own, file)| {
            let path = path.as_deref()?;
            if own.is_some_and(|own| Path::new(own).starts_with(path)) {
                return None;
            }
            let base = self.hierarchies.join(base);
            // In a cgroup namespace of the agent the path begins at the agent's cgroup.
            let is_whole = !path.split('/').any(|segment| segment == "..");
            let tail = path.trim_start_matches(['/', '.']);
            let named = is_whole.then(|| base.join(tail)).filter(|found| has(found, file, pid));
            let folder = named.or_else(|| find(&base, tail, file, pid))?;
            Some(folder.join(file))
        })
    }
}

/// The file beside a share's folder with one control file per line.
fn record(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!(".{name}.frozen"))
}

/// Records the frozen cgroups of a share atomically.
fn save(folder: &Path, frozen: &BTreeSet<PathBuf>) -> Result<(), FreezeError> {
    let path = record(folder);
    if frozen.is_empty() {
        remove(&path)?;
        return remove(&folder.join(OLD_FILE));
    }
    let lines: Vec<_> = frozen.iter().map(|path| path.display().to_string() + "\n").collect();
    let new = path.with_extension("new");
    let failed = |source| FreezeError::Io { path: path.clone(), source };
    fs::write(&new, lines.concat()).map_err(failed)?;
    fs::rename(&new, &path).map_err(failed)?;
    remove(&folder.join(OLD_FILE))
}

fn remove(path: &Path) -> Result<(), FreezeError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(FreezeError::Io { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Whether a folder is the cgroup of a process, has the control file, and does not contain the agent.
fn has(folder: &Path, file: &str, pid: u32) -> bool {
    let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let has = |pid: u32| processes.lines().any(|line| line.parse() == Ok(pid));
    folder.join(file).is_file() && has(pid) && !has(std::process::id())
}

/// Searches the cgroup of a process by the end of its path.
fn find(base: &Path, tail: &str, file: &str, pid: u32) -> Option<PathBuf> {
    let (mut folders, mut seen) = (vec![(base.to_owned(), 0)], 0);
    while let Some((folder, depth)) = folders.pop() {
        let found = folder.join(tail);
        if has(&found, file, pid) {
            return Some(found);
        }
        if depth == MAX_DEPTH {
            continue;
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                seen += 1;
                if seen > MAX_FOLDERS {
                    return None;
                }
                folders.push((entry.path(), depth + 1));
            }
        }
    }
    None
}

fn read(folder: &Path) -> BTreeSet<PathBuf> {
    let files = [record(folder), folder.join(OLD_FILE)];
    let texts = files.map(|file| fs::read_to_string(file).unwrap_or_default());
    texts.iter().flat_map(|text| text.lines().map(PathBuf::from)).collect()
}

fn write(control: &Path, is_frozen: bool) -> Result<(), FreezeError> {
    let is_unified = control.ends_with(UNIFIED);
    let word = match (is_unified, is_frozen) {
        (true, true) => "1",
        (true, false) => "0",
        (false, true) => "FROZEN",
        (false, false) => "THAWED",
    };
    fs::write(control, word).map_err(|source| FreezeError::Io { path: control.to_owned(), source })
}

fn thaw_one(control: &Path) -> Result<(), FreezeError> {
    match write(control, false) {
        // The container is gone.
        Err(FreezeError::Io { source, .. }) if is_gone(&source) => Ok(()),
        written => written,
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

#[cfg(test)]
mod tests;
