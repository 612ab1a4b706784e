//! Creates and destroys the MIG instances of claims, and controls the MIG mode of GPUs under dynamic MIG.
//!
//! The mode is turned on for the first instance of a GPU and off after the last. A GPU in MIG mode without instances
//! serves no claim, and obstacles to a mode change are better found while no claim waits. A claim for the whole GPU or
//! a share checks the mode again. A mode that changes only with a reset stays as it is.

mod create;
mod instances;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use octavo_api::Refusal;
use octavo_gpu::Driver;
use octavo_gpu::mig::MigProfile;
use octavo_node::ClaimRef;
use octavo_node::failpoint;

use super::{DeviceKind, Devices, Inner};
use crate::checkpoint::{HeldDevice, HeldKind, HeldMig, Record};
use crate::metrics::MigOperation;
pub(super) use steps::{DestroyOutcome, is_made, is_there};

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
        let turn = self.gpu_locks.lock(&held.uuid).await;
        let driver = self.driver(claim)?;
        let (inner, uid) = (Arc::clone(self), claim.uid.clone());
        let (held, mig) = (held.clone(), mig.clone());
        self.blocking(claim, move || {
            let _turn = turn;
            let started = Instant::now();
            let mut was_asked = false;
            let mut ask = || {
                let forgotten = inner.forget_instance(&uid, &held.device);
                was_asked = forgotten.is_ok();
                forgotten.map_err(|error| super::prepare::refusal(&error))
            };
            let place = mig.placement();
            let made = steps::make(&*driver, &held, &profile, place, own.as_ref(), &mut ask);
            inner.count(MigOperation::Create, started, made.is_ok());
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
            let turn = self.gpu_locks.lock(&held.uuid).await;
            let driver = self.driver(claim)?;
            let (inner, uid) = (Arc::clone(self), claim.uid.clone());
            let destroyed = self.blocking(claim, move || {
                let _turn = turn;
                let started = Instant::now();
                let outcome = steps::destroy(&*driver, &held, &mig);
                inner.count(MigOperation::Destroy, started, outcome.is_ok());
                let outcome = outcome?;
                failpoint::hit("mig.destroyed");
                if outcome != DestroyOutcome::Lost
                    && !inner.has_instances_of_others(&held.uuid, &uid)
                {
                    inner.turn_mode_off(&*driver, &held);
                    failpoint::hit("mig.mode-off");
                }
                Ok(())
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
            let turn = self.gpu_locks.lock(&held.uuid).await;
            let driver = self.driver(&record.claim)?;
            let (asked, mig) = (held.clone(), mig.clone());
            let is_there = self.blocking(&record.claim, move || {
                let _turn = turn;
                is_there(&*driver, &asked, &mig)
            });
            if !is_there.await?.map_err(|error| self.unusable(held, error.to_string()))? {
                missing.insert(held.device.clone());
            }
        }
        Ok(missing)
    }

    /// Turns MIG mode off on the GPUs that a claim uses without MIG. The driver is asked only for GPUs under dynamic
    /// MIG without another running claim.
    pub(super) async fn turn_modes_off(
        self: &Arc<Self>,
        record: &Record,
        devices: &Devices,
    ) -> Result<(), Refusal> {
        let plain = record.devices.iter().filter(|held| {
            let is_plain = !matches!(held.kind, HeldKind::Mig(_)) && !held.admin_access;
            is_plain && devices.dynamic.contains(&held.uuid)
        });
        let mut seen = BTreeSet::new();
        for held in plain.filter(|held| seen.insert(held.uuid.clone())) {
            let turn = self.gpu_locks.lock(&held.uuid).await;
            if self.holds().has_plain(held, &record.claim.uid) {
                continue;
            }
            let driver = self.driver(&record.claim)?;
            let held = held.clone();
            let ended = self.blocking(&record.claim, move || {
                let _turn = turn;
                steps::turn_mode_off(&*driver, &held)
            });
            ended.await??;
        }
        Ok(())
    }

    /// Turns a GPU's MIG mode off after its last instance.
    ///
    /// A mode that needs a reset is an administrator's choice and stays. A failure is harmless: the next claim without
    /// MIG retries and reports the obstacle.
    pub(super) fn turn_mode_off(&self, driver: &dyn Driver, held: &HeldDevice) {
        if self.mig_management().fixed.contains(&held.uuid) {
            return;
        }
        match steps::turn_mode_off(driver, held) {
            // Foreign instances need the mode.
            Ok(()) | Err(Refusal::MigInstancesInTheWay { .. }) => {}
            Err(refusal) => {
                tracing::info!(node = %self.node, gpu = %held.uuid, %refusal, "MIG mode stays on");
            }
        }
    }

    /// Whether another claim has or is getting an instance on a GPU.
    fn has_instances_of_others(&self, uuid: &str, uid: &str) -> bool {
        let others = self.holds().slices(|hold, _| hold.record.claim.uid != uid);
        others.iter().any(|(gpu, _, _)| gpu == uuid)
    }

    /// The driver; a refusal while it is closed.
    pub(super) fn driver(&self, claim: &ClaimRef) -> Result<Arc<dyn Driver>, Refusal> {
        let open = self.driver.lock().unwrap_or_else(PoisonError::into_inner).clone();
        open.get().ok_or_else(|| Refusal::DriverClosed {
            claim: claim.to_string(),
            node: self.node.clone(),
        })
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

    /// Counts an operation of the driver.
    fn count(&self, operation: MigOperation, started: Instant, is_ok: bool) {
        if let Some(metrics) = self.metrics.get() {
            metrics.mig(&self.node, operation, started.elapsed(), is_ok);
        }
    }
}

/// The profile of a placement.
fn profile_of(devices: &Devices, held: &HeldDevice) -> Option<MigProfile> {
    match &devices.by_name.get(&held.device).filter(|device| device.uuid == held.uuid)?.kind {
        DeviceKind::MigPlacement { profile, .. } => Some(profile.clone()),
        DeviceKind::Gpu { .. } | DeviceKind::MigInstance { .. } => None,
    }
}
