//! Compares a GPU's MIG mode and instances with those read earlier, in few calls.

use std::collections::BTreeSet;

use super::instances::{existing, parts, still_there};
use crate::mig::MigPlacement;
use crate::nvml::device::Device;
use crate::nvml::read::supported;
use crate::{DriverError, Gpu, Mig};

/// Whether a GPU's MIG mode or instances differ from those in `known`.
///
/// It compares the placements of GPU instances and the UUIDs of compute instances. The IDs of compute instances are not
/// read, since that needs a call for each of their profiles.
pub(in crate::nvml) fn has_changed(device: Device<'_>, known: &Gpu) -> Result<bool, DriverError> {
    let mode = supported(device.mig_mode())?.map(|(enabled, pending)| Mig { enabled, pending });
    if mode != known.mig {
        return Ok(true);
    }
    if !mode.is_some_and(|mode| mode.enabled) {
        return Ok(false);
    }
    let mut found = BTreeSet::new();
    for profile in &known.mig_profiles {
        for instance in supported(existing(device, profile.id))?.unwrap_or_default() {
            // Gone since it was listed.
            let Some(info) = still_there(instance.info())? else { return Ok(true) };
            found.insert((info.id, info.profileId, super::instances::placement(info.placement)));
        }
    }
    let expected: BTreeSet<(u32, u32, MigPlacement)> = known
        .mig_instances
        .iter()
        .map(|instance| (instance.gpu_instance, instance.profile_id, instance.placement))
        .collect();
    if found != expected {
        return Ok(true);
    }
    if found.is_empty() {
        return Ok(false);
    }
    let mut uuids = BTreeSet::new();
    for (_, part) in parts(device)? {
        let Some(uuid) = still_there(part.uuid())? else { return Ok(true) };
        uuids.insert(uuid);
    }
    let instances = known.mig_instances.iter();
    let expected = instances.flat_map(|instance| &instance.compute_instances);
    Ok(uuids != expected.map(|part| part.uuid.clone()).collect())
}
