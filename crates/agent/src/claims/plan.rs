//! From an allocated claim to the record of what it gets, or a refusal: no I/O.

use octavo_api::config::{
    DecodedConfig, DeviceType, OpaqueConfig, Sharing, TimeSlice, decode_entries, for_request,
};
use octavo_api::{Refusal, names};
use octavo_dra::Quantity;

use super::{AllocatedClaim, AllocatedDevice, Allocation, Devices};
use crate::cdi::cdi_id;
use crate::checkpoint::{HeldDevice, Record, RecordState};

/// What the claim gets on this node.
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
    let ours: Vec<_> = ours(allocation).collect();
    if ours.is_empty() {
        return Err(Refusal::NothingForDriver { claim: name, driver: names::DRIVER.to_owned() });
    }
    let configs = decode_entries(&allocation.configs, names::DRIVER, parse_bytes).map_err(
        |(source, error)| Refusal::InvalidConfig { source_name: source.object(), error },
    )?;
    let held = ours.into_iter().map(|result| {
        if result.pool != node {
            return Err(Refusal::OtherNode {
                pool: result.pool.clone(),
                device: result.device.clone(),
                node: node.to_owned(),
            });
        }
        let device = devices.by_name.get(&result.device).ok_or_else(|| Refusal::UnknownDevice {
            device: result.device.clone(),
            node: node.to_owned(),
        })?;
        check_config(&configs, result)?;
        Ok(HeldDevice {
            requests: vec![parent_request(&result.request).to_owned()],
            pool: result.pool.clone(),
            device: result.device.clone(),
            uuid: device.uuid.clone(),
            admin_access: result.admin_access,
            cdi_ids: vec![cdi_id(&claim.claim.uid, &result.device)],
        })
    });
    Ok(Record {
        claim: claim.claim.clone(),
        boot_id: boot_id.to_owned(),
        state: RecordState::Prepared,
        devices: held.collect::<Result<_, _>>()?,
    })
}

/// The allocation's devices of this driver.
pub(super) fn ours(allocation: &Allocation) -> impl Iterator<Item = &AllocatedDevice> {
    allocation.results.iter().filter(|result| result.driver == names::DRIVER)
}

/// A request without its subrequest: the kubelet goes by it.
fn parent_request(request: &str) -> &str {
    request.split_once('/').map_or(request, |(parent, _)| parent)
}

/// Refuses what cannot be acted on: a wish that is silently dropped is worse than a "no".
fn check_config(configs: &[DecodedConfig], result: &AllocatedDevice) -> Result<(), Refusal> {
    let unsupported = |what: &str| {
        Err(Refusal::NotYetSupported { request: result.request.clone(), what: what.to_owned() })
    };
    if result.share_id.is_some() {
        return unsupported("a share of a GPU");
    }
    let config = for_request(configs, &result.request, DeviceType::Gpu).map_err(|mismatch| {
        Refusal::ConfigMismatch {
            request: mismatch.request,
            kind: mismatch.kind,
            device_type: mismatch.device_type,
        }
    })?;
    let Some(OpaqueConfig::Gpu(config)) = config else { return Ok(()) };
    match &config.sharing {
        None | Some(Sharing::TimeSlicing(TimeSlice::Default)) => Ok(()),
        Some(Sharing::TimeSlicing(_)) => {
            unsupported("a time slice other than Default (sharing.timeSlicingConfig.interval)")
        }
        Some(Sharing::Mps(_)) => unsupported("MPS (sharing.strategy)"),
    }
}

/// Reads a quantity as whole bytes.
fn parse_bytes(text: &str) -> Result<i128, String> {
    let quantity: Quantity = text.parse().map_err(|error| format!("{error}"))?;
    Ok(quantity.value())
}
