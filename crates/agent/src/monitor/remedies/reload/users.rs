//! Processes that have the driver open, and those of them that are services of the host's systemd.

use std::fmt;
use std::fs;
use std::path::Path;

/// Services of NVIDIA that keep the driver open, in the order in which they are stopped: DCGM, IMEX, licences of virtual GPUs, Fabric
/// Manager, the persistence daemon. They are of no use without the driver, and start again in the reverse order.
const SERVICES: [&str; 6] = [
    "nvidia-dcgm.service",
    "dcgm.service",
    "nvidia-imex.service",
    "nvidia-gridd.service",
    "nvidia-fabricmanager.service",
    "nvidia-persistenced.service",
];

/// Beginnings of the paths of the driver's device files, wherever `/dev` is.
const DEVICES: &[&str] = &["/dev/nvidia"];
/// The same, with those of the kernel's graphics, which other drivers have, too.
const ALL_DEVICES: &[&str] = &["/dev/nvidia", "/dev/dri/"];

/// A process that has the driver open.
#[derive(Clone, Debug, PartialEq, Eq)]
struct User {
    pid: u32,
    name: String,
    service: Option<&'static str>,
}

/// Processes that have the driver open, by their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Users(Vec<User>);

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no process that can be seen; a console may be on a GPU");
        }
        for (index, User { pid, name, .. }) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{name} ({pid})")?;
        }
        Ok(())
    }
}

impl Users {
    /// The processes that have a device file of the driver open.
    pub(super) fn find(proc_root: &Path) -> Self {
        Self::with(proc_root, DEVICES)
    }

    /// Those that may keep a module from being unloaded: displays, too.
    pub(super) fn suspects(proc_root: &Path) -> Self {
        Self::with(proc_root, ALL_DEVICES)
    }

    fn with(proc_root: &Path, devices: &[&str]) -> Self {
        let entries = fs::read_dir(proc_root).into_iter().flatten().flatten();
        let mut pids: Vec<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        let user = |pid: u32| {
            let folder = proc_root.join(pid.to_string());
            has_open(&folder, devices).then(|| User {
                pid,
                name: fs::read_to_string(folder.join("comm")).unwrap_or_default().trim().to_owned(),
                service: service(&folder),
            })
        };
        Self(pids.into_iter().filter_map(user).collect())
    }

    /// The services that are to be stopped for a reload, in that order. The error has the processes that are none of them.
    pub(super) fn services(self) -> Result<Vec<&'static str>, Self> {
        let (services, others): (Vec<_>, Vec<_>) =
            self.0.into_iter().partition(|user| user.service.is_some());
        if !others.is_empty() {
            return Err(Self(others));
        }
        let is_found = |unit: &&str| services.iter().any(|user| user.service == Some(*unit));
        Ok(SERVICES.into_iter().filter(is_found).collect())
    }
}

/// Whether the process of a folder of `/proc` has a device file open. The names of its files tell: to ask for more of a file may hang,
/// if it is on a server that does not answer.
fn has_open(folder: &Path, devices: &[&str]) -> bool {
    let files = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
    let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.any(|target| {
        let target = target.to_string_lossy();
        devices.iter().any(|device| target.contains(device))
    })
}

/// The service that a process is of, by its cgroup. Its path is that from this process's cgroup.
fn service(folder: &Path) -> Option<&'static str> {
    let cgroups = fs::read_to_string(folder.join("cgroup")).ok()?;
    SERVICES.into_iter().find(|unit| {
        let end = format!("/system.slice/{unit}");
        cgroups.lines().any(|line| line.ends_with(&end))
    })
}
