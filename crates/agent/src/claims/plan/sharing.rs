//! How the containers of a claim share its devices: time slices and MPS daemons.
//!
//! A program uses one MPS daemon. So devices whose daemons would be equal have one, and a program may use all of them. A MIG device
//! has a daemon of its own: a program can use only one such device anyway.

use std::collections::BTreeMap;

use octavo_api::config::{
    DecodedConfig, DeviceType, MpsConfig, OpaqueConfig, Sharing, TimeSlice, for_request,
};
use octavo_api::{ConfigError, Refusal};

use super::{AllocatedDevice, device_type, mismatched};
use crate::checkpoint::{HeldDevice, HeldKind, HeldMps, HeldSharing, Record};

/// Length of the part of a claim's UID in the name of its daemons: a socket's path may have 107 characters.
const UID_LENGTH: usize = 18;
const BYTES_PER_MIB: i128 = 1 << 20;

/// Begin of the names of a claim's MPS daemons.
pub(in crate::claims) fn daemon_prefix(uid: &str) -> String {
    format!("c-{}-", uid.chars().take(UID_LENGTH).collect::<String>())
}

/// Refuses a config that is for another type of device, and one that would change a GPU which other claims have, too.
pub(super) fn check(
    configs: &[DecodedConfig],
    result: &AllocatedDevice,
    kind: &HeldKind,
) -> Result<(), Refusal> {
    let device_type = device_type(kind, result);
    let config = for_request(configs, &result.request, device_type).map_err(mismatched)?;
    let sharing = config.and_then(sharing_of);
    let acts = sharing.is_some_and(|it| !matches!(it, Sharing::TimeSlicing(TimeSlice::Default)));
    let is_sliced = matches!(sharing, Some(Sharing::TimeSlicing(_)));
    let whose = match kind {
        _ if !acts => return Ok(()),
        _ if result.admin_access => "administrators' access (adminAccess)",
        // A share takes turns by leases, which change nothing for other claims.
        HeldKind::Share(share) if !share.is_unlimited() && is_sliced => return Ok(()),
        HeldKind::Share(_) => "a share of a GPU",
        HeldKind::Whole | HeldKind::Mig(_) => return Ok(()),
    };
    let request = result.request.clone();
    let what = format!("a time slice or MPS for {whose}: it would change the GPU of other claims");
    Err(Refusal::NotYetSupported { request, what })
}

/// Shortest turn of a share by the time slice of its config, in milliseconds; `None`: that of its class.
pub(super) fn quantum_ms(configs: &[DecodedConfig], request: &str) -> Result<Option<u32>, Refusal> {
    let config = for_request(configs, request, DeviceType::Share).map_err(mismatched)?;
    Ok(match config.and_then(sharing_of) {
        Some(Sharing::TimeSlicing(TimeSlice::Short)) => Some(5),
        Some(Sharing::TimeSlicing(TimeSlice::Medium)) => Some(20),
        Some(Sharing::TimeSlicing(TimeSlice::Long)) => Some(100),
        Some(Sharing::TimeSlicing(TimeSlice::Default) | Sharing::Mps(_)) | None => None,
    })
}

