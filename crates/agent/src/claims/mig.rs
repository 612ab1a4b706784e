//! The MIG instances of claims: which to create, to destroy and to find, by the turns of their GPUs.
//!
//! The mode is turned on for the first instance of a GPU and off after the last. A GPU in MIG mode without instances
//! serves no claim, and obstacles to a mode change are better found while no claim waits. A claim for the whole GPU or
//! a share checks the mode again. A mode that changes only with a reset stays as it is.

mod create;
mod instances;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_api::Refusal;
use octavo_gpu::mig::MigProfile;
use octavo_node::ClaimRef;

use super::{DeviceKind, Devices, Inner};
use crate::checkpoint::{HeldDevice, HeldMig, Record};
use crate::gpu_mode::GpuMode;

/// Instances that a claim may have had, by device.
pub(super) type FormerInstances = BTreeMap<String, HeldMig>;

impl Inner {
    /// Creates the instances of a record's devices. Each is in memory as soon as it exists.
    ///
    /// `own` lists earlier instances of the claim: a fitting one is reused. `asked` collects the devices for which the
    /// driver was asked to create an instance, which may therefore exist.
    pub(super) async fn make(
        self: &Arc<Self>,
        wanted: &Record,
        own: &FormerInstances,
        asked: &mut BTreeSet<String>,
        devices: &Devices,
    ) -> Result<(), Refusal> {
        for (held, mig) in wanted.dynamic_mig() {
            let own = own.get(&held.device).cloned();
            let (made, was_asked) =
                self.create_instance(&wanted.claim, held, mig, own, devices).await?;
            if was_asked {
                asked.insert(held.device.clone());
            }
            made?;
        }
        Ok(())
    }

    /// Creates one instance. Also returns whether the driver was asked to create it.
    async fn create_instance(
        self: &Arc<Self>,
        claim: &ClaimRef,
        held: &HeldDevice,
        mig: &HeldMig,
        own: Option<HeldMig>,
        devices: &Devices,
    ) -> Result<(Result<(), Refusal>, bool), Refusal> {
        let profile = profile_of(devices, held).ok_or_else(|| Refusal::UnknownDevice {
            device: held.device.clone(),
            node: self.node.clone(),
        })?;
        let turn = self.modes.turn(&held.uuid, claim).await?;
        let (inner, uid) = (Arc::clone(self), claim.uid.clone());
        let (held, mig) = (held.clone(), mig.clone());
        self.blocking(claim, move || {
            let mut was_asked = false;
            let mut ask = || {
                let forgotten = inner.forget_instance(&uid, &held.device);
                was_asked = forgotten.is_ok();
                forgotten.map_err(|error| super::prepare::refusal(&error))
            };
            let made = turn.make(&held, &mig, &profile, own.as_ref(), &mut ask);
            let taken = made.and_then(|made| inner.assign_instance(&uid, &held, &mig, &made));
            (taken, was_asked)
        })
        .await
    }

    /// Destroys instances of a claim, and turns MIG mode off on GPUs without further instances.
    pub(super) async fn destroy(
        self: &Arc<Self>,
        claim: &ClaimRef,
        instances: Vec<(HeldDevice, HeldMig)>,
    ) -> Result<(), Refusal> {
        for (held, mig) in instances {
            let turn = self.modes.turn(&held.uuid, claim).await?;
            let (inner, uid) = (Arc::clone(self), claim.uid.clone());
            let destroyed = self.blocking(claim, move || {
                turn.destroy(&held, &mig, || !inner.holds().mode_for_others(&held, &uid).is_mig())
            });
            destroyed.await??;
        }
        Ok(())
    }

    /// The devices of a claim whose instances are missing.
    pub(super) async fn missing(
        self: &Arc<Self>,
        record: &Record,
    ) -> Result<BTreeSet<String>, Refusal> {
        let mut missing = BTreeSet::new();
        for (held, mig) in record.dynamic_mig() {
            let turn = self.modes.turn(&held.uuid, &record.claim).await?;
            let (asked, mig) = (held.clone(), mig.clone());
            let is_there = self.blocking(&record.claim, move || turn.has(&asked, &mig));
            if !is_there.await?.map_err(|error| self.unusable(held, error.to_string()))? {
                missing.insert(held.device.clone());
            }
        }
        Ok(missing)
    }

    /// Turns MIG mode off on the GPUs that a claim uses without MIG. The driver is asked only for GPUs under dynamic
    /// MIG without another running claim.
    pub(super) async fn leave_mig(
        self: &Arc<Self>,
        record: &Record,
        devices: &Devices,
    ) -> Result<(), Refusal> {
        let plain = record.devices.iter().filter(|held| {
            let is_plain = !GpuMode::of(&held.kind).is_mig() && !held.admin_access;
            is_plain && devices.dynamic.contains(&held.uuid)
        });
        let mut seen = BTreeSet::new();
        for held in plain.filter(|held| seen.insert(held.uuid.clone())) {
            if self.holds().runs_without_mig(held, &record.claim.uid) {
                continue;
            }
            let turn = self.modes.turn(&held.uuid, &record.claim).await?;
            let held = held.clone();
            self.blocking(&record.claim, move || turn.leave_mig(&held)).await??;
        }
        Ok(())
    }

    /// Runs blocking work to its end.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        claim: &ClaimRef,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let task = tokio::task::spawn_blocking(work).await;
        task.map_err(|error| super::prepare::interrupted(claim, &error))
    }
}

/// The profile of a placement.
fn profile_of(devices: &Devices, held: &HeldDevice) -> Option<MigProfile> {
    match &devices.by_name.get(&held.device).filter(|device| device.uuid == held.uuid)?.kind {
        DeviceKind::MigPlacement { profile, .. } => Some(profile.clone()),
        DeviceKind::Gpu { .. } | DeviceKind::MigInstance { .. } => None,
    }
}
