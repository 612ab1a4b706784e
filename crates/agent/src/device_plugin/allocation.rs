//! What a container needs to use the devices that the kubelet gave it. No I/O.
//!
//! The forms are those of NVIDIA's device plugin (k8s-device-plugin 0.20), one or several by its setting:
//!
//! ```text
//! cdi-cri           CDI names in the answer
//! cdi-annotations   CDI names in annotations
//! envvar            NVIDIA_VISIBLE_DEVICES, for NVIDIA's container toolkit
//! volume-mounts     mounts whose paths name the devices, for NVIDIA's container toolkit
//! ```

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::plugin_config::{
    DeviceIds, DeviceList, ExtraNodes, ImexChannel, PluginConfig, SharingStrategy,
};
use octavo_kubelet_api::device_plugin::v1beta1::{
    CdiDevice, ContainerAllocateResponse, DeviceSpec, Mount,
};
use octavo_node::mps::MpsFolder;

use super::mps;
use super::resources::{GpuPart, PluginDevice, Resource};
use crate::compute_domain::CHANNELS;

/// Vendor of the CDI devices.
pub(crate) const CDI_VENDOR: &str = "k8s.device-plugin.nvidia.com";
/// Class of GPUs and MIG devices.
pub(crate) const CDI_CLASS_GPU: &str = "gpu";
/// Class of IMEX channels.
pub(crate) const CDI_CLASS_IMEX: &str = "imex-channel";
/// The CDI device of all device nodes of a class, such as `gds`.
pub(crate) const CDI_ALL: &str = "all";

/// Name of the plugin in annotations with CDI names.
const ANNOTATION_PLUGIN: &str = "nvidia-device-plugin_";
/// The prefix of annotations that CDI defines.
const CDI_PREFIX: &str = "cdi.k8s.io/";

const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
const IMEX_CHANNELS: &str = "NVIDIA_IMEX_CHANNELS";
/// What NVIDIA's container toolkit looks for in mounts.
const VOLUME_MOUNTS: &str = "/var/run/nvidia-container-devices";
/// The source of such mounts. Their paths alone matter.
const NO_FILE: &str = "/dev/null";
/// The only channel that is given.
const CHANNEL: &str = "0";

/// Why a container does not get its devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AllocationError {
    /// The resource has no such device now.
    #[error("{resource} has no device {id}; the kubelet's list is about to be updated")]
    Unknown {
        /// The resource.
        resource: String,
        /// The device.
        id: String,
    },
    /// The setting `failRequestsGreaterThanOne` refuses it.
    #[error(
        "{count} of {resource} are requested, and it is shared: each is a part of a GPU, and several may be of one; \
         request 1, or set failRequestsGreaterThanOne to false"
    )]
    SeveralOfShared {
        /// The resource.
        resource: String,
        /// Devices that are requested.
        count: usize,
    },
    /// A program uses one MPS daemon.
    #[error(
        "{count} MIG devices of {resource} are given to one container, and each has an MPS daemon of its own, of which a program uses \
         one; request 1"
    )]
    SeveralDaemons {
        /// The resource.
        resource: String,
        /// MIG devices.
        count: usize,
    },
}

/// What is known of the node besides its GPUs.
pub(crate) struct NodeFacts<'a> {
    /// Device nodes that every container with a GPU needs, as far as the host has them.
    pub(crate) common_nodes: &'a [String],
    /// Device nodes of a part, in the container and on the host.
    pub(crate) nodes: &'a dyn Fn(&GpuPart) -> Vec<String>,
    /// The folder in which the host has the device nodes.
    pub(crate) dev_root: &'a str,
    /// Whether IMEX channel 0 exists.
    pub(crate) has_channel: bool,
    /// CDI classes of other device nodes that the settings ask for and the node has.
    pub(crate) extra_classes: &'a [&'static str],
    /// Files of MPS daemons.
    pub(crate) mps: &'a MpsFolder,
    /// A name that no earlier answer had.
    pub(crate) answer_id: String,
}

