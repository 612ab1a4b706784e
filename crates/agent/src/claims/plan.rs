//! From an allocated claim to its record, or a refusal. No I/O.

mod amounts;
mod sharing;

use octavo_api::config::{
    ConfigMismatch, DeviceNodesConfig, DeviceType, GpuShareConfig, SwapUnit, decode_entries,
    device_nodes_for, for_share,
};
use octavo_api::{Refusal, names};
use octavo_dra::Quantity;
use octavo_gpu::mig::{MigPlacement, MigProfile};
use octavo_node::files::is_plain_name;

pub(crate) use amounts::FULL_TIME;
pub(super) use sharing::daemon_prefix;

use super::enforcement::undecided;
use super::{AllocatedClaim, AllocatedDevice, Allocation, DeviceKind, Devices};
use crate::cdi::cdi_id;
use crate::checkpoint::{
    HeldDevice, HeldKind, HeldMig, HeldShare, HeldTerms, MadeMig, Record, RecordState,
};
use crate::gpu_mode::whole_instance;

/// The record of a claim on this node. A claim with dynamic instances is not prepared yet, and the backend of shares is
/// not chosen yet.
pub(super) fn plan(
    claim: &AllocatedClaim,
    devices: &Devices,
    node: &str,
    boot_id: &str,
) -> Result<Record, Refusal> {
    let name = claim.claim.to_string();
    let Some(allocation) = &claim.allocation else {
        return Err(Refusal::NotAllocated { claim: name });
    };
    let results: Vec<_> = ours(allocation).collect();
    if results.is_empty() {
        return Err(Refusal::NothingForDriver { claim: name, driver: names::DRIVER.to_owned() });
    }
    let configs = decode_entries(&allocation.configs, names::DRIVER, parse_bytes).map_err(
        |(source, error)| Refusal::InvalidConfig { source_name: source.object(), error },
    )?;
    let held = results.iter().map(|&result| {
        if result.pool != node {
            return Err(Refusal::OtherNode {
                pool: result.pool.clone(),
                device: result.device.clone(),
                node: node.to_owned(),
            });
        }
        let mut device = held(&claim.claim.uid, result, devices, node)?;
        sharing::check(&configs, result, &device.kind)?;
        device.extra_nodes = device_nodes_for(&configs, &result.request);
        if let HeldKind::Share(share) = device.kind {
            let config = for_share(&configs, &result.request).map_err(mismatched)?;
            let terms = share_terms(config, share, devices, &result.device);
            let terms = terms.map_err(|problem| Refusal::InvalidShare {
                request: result.request.clone(),
                device: result.device.clone(),
                problem: problem.to_owned(),
            })?;
            let quantum_ms = sharing::quantum_ms(&configs, &result.request)?;
            device.terms = Some(HeldTerms { quantum_ms, ..terms });
        }
        Ok(device)
    });
    let mut record = Record {
        claim: claim.claim.clone(),
        boot_id: boot_id.to_owned(),
        state: RecordState::Prepared,
        prepared_at: None,
        devices: held.collect::<Result<_, _>>()?,
    };
    sharing::decide(&mut record, &configs, results.iter().copied())?;
    let is_preparing = record.has_sharing() || record.dynamic_mig().next().is_some();
    let state = if is_preparing { RecordState::Preparing } else { RecordState::Prepared };
    Ok(Record { state, ..record })
}

/// The terms of a share by its config, or the error in that.
fn share_terms(
    config: GpuShareConfig,
    share: HeldShare,
    devices: &Devices,
    device: &str,
) -> Result<HeldTerms, &'static str> {
    if config.compute_limit.is_some_and(|limit| limit.0 < share.compute_milli_percent) {
        return Err("its computeLimit is less than the compute that it asks for");
    }
    let memory_limit = match devices.by_name.get(device).map(|device| &device.kind) {
        Some(DeviceKind::Gpu { memory_bytes, reserved_bytes, .. }) => {
            amounts::memory_limit(config.memory_limit, share, *memory_bytes, *reserved_bytes)?
        }
        _ => None,
    };
    if config.swap_unit == Some(SwapUnit::Pages) && memory_limit.is_none() {
        return Err("it has swapUnit: Pages, and no memoryLimit above the memory that it asks for");
    }
    Ok(HeldTerms { memory_limit, ..undecided(config) })
}

/// The type of a device for configs. A share of all of a GPU is one for them, too: the config of a share is valid there.
fn device_type(kind: &HeldKind, result: &AllocatedDevice) -> DeviceType {
    match kind {
        HeldKind::Mig(_) => DeviceType::Mig,
        HeldKind::Whole | HeldKind::Share(_) if result.share_id.is_some() => DeviceType::Share,
        HeldKind::Whole | HeldKind::Share(_) => DeviceType::Gpu,
    }
}

