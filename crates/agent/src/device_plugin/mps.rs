//! The MPS daemons of shared resources: which there are, and what a container needs to be their client. No I/O.
//!
//! As in NVIDIA's plugin a resource of whole GPUs has one daemon for all of them, since a program uses one daemon. A MIG device has one
//! of its own, since a program uses one MIG device; NVIDIA's plugin has none there.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::plugin_config::SharingStrategy;
use octavo_gpu::{Gpu, Inventory};
use octavo_kubelet_api::device_plugin::v1beta1::{ContainerAllocateResponse, Mount};
use octavo_node::NodePaths;
use octavo_node::mps::{MpsFolder, MpsSettings};

use super::resources::{GpuPart, Resource, mig_devices};
use crate::mps::MpsDaemons;

/// Begin of the names of the plugin's daemons.
const PREFIX: &str = "r-";
/// Programs that use a daemon at once, by NVIDIA's documentation of MPS: from compute capability 7.0 on, and before.
const CLIENTS: u32 = 48;
const OLD_CLIENTS: u32 = 16;

/// The daemons of resources by name. A resource with more replicas of a device than a daemon has clients is an error.
pub(super) fn daemons(
    resources: &[Resource],
    inventory: &Inventory,
) -> Result<BTreeMap<String, MpsSettings>, String> {
    let mut daemons: BTreeMap<String, MpsSettings> = BTreeMap::new();
    for resource in resources.iter().filter(|it| it.sharing == Some(SharingStrategy::Mps)) {
        let mut replicas: BTreeMap<&str, u32> = BTreeMap::new();
        for device in &resource.devices {
            *replicas.entry(&device.part.uuid).or_default() += 1;
        }
        let mut seen = BTreeSet::new();
        let parts = resource.devices.iter().map(|device| &device.part);
        for part in parts.filter(|part| seen.insert(&part.uuid)) {
            let Some(gpu) = inventory.gpus.iter().find(|gpu| gpu.uuid == part.gpu) else {
                continue;
            };
            let count = replicas.get(part.uuid.as_str()).copied().unwrap_or(1).max(1);
            let most = if gpu.compute_capability >= (7, 0) { CLIENTS } else { OLD_CLIENTS };
            if count > most {
                return Err(format!(
                    "sharing.mps: {} has {count} replicas of each device, and an MPS daemon serves {most} programs on a {}; lower `replicas`",
                    resource.name, gpu.name
                ));
            }
            let daemon = daemons.entry(daemon_name(resource, part)).or_default();
            daemon.devices.push(part.uuid.clone());
            daemon.active_thread_percentage = u8::try_from(100 / count).ok();
            let limit = memory_mib(gpu, part) / u64::from(count);
            daemon.memory_limits_mib.insert(part.uuid.clone(), limit);
        }
    }
    Ok(daemons)
}

/// Whether there are MPS daemons of the plugin, or may be.
pub(crate) fn has_daemons(paths: &NodePaths) -> bool {
    let names = MpsDaemons::of(paths).names();
    names.map_or(true, |names| names.iter().any(|name| is_of_plugin(name)))
}

/// Whether a daemon is one of the plugin's.
pub(super) fn is_of_plugin(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The name of the daemon of a part.
pub(super) fn daemon_name(resource: &Resource, part: &GpuPart) -> String {
    match part.instance {
        None => format!("{PREFIX}{}", resource.name.replace('/', "-")),
        Some(_) => format!("{PREFIX}{}", part.uuid),
    }
}

/// Makes a container with some parts of a resource a client of their daemon.
pub(super) fn add_client(
    answer: &mut ContainerAllocateResponse,
    resource: &Resource,
    parts: &[&GpuPart],
    folder: &MpsFolder,
) {
    let Some(part) = parts.first().filter(|_| resource.sharing == Some(SharingStrategy::Mps))
    else {
        return;
    };
    let daemon = folder.daemon(&daemon_name(resource, part));
    let pipe = format!("/mps/{}/pipe", resource.name);
    answer.envs.insert("CUDA_MPS_PIPE_DIRECTORY".to_owned(), pipe.clone());
    let mount = |host: std::path::PathBuf, container: &str, read_only| Mount {
        host_path: host.display().to_string(),
        container_path: container.to_owned(),
        read_only,
    };
    // Sockets and pipes can be used through it. Nothing there can be replaced.
    answer.mounts.push(mount(daemon.pipe(), &pipe, true));
    answer.mounts.push(mount(daemon.shm(), "/dev/shm", false));
}

/// Memory of a GPU or a MIG device, in MiB.
fn memory_mib(gpu: &Gpu, part: &GpuPart) -> u64 {
    let own = mig_devices(gpu).find(|(_, inner)| inner.uuid == part.uuid);
    let profile = own.and_then(|(instance, _)| {
        gpu.mig_profiles.iter().find(|profile| profile.id == instance.profile_id)
    });
    profile.map_or(gpu.memory_bytes >> 20, |profile| profile.memory_mib)
}

#[cfg(test)]
mod tests;
