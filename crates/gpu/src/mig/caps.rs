//! Capabilities: the device nodes that give a process access to an instance, or to IMEX channels.

use std::path::{Path, PathBuf};

/// The capabilities that a process needs to use a MIG device, beside the GPU's own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigCaps {
    /// Of the GPU instance.
    pub gpu_instance: Capability,
    /// Of the compute instance.
    pub compute_instance: Capability,
}

/// A capability. Its node is `/dev/nvidia-caps/nvidia-cap<minor>`, its major number that of
/// `nvidia-caps` in `/proc/devices`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Minor number of the node.
    pub minor: u32,
    /// Permission bits of the node.
    pub mode: u32,
}

/// Why a capability could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CapabilityError {
    /// The file could not be read.
    #[error(
        "read {}: the driver has it while the instance or service is there; is /proc of the host seen \
         at the configured procRoot?", path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The file has no minor number, or no mode.
    #[error(
        "{} has no lines `DeviceFileMinor: NUMBER` and `DeviceFileMode: NUMBER`: this driver version is \
         unknown", path.display()
    )]
    Form {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the capabilities of compute instance `ci` of GPU instance `gi` on the GPU with device
/// `/dev/nvidia<minor>`. `proc_root` is the path of the host's `/proc`.
///
/// The files exist as long as the instance does: `driver/nvidia/capabilities/gpu0/mig/gi1/access`
/// and `.../gi1/ci0/access` (NVIDIA's MIG user guide, "Device Nodes and Capabilities").
pub fn caps(proc_root: &Path, minor: u32, gi: u32, ci: u32) -> Result<MigCaps, CapabilityError> {
    let folder = format!("driver/nvidia/capabilities/gpu{minor}/mig/gi{gi}");
    let folder = proc_root.join(folder);
    Ok(MigCaps {
        gpu_instance: cap(folder.join("access"))?,
        compute_instance: cap(folder.join(format!("ci{ci}/access")))?,
    })
}

/// The capability to manage IMEX channels, which the IMEX service needs.
pub fn imex_management(proc_root: &Path) -> Result<Capability, CapabilityError> {
    cap(proc_root.join("driver/nvidia/capabilities/fabric-imex-mgmt"))
}

fn cap(path: PathBuf) -> Result<Capability, CapabilityError> {
    match std::fs::read_to_string(&path) {
        Ok(text) => cap_in(&text).ok_or(CapabilityError::Form { path }),
        Err(source) => Err(CapabilityError::Read { path, source }),
    }
}

/// The capability in the text of its file, which has lines `name: value`. Both values are decimal.
fn cap_in(text: &str) -> Option<Capability> {
    let value = |wanted: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| name.trim() == wanted)?.1.trim().parse::<u32>().ok()
    };
    let mode = value("DeviceFileMode").filter(|mode| *mode <= 0o7777)?;
    Some(Capability { minor: value("DeviceFileMinor")?, mode })
}

#[cfg(test)]
mod tests;
