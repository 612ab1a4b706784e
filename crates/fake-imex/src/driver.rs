//! The simulated driver below the service: its version and its one session.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use octavo_machine::{IMEX_MANAGEMENT_MINOR, Machine, State};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Folder of the machine in containers.
const CONTAINER_FOLDER: &str = "/run/octavo-simulator";

/// Folder of the capabilities' device nodes in containers.
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
    /// Version of the driver that is loaded.
    pub(crate) version: String,
    /// Locked as long as the service runs. It is the folder, since files in it are replaced.
    _lock: File,
}

impl DriverSession {
    /// Opens the driver of a machine.
    pub(crate) fn open(folder: &Path, state: &State) -> anyhow::Result<Self> {
        if let Some(code) = state.failing_calls.get("nvmlInit").filter(|code| **code != 0) {
            bail!("no driver is loaded (NVML says {code})");
        }
        let machine = Machine::read(&folder.join("machine.yaml"))?;
        if folder == Path::new(CONTAINER_FOLDER) {
            may_manage(Path::new(CAPABILITIES))?;
        }
        let lock = File::open(folder).with_context(|| format!("opening {}", folder.display()))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { version: machine.driver.version, _lock: lock }),
            Err(Errno::WOULDBLOCK) => bail!("another IMEX service has the session of this driver"),
            Err(errno) => bail!("locking {}: {errno}", folder.display()),
        }
    }
}

/// Refuses a container without the capability to manage IMEX. No driver stands behind the numbers of its node.
fn may_manage(folder: &Path) -> anyhow::Result<()> {
    let node = folder.join(format!("nvidia-cap{IMEX_MANAGEMENT_MINOR}"));
    match OpenOptions::new().read(true).open(&node) {
        Ok(_) => Ok(()),
        Err(error) if is_without_driver(&error) => Ok(()),
        Err(error) => Err(error).with_context(|| {
            format!("opening {}: this container may not manage IMEX", node.display())
        }),
    }
}

fn is_without_driver(error: &io::Error) -> bool {
    let codes = [Errno::NXIO, Errno::NODEV].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_capability_of_imex_lets_a_container_manage_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("nvidia-cap1"), "").unwrap();
        let refusal = may_manage(folder.path()).unwrap_err().to_string();
        assert!(refusal.contains("nvidia-cap4323"), "{refusal}");
        std::fs::write(folder.path().join("nvidia-cap4323"), "").unwrap();
        may_manage(folder.path()).unwrap();
    }
}