/// The allocation's devices of this driver.
pub(super) fn ours(allocation: &Allocation) -> impl Iterator<Item = &AllocatedDevice> {
    allocation.results.iter().filter(|result| result.driver == names::DRIVER)
}

/// The held device for an allocation result.
pub(super) fn held(
    uid: &str,
    result: &AllocatedDevice,
    devices: &Devices,
    node: &str,
) -> Result<HeldDevice, Refusal> {
    let device = devices.by_name.get(&result.device).ok_or_else(|| Refusal::UnknownDevice {
        device: result.device.clone(),
        node: node.to_owned(),
    })?;
    let invalid = |problem: &str| Refusal::InvalidShare {
        request: result.request.clone(),
        device: result.device.clone(),
        problem: problem.to_owned(),
    };
    // It becomes a part of a path.
    if result.share_id.as_deref().is_some_and(|id| !is_plain_name(id)) {
        return Err(invalid("its id is not made of letters, digits and dashes"));
    }
    let kind = match &device.kind {
        // Admin access covers the whole GPU, not a share of it.
        DeviceKind::Gpu { .. } if result.admin_access => HeldKind::Whole,
        DeviceKind::Gpu { memory_bytes, reserved_bytes, shares } => {
            match (&result.share_id, result.consumed.is_empty()) {
                (None, true) => HeldKind::Whole,
                (Some(_), false) => {
                    amounts::kind(&result.consumed, *memory_bytes, *reserved_bytes, *shares)
                        .map_err(|error| invalid(&error))?
                }
                (Some(_), true) => {
                    return Err(invalid(
                        "the allocation does not say how much of the device it is",
                    ));
                }
                (None, false) => {
                    return Err(invalid("the allocation gives a part of the device without an id"));
                }
            }
        }
        DeviceKind::MigPlacement { .. } | DeviceKind::MigInstance { .. }
            if result.share_id.is_some() =>
        {
            return Err(invalid("a MIG instance is given to one claim alone"));
        }
        DeviceKind::MigPlacement { .. } if result.admin_access => {
            return Err(Refusal::NotYetSupported {
                request: result.request.clone(),
                what: "administrators' access to a MIG instance that a claim makes (adminAccess)"
                    .to_owned(),
            });
        }
        DeviceKind::MigPlacement { profile, placement } => {
            HeldKind::Mig(mig(profile, *placement, true, None))
        }
        DeviceKind::MigInstance { profile, instance } => {
            let Some(made) = whole_instance(instance) else {
                return Err(Refusal::MigNotUsable {
                    device: result.device.clone(),
                    problem: format!(
                        "it has {} compute instances where one should fill it",
                        instance.compute_instances.len()
                    ),
                    node: node.to_owned(),
                });
            };
            HeldKind::Mig(mig(profile, instance.placement, false, Some(made)))
        }
    };
    let share = match kind {
        HeldKind::Share(_) => result.share_id.as_deref(),
        HeldKind::Whole | HeldKind::Mig(_) => None,
    };
    Ok(HeldDevice {
        requests: vec![parent_request(&result.request).to_owned()],
        pool: result.pool.clone(),
        device: result.device.clone(),
        uuid: device.uuid.clone(),
        admin_access: result.admin_access,
        cdi_ids: vec![cdi_id(uid, &result.device, share)],
        share_id: result.share_id.clone(),
        kind,
        terms: None,
        extra_nodes: DeviceNodesConfig::default(),
        sharing: None,
    })
}

/// The held MIG instance for a profile and placement.
pub(super) fn mig(
    profile: &MigProfile,
    placement: MigPlacement,
    is_dynamic: bool,
    made: Option<MadeMig>,
) -> HeldMig {
    HeldMig {
        profile: profile.name.clone(),
        profile_id: profile.id,
        start: placement.start,
        size: placement.size,
        is_dynamic,
        made,
    }
}

/// The request without its subrequest, as the kubelet expects it.
pub(crate) fn parent_request(request: &str) -> &str {
    request.split_once('/').map_or(request, |(parent, _)| parent)
}

/// The refusal of a config for another device type.
pub(crate) fn mismatched(mismatch: ConfigMismatch) -> Refusal {
    Refusal::ConfigMismatch {
        request: mismatch.request,
        kind: mismatch.kind,
        device_type: mismatch.device_type,
    }
}

/// Reads a quantity as whole bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<i128, String> {
    let quantity: Quantity = text.parse().map_err(|error| format!("{error}"))?;
    Ok(quantity.value())
}
