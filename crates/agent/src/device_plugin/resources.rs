//! From a node's GPUs and the plugin's settings to the resources that the kubelet counts. No I/O.
//!
//! Names, ids and strategies are those of NVIDIA's device plugin (k8s-device-plugin 0.20), so that the kubelet's records of
//! allocated devices stay true when Octavo takes over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use octavo_api::plugin_config::{MigStrategy, PluginConfig, SharingStrategy};
use octavo_gpu::mig::{MigComputeInstance, MigInstance};
use octavo_gpu::{Gpu, Inventory};

use crate::health::{Health, takes_pods};

/// The resource of whole GPUs.
pub(crate) const GPU_RESOURCE: &str = "nvidia.com/gpu";

/// Begin of the names of MIG devices' resources.
const MIG_PREFIX: &str = "nvidia.com/mig-";

/// Between the UUID and the number of a replica.
const REPLICA_SEPARATOR: &str = "::";

/// A resource that the kubelet counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// Its name, with `nvidia.com/`.
    pub(crate) name: String,
    /// Its devices, in order of GPU, MIG device and replica. Never empty.
    pub(crate) devices: Vec<PluginDevice>,
    /// How several containers share each of its devices; `None`: they do not.
    pub(crate) sharing: Option<SharingStrategy>,
}

/// A device of a resource. The replicas of a shared device are devices of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginDevice {
    /// Its id for the kubelet: the UUID, of a replica `<uuid>::<n>`.
    pub(crate) id: String,
    /// What it is.
    pub(crate) part: GpuPart,
    /// The NUMA node of its GPU, if known.
    pub(crate) numa_node: Option<u32>,
    /// Whether containers may get it.
    pub(crate) is_healthy: bool,
}

/// A GPU, or a MIG device of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GpuPart {
    /// Its UUID, as in `NVIDIA_VISIBLE_DEVICES`: `GPU-...` or `MIG-...`.
    pub(crate) uuid: String,
    /// Its index: of a GPU NVML's, of a MIG device `<GPU>:<MIG device>`.
    pub(crate) index: String,
    /// UUID of the GPU.
    pub(crate) gpu: String,
    /// Ids of GPU instance and compute instance; `None`: the whole GPU.
    pub(crate) instance: Option<(u32, u32)>,
    /// Whether programs can draw on it.
    pub(crate) draws: bool,
}

/// Why the devices of a node cannot be offered as the settings ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MismatchedLayout {
    /// Under `single`: some GPUs are in MIG mode, and some are not.
    MixedModes,
    /// Under `single`: a GPU in MIG mode has no MIG device.
    NoDevices {
        /// Its index.
        gpu: u32,
    },
    /// Under `single`: the MIG devices have several profiles.
    SeveralProfiles(BTreeSet<String>),
}

impl fmt::Display for MismatchedLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self {
            Self::MixedModes => "some GPUs are in MIG mode, and some are not".to_owned(),
            Self::NoDevices { gpu } => format!("GPU {gpu} is in MIG mode and has no MIG device"),
            Self::SeveralProfiles(profiles) => {
                let profiles: Vec<&str> = profiles.iter().map(String::as_str).collect();
                format!("there are MIG devices of several profiles: {}", profiles.join(", "))
            }
        };
        write!(
            f,
            "the MIG strategy is single, and {reason}; give all GPUs the same MIG devices, or set the strategy mixed"
        )
    }
}

/// The resources of a node, by name.
///
/// # Errors
///
/// A layout of MIG devices that the strategy does not permit.
pub(crate) fn resources(
    inventory: &Inventory,
    health: &Health,
    config: &PluginConfig,
) -> Result<Vec<Resource>, MismatchedLayout> {
    let mut parts: BTreeMap<String, Vec<PluginDevice>> = BTreeMap::new();
    if config.mig_strategy == MigStrategy::Single {
        check_single(inventory)?;
    }
    for gpu in &inventory.gpus {
        let device = |part: GpuPart| PluginDevice {
            id: part.uuid.clone(),
            part,
            numa_node: gpu.numa_node,
            is_healthy: takes_pods(health, &gpu.uuid),
        };
        if config.mig_strategy == MigStrategy::None || !is_mig(gpu) {
            parts.entry(GPU_RESOURCE.to_owned()).or_default().push(device(whole(gpu)));
            continue;
        }
        for (instance, inner) in mig_devices(gpu) {
            let name = match config.mig_strategy {
                MigStrategy::Single => GPU_RESOURCE.to_owned(),
                _ => mig_resource(&profile(gpu, instance)),
            };
            parts.entry(name).or_default().push(device(mig_part(gpu, instance, inner)));
        }
    }
    Ok(parts.into_iter().map(|(name, devices)| replicated(name, devices, config)).collect())
}