/// Sets the sharing of a record's devices, which are those of `results`, in this order.
pub(super) fn decide<'a>(
    record: &mut Record,
    configs: &[DecodedConfig],
    results: impl Iterator<Item = &'a AllocatedDevice>,
) -> Result<(), Refusal> {
    let prefix = daemon_prefix(&record.claim.uid);
    let mut found: Vec<(usize, &DecodedConfig, MpsConfig)> = Vec::new();
    for (place, (held, result)) in record.devices.iter_mut().zip(results).enumerate() {
        // A share's time slice is a quantum of its leases.
        if held.admin_access || matches!(held.kind, HeldKind::Share(_)) {
            continue;
        }
        let device_type = device_type(&held.kind, result);
        let config = for_request(configs, &result.request, device_type).map_err(mismatched)?;
        let entry = configs.iter().find(|it| config == Some(&it.config));
        match config.and_then(sharing_of) {
            None => {}
            Some(Sharing::TimeSlicing(slice)) => {
                held.sharing = number(*slice).map(HeldSharing::TimeSlice);
            }
            Some(Sharing::Mps(config)) => {
                found.extend(entry.map(|entry| (place, entry, config.clone())));
            }
        }
    }
    let mut daemons: Vec<(Option<u8>, bool, Option<usize>)> = Vec::new();
    for (entry, config, places) in by_config(found) {
        let invalid = |error| {
            let source_name = entry.source.object();
            Refusal::InvalidConfig { source_name, error }
        };
        let limits = limits(&config, &places, &record.devices).map_err(invalid)?;
        for (place, memory_limit_mib) in places.into_iter().zip(limits) {
            let Some(held) = record.devices.get_mut(place) else { continue };
            let own = matches!(held.kind, HeldKind::Mig(_)).then_some(place);
            let wanted = (config.default_active_thread_percentage, config.multi_user, own);
            let known = daemons.iter().position(|daemon| *daemon == wanted);
            let number = known.unwrap_or_else(|| {
                daemons.push(wanted);
                daemons.len() - 1
            });
            held.sharing = Some(HeldSharing::Mps(HeldMps {
                daemon: format!("{prefix}{number}"),
                active_thread_percentage: config.default_active_thread_percentage,
                memory_limit_mib,
                multi_user: config.multi_user,
            }));
        }
    }
    Ok(())
}

/// The devices of each config, by their places. Equal configs are one.
fn by_config(
    found: Vec<(usize, &DecodedConfig, MpsConfig)>,
) -> Vec<(&DecodedConfig, MpsConfig, Vec<usize>)> {
    let mut groups: Vec<(&DecodedConfig, MpsConfig, Vec<usize>)> = Vec::new();
    for (place, entry, config) in found {
        match groups.iter_mut().find(|(_, known, _)| *known == config) {
            Some((_, _, places)) => places.push(place),
            None => groups.push((entry, config, vec![place])),
        }
    }
    groups
}

/// The memory limit of each device of a config, in MiB. A device is named by its UUID, or by its place among these devices.
fn limits(
    config: &MpsConfig,
    places: &[usize],
    devices: &[HeldDevice],
) -> Result<Vec<Option<u64>>, ConfigError> {
    let default = config.default_pinned_device_memory_limit;
    let mut limits: BTreeMap<usize, i128> = default
        .map(|limit| (0..places.len()).map(|index| (index, limit)).collect())
        .unwrap_or_default();
    for (key, limit) in &config.default_per_device_pinned_memory_limit {
        let is_named = |held: &HeldDevice| match &held.kind {
            HeldKind::Mig(mig) => mig.made.as_ref().is_some_and(|made| made.uuid == *key),
            HeldKind::Whole | HeldKind::Share(_) => held.uuid == *key,
        };
        let by_uuid = places.iter().position(|place| devices.get(*place).is_some_and(is_named));
        let by_index = || key.parse().ok().filter(|index: &usize| *index < places.len());
        let Some(index) = by_uuid.or_else(by_index) else {
            let path = format!("sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit.{key}");
            let problem = format!(
                "names none of the {} devices that have this config; write a UUID of one, or 0 to {}",
                places.len(),
                places.len().saturating_sub(1)
            );
            return Err(ConfigError { path, problem });
        };
        limits.insert(index, *limit);
    }
    let in_mib = |bytes: &i128| u64::try_from(bytes / BYTES_PER_MIB).ok();
    Ok((0..places.len()).map(|index| limits.get(&index).and_then(in_mib)).collect())
}

fn sharing_of(config: &OpaqueConfig) -> Option<&Sharing> {
    match config {
        OpaqueConfig::Gpu(config) => config.sharing.as_ref(),
        OpaqueConfig::MigDevice(config) => config.sharing.as_ref(),
        _ => None,
    }
}

/// The number that `nvidia-smi compute-policy` has for a time slice; `None`: the default, which every GPU has.
fn number(slice: TimeSlice) -> Option<u8> {
    match slice {
        TimeSlice::Default => None,
        TimeSlice::Short => Some(1),
        TimeSlice::Medium => Some(2),
        TimeSlice::Long => Some(3),
    }
}

#[cfg(test)]
mod tests;
