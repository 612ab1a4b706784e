//! Single driver operations. The caller holds the GPU's lock. All block.

use octavo_api::Refusal;
use octavo_gpu::mig::{MigInstance, MigPlacement, MigProfile};
use octavo_gpu::{Driver, DriverError};
use octavo_node::failpoint;

use crate::checkpoint::{HeldDevice, HeldMig, MadeMig};
use crate::claims::plan::whole_instance;

/// Result of destroying an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::claims) enum DestroyOutcome {
    /// It is destroyed.
    Destroyed,
    /// It was not there.
    Absent,
    /// Its GPU is not there.
    Lost,
}

/// Creates an instance. `ask` is called before the driver is asked, and may still refuse.
///
/// An existing instance may be the claim's `own`, created by a process that died or left half-destroyed.
pub(super) fn make(
    driver: &dyn Driver,
    held: &HeldDevice,
    profile: &MigProfile,
    placement: MigPlacement,
    own: Option<&HeldMig>,
    ask: &mut dyn FnMut() -> Result<(), Refusal>,
) -> Result<MadeMig, Refusal> {
    let not_created = |error: &DriverError| match error.cause() {
        DriverError::NotSupported { .. } => Refusal::MigProfileMissing {
            device: held.device.clone(),
            profile: profile.name.clone(),
            start: placement.start,
        },
        _ => Refusal::MigNotCreated { device: held.device.clone(), error: error.to_string() },
    };
    let mut instances = driver.mig_instances(&held.uuid).map_err(|error| {
        Refusal::MigNotCreated { device: held.device.clone(), error: error.to_string() }
    })?;
    let is_own = |found: &MigInstance| own.is_some_and(|own| is_recorded(found, own));
    if let Some(own) = instances.iter().position(is_own) {
        ask()?;
        if let Some(made) = whole_instance(&instances[own]) {
            return Ok(made);
        }
        // Its compute instance is missing.
        driver
            .destroy_mig(&held.uuid, instances[own].gpu_instance)
            .map_err(|error| not_created(&error))?;
        instances.remove(own);
    }
    if let Some(found) = instances.iter().find(|found| found.placement.overlaps(placement)) {
        return Err(Refusal::MigPlacementTaken {
            device: held.device.clone(),
            gpu_instance: found.gpu_instance,
            profile_id: found.profile_id,
            start: found.placement.start,
            end: (found.placement.start + found.placement.size).saturating_sub(1),
        });
    }
    if instances.is_empty() {
        set_mode(driver, held, true)?;
        failpoint::hit("mig.mode-on");
    }
    ask()?;
    let instance =
        driver.create_mig(&held.uuid, profile, placement).map_err(|error| not_created(&error))?;
    failpoint::hit("mig.created");
    whole_instance(&instance).ok_or_else(|| Refusal::MigNotCreated {
        device: held.device.clone(),
        error: format!(
            "the driver made {} compute instances where one was to fill it",
            instance.compute_instances.len()
        ),
    })
}

/// Destroys an instance. A missing or replaced instance counts as destroyed.
pub(super) fn destroy(
    driver: &dyn Driver,
    held: &HeldDevice,
    mig: &HeldMig,
) -> Result<DestroyOutcome, Refusal> {
    let refused = |error: &DriverError| Refusal::MigNotDestroyed {
        device: held.device.clone(),
        error: error.to_string(),
    };
    let instances = match driver.mig_instances(&held.uuid) {
        // A lost GPU returns by a reset, which removes all instances.
        Err(DriverError::NotFound { .. } | DriverError::GpuLost { .. }) => {
            return Ok(DestroyOutcome::Lost);
        }
        instances => instances.map_err(|error| refused(&error))?,
    };
    let Some(found) = instances.iter().find(|found| is_recorded(found, mig)) else {
        return Ok(DestroyOutcome::Absent);
    };
    match driver.destroy_mig(&held.uuid, found.gpu_instance) {
        Ok(()) => Ok(DestroyOutcome::Destroyed),
        Err(error) => match error.cause() {
            DriverError::NotFound { .. } => Ok(DestroyOutcome::Absent),
            DriverError::GpuLost { .. } => Ok(DestroyOutcome::Lost),
            _ => Err(refused(&error)),
        },
    }
}

/// Whether an instance that was made is still there.
pub(in crate::claims) fn is_there(
    driver: &dyn Driver,
    held: &HeldDevice,
    mig: &HeldMig,
) -> Result<bool, DriverError> {
    let instances = driver.mig_instances(&held.uuid)?;
    Ok(instances.iter().any(|found| is_made(found, mig)))
}

/// Whether an instance is the recorded one and usable by containers.
pub(in crate::claims) fn is_made(found: &MigInstance, mig: &HeldMig) -> bool {
    found.placement == mig.placement() && mig.made.is_some() && whole_instance(found) == mig.made
}

/// Turns MIG mode off on a GPU without instances.
pub(super) fn turn_mode_off(driver: &dyn Driver, held: &HeldDevice) -> Result<(), Refusal> {
    let device = held.device.clone();
    match driver.mig_instances(&held.uuid) {
        Ok(instances) if instances.is_empty() => set_mode(driver, held, false),
        Ok(instances) => Err(Refusal::MigInstancesInTheWay { device, instances: instances.len() }),
        Err(error) => {
            Err(Refusal::MigModeNotChanged { device, mode: "off", error: error.to_string() })
        }
    }
}

/// Turns MIG mode on or off. A change that would need a reset is reverted, so that no later reset applies it.
fn set_mode(driver: &dyn Driver, held: &HeldDevice, is_on: bool) -> Result<(), Refusal> {
    let (device, mode) = (held.device.clone(), if is_on { "on" } else { "off" });
    match driver.set_mig_mode(&held.uuid, is_on) {
        Ok(now) if now.enabled == is_on => Ok(()),
        Ok(now) => {
            if now.pending == is_on
                && let Err(error) = driver.set_mig_mode(&held.uuid, !is_on)
            {
                tracing::warn!(gpu = %held.uuid, %error, "a change of MIG mode waits for a reset");
            }
            Err(Refusal::MigModeNeedsReset { device, mode, switch: u8::from(is_on) })
        }
        Err(error) => Err(Refusal::MigModeNotChanged { device, mode, error: error.to_string() }),
    }
}

/// Whether an instance is the recorded one. Ids are reused, so the UUID decides once it is known. Before that the
/// placement decides, which no other claim can have.
fn is_recorded(found: &MigInstance, mig: &HeldMig) -> bool {
    let is_made = |made: &MadeMig| match found.compute_instances.as_slice() {
        [] => found.gpu_instance == made.gpu_instance,
        computes => computes.iter().any(|compute| compute.uuid == made.uuid),
    };
    found.placement == mig.placement()
        && match &mig.made {
            Some(made) => is_made(made),
            None => found.profile_id == mig.profile_id,
        }
}