/// Whether a resource is one of GPUs. NVIDIA's network operator has others with the same prefix.
pub(crate) fn is_gpu_resource(name: &str) -> bool {
    let name = name.strip_suffix(".shared").unwrap_or(name);
    name == GPU_RESOURCE || name.starts_with(MIG_PREFIX)
}

/// The UUID of the GPU or MIG device that a device of a resource is, or is a replica of.
pub(crate) fn part_uuid(id: &str) -> &str {
    id.split_once(REPLICA_SEPARATOR).map_or(id, |(uuid, _)| uuid)
}

/// The name of the resource of MIG devices with a profile.
pub(crate) fn mig_resource(profile: &str) -> String {
    format!("{MIG_PREFIX}{}", profile.replace('+', "."))
}

/// A resource with the replicas that the settings ask for.
fn replicated(name: String, devices: Vec<PluginDevice>, config: &PluginConfig) -> Resource {
    let sharing = config.sharing.as_ref();
    let Some((sharing, shared)) = sharing.and_then(|it| Some((it, it.of(&name)?))) else {
        return Resource { name, devices, sharing: None };
    };
    let replicas = devices.iter().flat_map(|device| {
        (0..shared.replicas).map(|replica| PluginDevice {
            id: format!("{}{REPLICA_SEPARATOR}{replica}", device.id),
            ..device.clone()
        })
    });
    Resource {
        name: sharing.offered_name(&name),
        devices: replicas.collect(),
        sharing: Some(sharing.strategy),
    }
}

/// Whether all devices of the node can have one name.
fn check_single(inventory: &Inventory) -> Result<(), MismatchedLayout> {
    let in_mode = || inventory.gpus.iter().filter(|gpu| is_mig(gpu));
    if let Some(bare) = in_mode().find(|gpu| mig_devices(gpu).next().is_none()) {
        return Err(MismatchedLayout::NoDevices { gpu: bare.index });
    }
    let count = in_mode().count();
    if count > 0 && count < inventory.gpus.len() {
        return Err(MismatchedLayout::MixedModes);
    }
    let profiles: BTreeSet<String> = in_mode()
        .flat_map(|gpu| mig_devices(gpu).map(|(instance, _)| profile(gpu, instance)))
        .collect();
    if profiles.len() > 1 {
        return Err(MismatchedLayout::SeveralProfiles(profiles));
    }
    Ok(())
}

fn is_mig(gpu: &Gpu) -> bool {
    gpu.mig.is_some_and(|mig| mig.enabled)
}

/// The MIG devices of a GPU. An instance that people divided further is none.
pub(crate) fn mig_devices(gpu: &Gpu) -> impl Iterator<Item = (&MigInstance, &MigComputeInstance)> {
    gpu.mig_instances.iter().filter_map(|instance| match instance.compute_instances.as_slice() {
        [whole] => Some((instance, whole)),
        _ => None,
    })
}

/// The name of an instance's profile.
fn profile(gpu: &Gpu, instance: &MigInstance) -> String {
    let known = gpu.mig_profiles.iter().find(|profile| profile.id == instance.profile_id);
    known.map_or_else(|| format!("profile-{}", instance.profile_id), |found| found.name.clone())
}

fn whole(gpu: &Gpu) -> GpuPart {
    GpuPart {
        uuid: gpu.uuid.clone(),
        index: gpu.index.to_string(),
        gpu: gpu.uuid.clone(),
        instance: None,
        draws: true,
    }
}

fn mig_part(gpu: &Gpu, instance: &MigInstance, inner: &MigComputeInstance) -> GpuPart {
    GpuPart {
        uuid: inner.uuid.clone(),
        index: format!("{}:{}", gpu.index, inner.index),
        gpu: gpu.uuid.clone(),
        instance: Some((instance.gpu_instance, inner.id)),
        draws: profile(gpu, instance).contains("+gfx"),
    }
}

#[cfg(test)]
mod tests;
