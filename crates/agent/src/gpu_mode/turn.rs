//! One GPU's turn: nothing else changes its MIG mode or its instances meanwhile. All calls of the driver block.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use octavo_api::Refusal;
use octavo_gpu::mig::{MigInstance, MigProfile};
use octavo_gpu::{Driver, DriverError, Gpu};
use octavo_node::failpoint;

use super::instances::{is_made, is_recorded, whole_instance};
use super::minors::MovedMinors;
use crate::checkpoint::{HeldDevice, HeldMig, MadeMig};
use crate::keyed_mutex::KeyedGuard;
use crate::metrics::{Metrics, MigOperation};
use crate::mig_layout::Change;

/// A GPU's turn. It ends when this is dropped.
pub(crate) struct GpuTurn {
    pub(super) _lock: KeyedGuard,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) node: String,
    /// The driver's root, as this process sees it.
    pub(super) driver_root: PathBuf,
    /// Whether the GPU's MIG mode changes only with a reset.
    pub(super) is_fixed: bool,
    pub(super) minors: Arc<MovedMinors>,
    pub(super) metrics: Option<Arc<Metrics>>,
}

/// Why a GPU did not get its layout.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The GPU is no longer as it was.
    #[error("its instances have changed meanwhile")]
    Stale,
    /// The driver is closed or released.
    #[error("the driver is closed")]
    Closed,
    /// The driver refuses.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The MIG mode changes only with a reset.
    #[error("its MIG mode changes only with a reset")]
    NeedsReset {
        /// The mode that it is to have.
        is_on: bool,
    },
}

/// Result of destroying an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DestroyOutcome {
    /// It is destroyed.
    Destroyed,
    /// It was not there.
    Absent,
    /// Its GPU is not there.
    Lost,
}

impl GpuTurn {
    /// Creates the instance of a claim's device, and turns MIG mode on for the first of the GPU. `ask` is called before
    /// the driver is asked, and may still refuse.
    ///
    /// An existing instance may be the claim's `own`, created by a process that died or left half-destroyed.
    pub(crate) fn make(
        &self,
        held: &HeldDevice,
        mig: &HeldMig,
        profile: &MigProfile,
        own: Option<&HeldMig>,
        ask: &mut dyn FnMut() -> Result<(), Refusal>,
    ) -> Result<MadeMig, Refusal> {
        self.counted(MigOperation::Create, || self.make_uncounted(held, mig, profile, own, ask))
    }

    fn make_uncounted(
        &self,
        held: &HeldDevice,
        mig: &HeldMig,
        profile: &MigProfile,
        own: Option<&HeldMig>,
        ask: &mut dyn FnMut() -> Result<(), Refusal>,
    ) -> Result<MadeMig, Refusal> {
        let placement = mig.placement();
        let not_created = |error: &DriverError| match error.cause() {
            DriverError::NotSupported { .. } => Refusal::MigProfileMissing {
                device: held.device.clone(),
                profile: profile.name.clone(),
                start: placement.start,
            },
            _ => Refusal::MigNotCreated { device: held.device.clone(), error: error.to_string() },
        };
        let mut instances = self.driver.mig_instances(&held.uuid).map_err(|error| {
            Refusal::MigNotCreated { device: held.device.clone(), error: error.to_string() }
        })?;
        let is_own = |found: &MigInstance| own.is_some_and(|own| is_recorded(found, own));
        if let Some(own) = instances.iter().position(is_own) {
            ask()?;
            if let Some(made) = whole_instance(&instances[own]) {
                return Ok(made);
            }
            // Its compute instance is missing.
            self.driver
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
            self.set_mode(held, true)?;
            failpoint::hit("mig.mode-on");
        }
        ask()?;
        let instance = self
            .driver
            .create_mig(&held.uuid, profile, placement)
            .map_err(|error| not_created(&error))?;
        failpoint::hit("mig.created");
        whole_instance(&instance).ok_or_else(|| Refusal::MigNotCreated {
            device: held.device.clone(),
            error: format!(
                "the driver made {} compute instances where one was to fill it",
                instance.compute_instances.len()
            ),
        })
    }

