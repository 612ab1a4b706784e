//! The simulated driver below the service: its version, its one session, and what it is told of the service.

use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail, ensure};
use octavo_fake_gpu::NodeId;
use octavo_fake_gpu::imex::{Publication, ServiceReport};
use octavo_fake_gpu::locate::MachineLocation;
use octavo_machine::{IMEX_MANAGEMENT_MINOR, KernelModule, Machine, State};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// The driver, held by one service at a time.
#[derive(Debug)]
pub(crate) struct DriverSession {
    /// Version of the driver that is loaded.
    pub(crate) version: String,
    /// The node in its fabric.
    pub(crate) node: Option<NodeId>,
    /// By it programs learn whether the service serves them.
    publication: Mutex<Publication>,
    /// Locked as long as the service runs. It is the folder, since files in it are replaced.
    _lock: File,
}

impl DriverSession {
    /// Opens the driver of a machine.
    pub(crate) fn open(location: &MachineLocation, state: &State) -> anyhow::Result<Self> {
        if let Some(code) = state.failing_calls.get("nvmlInit").filter(|code| **code != 0) {
            bail!("no driver is loaded (NVML says {code})");
        }
        ensure!(state.is_loaded(KernelModule::Nvidia), "no driver is loaded");
        let folder = &location.folder;
        let mut machine = Machine::read(&folder.join("machine.yaml"))?;
        // As the library of programs does it, whose folder has no links.
        machine.instantiate(&folder.canonicalize()?.to_string_lossy());
        let capability = format!("nvidia-caps/nvidia-cap{IMEX_MANAGEMENT_MINOR}");
        ensure!(
            location.may_open(&capability),
            "/dev/{capability} may not be opened: this container may not manage IMEX"
        );
        let lock = File::open(folder).with_context(|| format!("opening {}", folder.display()))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self {
                node: NodeId::of(&machine),
                version: machine.driver.version,
                publication: Mutex::new(Publication::new(folder)),
                _lock: lock,
            }),
            Err(Errno::WOULDBLOCK) => bail!("another IMEX service has the session of this driver"),
            Err(errno) => bail!("locking {}: {errno}", folder.display()),
        }
    }

    /// Tells programs the state of the service.
    pub(crate) fn publish(&self, report: &ServiceReport) -> io::Result<()> {
        self.publication.lock().unwrap_or_else(PoisonError::into_inner).publish(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = include_str!("../../../machines/gb200-tray.yaml");

    #[test]
    fn only_the_capability_of_imex_lets_a_container_manage_it() {
        let (machine, devices) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(machine.path().join("machine.yaml"), MACHINE).unwrap();
        let location = MachineLocation {
            folder: machine.path().to_owned(),
            devices: Some(devices.path().to_owned()),
        };
        let capabilities = devices.path().join("nvidia-caps");
        std::fs::create_dir(&capabilities).unwrap();
        std::fs::write(capabilities.join("nvidia-cap1"), "").unwrap();
        let refusal = DriverSession::open(&location, &State::default()).unwrap_err().to_string();
        assert!(refusal.contains("nvidia-cap4323"), "{refusal}");
        std::fs::write(capabilities.join("nvidia-cap4323"), "").unwrap();
        DriverSession::open(&location, &State::default()).unwrap();
    }
}