/// The answer for a container that gets devices of a resource.
///
/// # Errors
///
/// An unknown device, or several of a shared resource where the settings refuse that.
pub(crate) fn answer(
    resource: &Resource,
    ids: &[String],
    config: &PluginConfig,
    node: &NodeFacts<'_>,
) -> Result<ContainerAllocateResponse, AllocationError> {
    let devices = devices(resource, ids)?;
    let fails = config.sharing.as_ref().is_some_and(|it| it.fail_requests_greater_than_one);
    if resource.sharing.is_some() && fails && ids.len() > 1 {
        let (resource, count) = (resource.name.clone(), ids.len());
        return Err(AllocationError::SeveralOfShared { resource, count });
    }
    let mut seen = BTreeSet::new();
    let parts: Vec<&GpuPart> = devices
        .iter()
        .map(|device| &device.part)
        .filter(|part| seen.insert(part.uuid.as_str()))
        .collect();
    let daemons = parts.iter().filter(|part| part.instance.is_some()).count();
    if resource.sharing == Some(SharingStrategy::Mps) && daemons > 1 {
        let resource = resource.name.clone();
        return Err(AllocationError::SeveralDaemons { resource, count: daemons });
    }
    let names: Vec<&str> = parts.iter().map(|part| name(part, config)).collect();
    let has_channel = config.imex != ImexChannel::None && node.has_channel;
    let mut answer = ContainerAllocateResponse::default();
    by_cdi(&mut answer, &names, has_channel, config, node);
    mps::add_client(&mut answer, resource, &parts, node.mps);
    for nodes in &config.extra_nodes {
        let variable = match nodes {
            ExtraNodes::Gdrcopy => "NVIDIA_GDRCOPY",
            ExtraNodes::Gds => "NVIDIA_GDS",
            ExtraNodes::Mofed => "NVIDIA_MOFED",
        };
        answer.envs.insert(variable.to_owned(), "enabled".to_owned());
    }
    if config.device_lists.contains(&DeviceList::Envvar) {
        answer.envs.insert(VISIBLE_DEVICES.to_owned(), names.join(","));
        if has_channel {
            answer.envs.insert(IMEX_CHANNELS.to_owned(), CHANNEL.to_owned());
        }
    }
    if config.device_lists.contains(&DeviceList::VolumeMounts) {
        answer.envs.insert(VISIBLE_DEVICES.to_owned(), VOLUME_MOUNTS.to_owned());
        answer.mounts.extend(names.iter().map(|name| mount(name)));
        if has_channel {
            answer.mounts.push(mount(&format!("imex/{CHANNEL}")));
        }
    }
    if config.pass_device_specs && !is_all_cdi(config) {
        answer.devices = device_specs(&parts, has_channel, node);
    }
    Ok(answer)
}

/// The devices with these ids.
fn devices<'a>(
    resource: &'a Resource,
    ids: &[String],
) -> Result<Vec<&'a PluginDevice>, AllocationError> {
    let by_id: BTreeMap<&str, &PluginDevice> =
        resource.devices.iter().map(|device| (device.id.as_str(), device)).collect();
    let found = ids.iter().map(|id| {
        by_id.get(id.as_str()).copied().ok_or_else(|| AllocationError::Unknown {
            resource: resource.name.clone(),
            id: id.clone(),
        })
    });
    found.collect()
}

/// The name of a part in variables, mounts and CDI.
pub(crate) fn name<'a>(part: &'a GpuPart, config: &PluginConfig) -> &'a str {
    match config.device_ids {
        DeviceIds::Uuid => &part.uuid,
        DeviceIds::Index => &part.index,
    }
}

/// Whether containers get their devices by CDI alone.
fn is_all_cdi(config: &PluginConfig) -> bool {
    let is_cdi =
        |list: &DeviceList| matches!(list, DeviceList::CdiCri | DeviceList::CdiAnnotations);
    config.device_lists.iter().all(is_cdi)
}

fn by_cdi(
    answer: &mut ContainerAllocateResponse,
    names: &[&str],
    has_channel: bool,
    config: &PluginConfig,
    node: &NodeFacts<'_>,
) {
    let qualified = |class: &str, name: &str| format!("{CDI_VENDOR}/{class}={name}");
    let gpus = names.iter().map(|name| qualified(CDI_CLASS_GPU, name));
    let channel = has_channel.then(|| qualified(CDI_CLASS_IMEX, CHANNEL));
    let extra = node.extra_classes.iter().map(|class| qualified(class, CDI_ALL));
    let all: Vec<String> = gpus.chain(channel).chain(extra).collect();
    if config.device_lists.contains(&DeviceList::CdiAnnotations) {
        let prefix = match config.cdi_annotation_prefix.as_str() {
            "" => CDI_PREFIX,
            prefix => prefix,
        };
        let key = format!("{prefix}{ANNOTATION_PLUGIN}{}", node.answer_id);
        answer.annotations.insert(key, all.join(","));
    }
    if config.device_lists.contains(&DeviceList::CdiCri) {
        answer.cdi_devices = all.into_iter().map(|name| CdiDevice { name }).collect();
    }
}

fn mount(name: &str) -> Mount {
    Mount {
        host_path: NO_FILE.to_owned(),
        container_path: format!("{VOLUME_MOUNTS}/{name}"),
        read_only: false,
    }
}

/// The device nodes of parts, and those that all need.
fn device_specs(parts: &[&GpuPart], has_channel: bool, node: &NodeFacts<'_>) -> Vec<DeviceSpec> {
    let mut seen = BTreeSet::new();
    let common = node.common_nodes.iter().cloned();
    let channel = has_channel.then(|| format!("/dev/{CHANNELS}/channel{CHANNEL}"));
    let paths = common.chain(parts.iter().flat_map(|part| (node.nodes)(part))).chain(channel);
    let fresh = paths.filter(|path| seen.insert(path.clone()));
    let specs = fresh.map(|path| DeviceSpec {
        host_path: format!("{}{path}", node.dev_root.trim_end_matches('/')),
        container_path: path,
        permissions: "rw".to_owned(),
    });
    specs.collect()
}

#[cfg(test)]
mod tests;