    /// Destroys the instance of a claim's device. A missing or replaced instance counts as destroyed. MIG mode is turned
    /// off if `is_last` says that no other claim has or gets an instance of the GPU.
    pub(crate) fn destroy(
        &self,
        held: &HeldDevice,
        mig: &HeldMig,
        is_last: impl FnOnce() -> bool,
    ) -> Result<(), Refusal> {
        let outcome = self.counted(MigOperation::Destroy, || self.destroy_uncounted(held, mig))?;
        failpoint::hit("mig.destroyed");
        if outcome != DestroyOutcome::Lost && is_last() {
            self.leave_mig_if_possible(held);
            failpoint::hit("mig.mode-off");
        }
        Ok(())
    }

    fn destroy_uncounted(
        &self,
        held: &HeldDevice,
        mig: &HeldMig,
    ) -> Result<DestroyOutcome, Refusal> {
        let refused = |error: &DriverError| Refusal::MigNotDestroyed {
            device: held.device.clone(),
            error: error.to_string(),
        };
        let instances = match self.driver.mig_instances(&held.uuid) {
            // A lost GPU returns by a reset, which removes all instances.
            Err(DriverError::NotFound { .. } | DriverError::GpuLost { .. }) => {
                return Ok(DestroyOutcome::Lost);
            }
            instances => instances.map_err(|error| refused(&error))?,
        };
        let Some(found) = instances.iter().find(|found| is_recorded(found, mig)) else {
            return Ok(DestroyOutcome::Absent);
        };
        match self.driver.destroy_mig(&held.uuid, found.gpu_instance) {
            Ok(()) => Ok(DestroyOutcome::Destroyed),
            Err(error) => match error.cause() {
                DriverError::NotFound { .. } => Ok(DestroyOutcome::Absent),
                DriverError::GpuLost { .. } => Ok(DestroyOutcome::Lost),
                _ => Err(refused(&error)),
            },
        }
    }

    /// Destroys the instances of a GPU that are unknown. `is_known` gets the first memory slice and the number of slices.
    /// Failures are logged: those instances stay.
    pub(crate) fn destroy_unknown(&self, uuid: &str, is_known: impl Fn(u32, u32) -> bool) {
        let node = &self.node;
        let instances = match self.driver.mig_instances(uuid) {
            Ok(instances) => instances,
            Err(error) => {
                tracing::warn!(%node, gpu = uuid, %error, "could not look for instances that no claim has");
                return;
            }
        };
        let mut has_destroyed = false;
        for found in instances.iter().filter(|i| !is_known(i.placement.start, i.placement.size)) {
            let (id, start) = (found.gpu_instance, found.placement.start);
            match self.driver.destroy_mig(uuid, id) {
                Ok(()) | Err(DriverError::NotFound { .. }) => {
                    tracing::info!(%node, gpu = uuid, gpu_instance = id, start, "destroyed an instance that no claim has");
                    failpoint::hit("start.instance-destroyed");
                    has_destroyed = true;
                }
                Err(error) => {
                    tracing::warn!(%node, gpu = uuid, gpu_instance = id, start, %error, "an instance that no claim has stays");
                }
            }
        }
        if has_destroyed {
            let held = HeldDevice {
                device: format!("GPU {uuid}"),
                uuid: uuid.to_owned(),
                ..HeldDevice::default()
            };
            self.leave_mig_if_possible(&held);
        }
    }

