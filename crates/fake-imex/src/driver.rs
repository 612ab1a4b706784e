//! The simulated driver below the service: its version, its one session, its faults.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use octavo_machine::{ImexState, Machine, State};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Folder of the machine in containers.
const CONTAINER_FOLDER: &str = "/run/octavo-simulator";

/// Folder of the capabilities' device nodes. One of them lets a program manage IMEX.
const CAPABILITIES: &str = "/dev/nvidia-caps";

/// Folder of the machine that this program is installed on: a container's, or beside the program in the driver's root.
pub fn folder() -> Option<PathBuf> {
    let has_machine = |folder: &PathBuf| folder.join("machine.yaml").exists();
    let in_container = PathBuf::from(CONTAINER_FOLDER);
    let beside = std::env::current_exe().ok()?.parent()?.parent()?.join("lib64");
    [in_container, beside].into_iter().find(has_machine)
}

/// The driver, held by one service at a time.
#[derive(Debug)]
pub(crate) struct DriverSession {
    folder: PathBuf,
    /// Version of the driver that is loaded.
    pub(crate) version: String,
    /// Locked as long as the service runs.
    _lock: File,
}

impl DriverSession {
    /// Opens the driver of a machine.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join("machine.yaml");
        let machine = Machine::read(&path)?;
        if folder == Path::new(CONTAINER_FOLDER) && !has_capability(Path::new(CAPABILITIES)) {
            bail!(
                "no device node in {CAPABILITIES} may be opened: this container may not manage IMEX"
            );
        }
        let lock = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => bail!("another IMEX service has the session of this driver"),
            Err(errno) => bail!("locking {}: {errno}", path.display()),
        }
        Ok(Self { folder: folder.to_owned(), version: machine.driver.version, _lock: lock })
    }

    /// The faults that are asked for now.
    pub(crate) fn faults(&self) -> ImexState {
        State::read(&self.folder.join("state.json")).map(|state| state.imex).unwrap_or_default()
    }
}

/// Whether one of the nodes may be opened. No driver stands behind their numbers.
fn has_capability(folder: &Path) -> bool {
    let may_open = |path: PathBuf| match OpenOptions::new().read(true).open(path) {
        Ok(_) => true,
        Err(error) => is_without_driver(&error),
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(may_open)
}

fn is_without_driver(error: &io::Error) -> bool {
    let codes = [Errno::NXIO, Errno::NODEV].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}
