//! Capability files under `/proc/driver/nvidia/capabilities`. They map an instance to the node
//! under `/dev/nvidia-caps` that grants access to it.
//!
//! Drivers assign a minor number to every possible instance
//! (`/proc/driver/nvidia-caps/mig-minors`). The files exist only while the instance does.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::change::node_of;
use crate::description::Machine;
use crate::{MachineError, State};

use super::MigTable;

/// First minor of an instance: 1 and 2 are for configuration and monitoring.
const FIRST_INSTANCE_MINOR: u32 = 3;
/// Compute instances of a GPU instance with minor numbers.
const MAX_COMPUTE_INSTANCES: u32 = 8;
/// GPU instances of a GPU with minor numbers.
const MAX_GPU_INSTANCES: u32 = 15;

/// Folder of the capability files within a simulated node's folder.
const CAPABILITIES_DIR: &str = "proc/driver/nvidia/capabilities";

/// Mode of an instance's device node.
const ALL_READ_MODE: u32 = 0o444;

/// The capability to use an instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MigCapability {
    /// Minor of the GPU.
    pub gpu: u32,
    /// Id of the GPU instance.
    pub gpu_instance: u32,
    /// Id of the compute instance; `None`: the capability of the GPU instance.
    pub compute_instance: Option<u32>,
}

impl MigCapability {
    /// Minor number of its node, `/dev/nvidia-caps/nvidia-capN`.
    pub fn minor(&self) -> u32 {
        let outer = self.gpu * MAX_GPU_INSTANCES + self.gpu_instance;
        FIRST_INSTANCE_MINOR
            + outer * (1 + MAX_COMPUTE_INSTANCES)
            + self.compute_instance.map_or(0, |id| 1 + id)
    }

    /// Path of its file below the capabilities folder: `gpu0/mig/gi1/ci0/access`.
    pub fn path(&self) -> PathBuf {
        let folder = format!("gpu{}/mig/gi{}", self.gpu, self.gpu_instance);
        let inner = self.compute_instance.map_or_else(String::new, |id| format!("ci{id}"));
        Path::new(&folder).join(inner).join("access")
    }

    /// Name in `/proc/driver/nvidia-caps/mig-minors`: `gpu0/gi1/ci0/access`.
    pub fn name(&self) -> String {
        let inner = self.compute_instance.map_or_else(String::new, |id| format!("ci{id}/"));
        format!("gpu{}/gi{}/{inner}access", self.gpu, self.gpu_instance)
    }
}

/// Content of a capability file: minor number, and mode of the device node in decimal.
pub fn capability_text(minor: u32, mode: u32) -> String {
    format!("DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n")
}

/// The capabilities of all possible instances of the machine's GPUs, sorted.
pub fn mig_capabilities(machine: &Machine) -> Vec<MigCapability> {
    let table = machine.model.mig.as_ref().and_then(|mig| MigTable::find(&mig.table));
    let Some(table) = table else { return Vec::new() };
    let mut slices = BTreeMap::<u32, u32>::new();
    for profile in &table.profiles {
        for &start in profile.starts {
            let max = slices.entry(table.instance_id(profile, start)).or_default();
            *max = profile.compute_slices.max(*max);
        }
    }
    let mut capabilities: Vec<MigCapability> = machine
        .gpus
        .iter()
        .flat_map(|gpu| {
            slices.iter().flat_map(|(&id, &slices)| of_instance(gpu.minor, id, 0..slices))
        })
        .collect();
    capabilities.sort();
    capabilities
}

/// The capabilities of a GPU instance and of its compute instances.
fn of_instance(
    gpu: u32,
    gpu_instance: u32,
    compute_instances: impl Iterator<Item = u32>,
) -> impl Iterator<Item = MigCapability> {
    let capability = move |compute_instance| MigCapability { gpu, gpu_instance, compute_instance };
    std::iter::once(capability(None)).chain(compute_instances.map(move |id| capability(Some(id))))
}

/// The capability files of a simulated node.
pub(crate) struct CapabilityFiles {
    root: PathBuf,
    wanted: BTreeMap<PathBuf, String>,
    gpus: Vec<u32>,
}

impl CapabilityFiles {
    /// The files for a state. `None` if the machine has no MIG, or if `folder`, which holds its
    /// state, is not part of a node with a simulated `/proc`.
    pub(crate) fn of(folder: &Path, machine: &Machine, state: &State) -> Option<Self> {
        machine.model.mig.as_ref()?;
        let root = node_of(folder)?.join(CAPABILITIES_DIR);
        if !root.is_dir() {
            return None;
        }
        let minors = machine.gpus.iter().map(|gpu| gpu.minor);
        let moved = state.gpus.values().filter_map(|gpu| gpu.minor);
        let wanted = (0..)
            .zip(minors.clone())
            .filter_map(|(index, minor)| Some((minor, state.gpus.get(&index)?)))
            .map(|(minor, gpu)| (gpu.minor.unwrap_or(minor), gpu))
            .flat_map(|(minor, gpu)| {
                gpu.mig.instances.iter().flat_map(move |(id, instance)| {
                    of_instance(minor, *id, instance.compute_instances.keys().copied())
                })
            })
            .map(|capability| {
                (capability.path(), capability_text(capability.minor(), ALL_READ_MODE))
            })
            .collect();
        Some(Self { root, wanted, gpus: minors.chain(moved).collect() })
    }

    /// Creates missing files.
    pub(crate) fn make(&self) -> Result<(), MachineError> {
        for (path, text) in &self.wanted {
            let path = self.root.join(path);
            if fs::read_to_string(&path).ok().as_ref() != Some(text) {
                let made = path
                    .parent()
                    .map_or(Ok(()), fs::create_dir_all)
                    .and_then(|()| fs::write(&path, text));
                made.map_err(|source| MachineError::Io { action: "write", path, source })?;
            }
        }
        Ok(())
    }

    /// Removes the files of instances that no longer exist.
    pub(crate) fn remove(&self) -> Result<(), MachineError> {
        for gpu in &self.gpus {
            let folder = format!("gpu{gpu}/mig");
            for outer in self.folders(Path::new(&folder)) {
                if self.remove_unless_wanted(&outer)? {
                    for inner in self.folders(&outer) {
                        self.remove_unless_wanted(&inner)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes an instance's folder unless it belongs to the state. Returns whether it stays.
    fn remove_unless_wanted(&self, folder: &Path) -> Result<bool, MachineError> {
        if self.wanted.contains_key(&folder.join("access")) {
            return Ok(true);
        }
        let path = self.root.join(folder);
        match fs::remove_dir_all(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                Err(MachineError::Io { action: "remove", path, source })
            }
            _ => Ok(false),
        }
    }

    /// Folders in a folder, as paths below the root.
    fn folders(&self, folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| folder.join(entry.file_name()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