    /// Gives a GPU another layout of MIG devices. Nothing may use what is destroyed.
    ///
    /// # Errors
    ///
    /// The GPU is no longer as it was when the change was computed, or the driver refuses a step. What was done before it stays.
    pub(crate) fn apply(&self, gpu: &Gpu, change: &Change) -> Result<(), ChangeError> {
        let places = |instances: &[MigInstance]| -> BTreeSet<_> {
            instances.iter().map(|it| (it.gpu_instance, it.profile_id, it.placement)).collect()
        };
        let found = self.driver.mig_instances(&gpu.uuid)?;
        if places(&found) != places(&gpu.mig_instances) {
            return Err(ChangeError::Stale);
        }
        for instance in &change.destroyed {
            self.counted(MigOperation::Destroy, || {
                self.driver.destroy_mig(&gpu.uuid, instance.gpu_instance)
            })?;
            failpoint::hit("layout.destroyed");
        }
        if let Some(is_on) = change.mode {
            if !self.try_mode(&gpu.uuid, is_on)? {
                return Err(ChangeError::NeedsReset { is_on });
            }
            failpoint::hit("layout.mode-set");
        }
        for (profile, placement) in &change.created {
            self.counted(MigOperation::Create, || {
                self.driver.create_mig(&gpu.uuid, profile, *placement)
            })?;
            failpoint::hit("layout.created");
        }
        Ok(())
    }

    /// Whether the instance of a claim's device is still there.
    pub(crate) fn has(&self, held: &HeldDevice, mig: &HeldMig) -> Result<bool, DriverError> {
        let instances = self.driver.mig_instances(&held.uuid)?;
        Ok(instances.iter().any(|found| is_made(found, mig)))
    }

    /// Turns MIG mode off for a claim that uses the GPU without MIG. Refused while the GPU has instances.
    pub(crate) fn leave_mig(&self, held: &HeldDevice) -> Result<(), Refusal> {
        let device = held.device.clone();
        match self.driver.mig_instances(&held.uuid) {
            Ok(instances) if instances.is_empty() => self.set_mode(held, false),
            Ok(instances) => {
                Err(Refusal::MigInstancesInTheWay { device, instances: instances.len() })
            }
            Err(error) => {
                Err(Refusal::MigModeNotChanged { device, mode: "off", error: error.to_string() })
            }
        }
    }

    /// Turns MIG mode off after the GPU's last instance.
    ///
    /// A mode that needs a reset is an administrator's choice and stays. A failure is harmless: the next claim without
    /// MIG retries and reports the obstacle.
    fn leave_mig_if_possible(&self, held: &HeldDevice) {
        if self.is_fixed {
            return;
        }
        match self.leave_mig(held) {
            // Foreign instances need the mode.
            Ok(()) | Err(Refusal::MigInstancesInTheWay { .. }) => {}
            Err(refusal) => {
                tracing::info!(node = %self.node, gpu = %held.uuid, %refusal, "MIG mode stays on");
            }
        }
    }

    /// Turns MIG mode on or off for a claim.
    fn set_mode(&self, held: &HeldDevice, is_on: bool) -> Result<(), Refusal> {
        let (device, mode) = (held.device.clone(), if is_on { "on" } else { "off" });
        match self.try_mode(&held.uuid, is_on) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::MigModeNeedsReset { device, mode, switch: u8::from(is_on) }),
            Err(error) => {
                Err(Refusal::MigModeNotChanged { device, mode, error: error.to_string() })
            }
        }
    }

    /// Turns MIG mode on or off. A change that would need a reset is reverted, so that no later reset applies it: `false`.
    fn try_mode(&self, uuid: &str, is_on: bool) -> Result<bool, DriverError> {
        let before = self.driver.minor(uuid);
        let now = self.driver.set_mig_mode(uuid, is_on)?;
        if now.enabled == is_on {
            if let (Ok(before), Ok(after)) = (before, self.driver.minor(uuid)) {
                self.minors.moved(uuid, before, after);
            }
            return Ok(true);
        }
        if now.pending == is_on
            && let Err(error) = self.driver.set_mig_mode(uuid, !is_on)
        {
            tracing::warn!(gpu = %uuid, %error, "a change of MIG mode waits for a reset");
        }
        Ok(false)
    }

    /// Does an operation and counts it.
    fn counted<T, E>(
        &self,
        operation: MigOperation,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let started = Instant::now();
        let done = work();
        if let Some(metrics) = &self.metrics {
            metrics.mig(&self.node, operation, started.elapsed(), done.is_ok());
        }
        done
    }
}
