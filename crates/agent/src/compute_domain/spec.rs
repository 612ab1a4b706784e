//! CDI specs of channels and daemons.

use std::path::Path;

use octavo_api::Refusal;
use octavo_api::names::{
    ENV_CLIQUE_ID, ENV_COMPUTE_DOMAIN_NAME, ENV_COMPUTE_DOMAIN_NAMESPACE, ENV_COMPUTE_DOMAIN_UUID,
};
use octavo_cdi::{
    ALL_MODE, ContainerEdits, DeviceNode, DriverFiles, Majors, MissingModule, Spec, SpecDevice,
    VERSION,
};
use octavo_gpu::{CharDevices, Inventory};
use octavo_node::{ClaimRef, NodePaths};

use super::record::{DomainDevice, DomainRecord, HeldDomainDevice};
use crate::cdi::{common_edits, device_name};
use crate::node::DraDriver;

/// Count of a claim on all channels. How many there are, the driver's parameter says when the spec is written.
pub(super) const ALL_CHANNELS: u32 = u32::MAX;

/// Channels of a driver whose parameters do not say how many (driver 580, `NVreg_ImexChannelCount`).
const DEFAULT_CHANNEL_COUNT: u32 = 2048;

/// Name of the channels in `/proc/devices`.
pub(crate) const CHANNELS: &str = "nvidia-caps-imex-channels";

/// What a spec is made of, besides the record.
pub(super) struct Facts<'a> {
    pub(super) paths: &'a NodePaths,
    pub(super) node: &'a str,
    /// The GPUs; `None` while they are not read.
    pub(super) inventory: Option<&'a Inventory>,
    /// The driver's files; `None` while the driver's version is not known.
    pub(super) files: Option<&'a DriverFiles>,
}

/// Qualified CDI name of a claim's device.
pub(super) fn cdi_id(uid: &str, device: &str, share_id: Option<&str>) -> String {
    format!("{}={}", DraDriver::COMPUTE_DOMAIN.cdi_kind(), device_name(uid, device, share_id))
}

/// The spec of a claim; `None` if none of its devices has a CDI name. Blocks on files.
pub(super) fn spec(facts: &Facts<'_>, record: &DomainRecord) -> Result<Option<Spec>, Refusal> {
    let with_names = record.devices.iter().filter(|held| !held.cdi_ids.is_empty());
    let devices = with_names.map(|held| {
        let name = device_name(&record.claim.uid, &held.device, held.share_id.as_deref());
        Ok(SpecDevice { name, container_edits: edits(facts, &record.claim, held)? })
    });
    let devices = devices.collect::<Result<Vec<_>, Refusal>>()?;
    Ok((!devices.is_empty()).then(|| Spec {
        cdi_version: VERSION.to_owned(),
        kind: DraDriver::COMPUTE_DOMAIN.cdi_kind(),
        devices,
        container_edits: ContainerEdits::default(),
    }))
}

fn edits(
    facts: &Facts<'_>,
    claim: &ClaimRef,
    held: &HeldDomainDevice,
) -> Result<ContainerEdits, Refusal> {
    let char_devices = CharDevices::read(&facts.paths.proc_root).map_err(|error| {
        let path = facts.paths.proc_root.join("devices").display().to_string();
        Refusal::Storage { action: "read", path, error: error.to_string() }
    })?;
    let missing = |MissingModule { device, module }| Refusal::KernelModuleMissing {
        claim: claim.to_string(),
        module,
        device,
        node: facts.node.to_owned(),
    };
    match &held.kind {
        DomainDevice::Channels { first, count } => {
            let major = char_devices.major(CHANNELS);
            let major = major
                .ok_or(MissingModule { device: CHANNELS, module: "nvidia" })
                .map_err(missing)?;
            let present = channel_count(&facts.paths.proc_root);
            if *first >= present {
                let problem = format!(
                    "the ComputeDomain has channel {first}, and the driver has {present} channels: load the kernel module \
                     nvidia with NVreg_ImexChannelCount={DEFAULT_CHANNEL_COUNT}"
                );
                let (claim, node) = (claim.to_string(), facts.node.to_owned());
                return Err(Refusal::FabricNotReady { claim, problem, node });
            }
            let end = first.saturating_add(*count).min(present);
            let node = |channel| {
                let path = format!("/dev/{CHANNELS}/channel{channel}");
                DeviceNode::new(path, major, channel, ALL_MODE)
            };
            let device_nodes = (*first..end).map(node).collect();
            Ok(ContainerEdits { device_nodes, ..ContainerEdits::default() })
        }
        DomainDevice::Daemon { clique, namespace, name } => {
            let env = [
                (ENV_CLIQUE_ID, clique),
                (ENV_COMPUTE_DOMAIN_UUID, &held.domain),
                (ENV_COMPUTE_DOMAIN_NAME, name),
                (ENV_COMPUTE_DOMAIN_NAMESPACE, namespace),
            ];
            let env = env.map(|(name, value)| format!("{name}={value}"));
            if clique.is_empty() {
                return Ok(ContainerEdits { env: env.into(), ..ContainerEdits::default() });
            }
            let (Some(inventory), Some(files)) = (facts.inventory, facts.files) else {
                let (claim, node) = (claim.to_string(), facts.node.to_owned());
                return Err(Refusal::NotReady { claim, node });
            };
            let majors = Majors::of(&char_devices).map_err(missing)?;
            let capability = octavo_gpu::mig::imex_management(&facts.paths.proc_root);
            let capability = capability.map_err(|error| Refusal::FabricNotReady {
                claim: claim.to_string(),
                problem: error.to_string(),
                node: facts.node.to_owned(),
            })?;
            let mut edits = common_edits(facts.paths, files, majors);
            edits.env.extend(env);
            edits.device_nodes.extend(inventory.gpus.iter().map(|gpu| majors.gpu_node(gpu.minor)));
            let node = majors.cap_node(capability.minor, capability.mode).map_err(missing)?;
            edits.device_nodes.push(node);
            Ok(edits)
        }
    }
}

/// The number of channels of the node's driver.
fn channel_count(proc_root: &Path) -> u32 {
    let params = std::fs::read_to_string(proc_root.join("driver/nvidia/params"));
    let params = params.unwrap_or_default();
    let mut lines = params.lines().filter_map(|line| line.split_once(':'));
    let count = lines.find(|(name, _)| name.trim() == "ImexChannelCount");
    count.and_then(|(_, count)| count.trim().parse().ok()).unwrap_or(DEFAULT_CHANNEL_COUNT)
}
