//! Capabilities: the device nodes that give a process access to an instance.

use std::path::{Path, PathBuf};

/// Minor numbers of the device nodes that a process needs to use a MIG device, beside the GPU's
/// own. Their names are `/dev/nvidia-caps/nvidia-cap<minor>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigCaps {
    /// Of the GPU instance.
    pub gi_minor: u32,
    /// Of the compute instance.
    pub ci_minor: u32,
}

/// Why the minor numbers of an instance could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigCapsError {
    /// The file could not be read.
    #[error(
        "read {}: the driver has it while the instance is there; is /proc of the host seen at the \
         configured procRoot?", path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The file has no minor number.
    #[error("{} has no line `DeviceFileMinor: NUMBER`: this driver version is unknown", path.display())]
    Form {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the minor numbers for compute instance `ci` of GPU instance `gi` on the GPU with device
/// `/dev/nvidia<minor>`. `proc_root` is the path of the host's `/proc`.
///
/// The files exist as long as the instance does: `driver/nvidia/capabilities/gpu0/mig/gi1/access`
/// and `.../gi1/ci0/access` (NVIDIA's MIG user guide, "Device Nodes and Capabilities").
pub fn caps(proc_root: &Path, minor: u32, gi: u32, ci: u32) -> Result<MigCaps, MigCapsError> {
    let folder = format!("driver/nvidia/capabilities/gpu{minor}/mig/gi{gi}");
    let folder = proc_root.join(folder);
    Ok(MigCaps {
        gi_minor: device_minor(folder.join("access"))?,
        ci_minor: device_minor(folder.join(format!("ci{ci}/access")))?,
    })
}

fn device_minor(path: PathBuf) -> Result<u32, MigCapsError> {
    match std::fs::read_to_string(&path) {
        Ok(text) => minor_in(&text).ok_or(MigCapsError::Form { path }),
        Err(source) => Err(MigCapsError::Read { path, source }),
    }
}

/// The minor number in the text of a capability file, which has lines `name: value`.
fn minor_in(text: &str) -> Option<u32> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(name, _)| name.trim() == "DeviceFileMinor")?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests;
