//! Cleanup after earlier processes, once the driver and the devices are available.
//!
//! - An instance that was being created when a process died is destroyed, with its record.
//! - On GPUs under dynamic MIG, instances without a record are destroyed if the driver permits it. Later the agent
//!   destroys only instances that it created: a new foreign one is probably in use.
//! - Prepared claims keep their records if their instances are missing, as after a reset. The loss is reported, and
//!   preparing the claim again creates new instances.

use std::sync::{Arc, PoisonError};

use octavo_gpu::{Driver, DriverError};
use octavo_node::failpoint;

use super::{Devices, Inner};
use crate::checkpoint::HeldDevice;
use crate::claims::claim_holds::ClaimHold;

impl Inner {
    /// Runs the cleanup once. Until the GPUs under dynamic MIG are known, only half-made claims are released.
    pub(super) async fn startup_cleanup(self: &Arc<Self>) {
        let mut is_cleaned_up = self.is_cleaned_up.lock().await;
        let open = self.driver.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(devices) = self.devices() else { return };
        if *is_cleaned_up || open.get().is_none() {
            return;
        }
        self.release_half_made().await;
        let Some(cut) = self.mig_management().gpus.clone() else { return };
        for uuid in &cut {
            let turn = self.gpu_locks.lock(uuid).await;
            let Some(driver) = open.get() else { return };
            let (inner, uuid, devices) = (Arc::clone(self), uuid.clone(), Arc::clone(&devices));
            let task = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                inner.destroy_unknown(&*driver, &uuid, &devices);
            });
            if let Err(error) = task.await {
                tracing::error!(node = %self.node, %error, "the search for unclaimed instances failed");
            }
        }
        self.report_missing_instances().await;
        *is_cleaned_up = true;
    }

    /// Releases half-made claims that could not be rolled back at once.
    pub(super) async fn release_half_made(self: &Arc<Self>) {
        let uids = self.holds().uids();
        for uid in uids {
            let is_preparing = |hold: &ClaimHold| hold.is_preparing();
            // A call in progress completes the claim.
            let Some(_turn) = self.claim_locks.try_lock(&uid) else { continue };
            if !self.holds().get(&uid).as_ref().is_some_and(is_preparing) {
                continue;
            }
            match self.release(&uid).await {
                Ok(()) => tracing::info!(node = %self.node, uid, "took a half-made claim back"),
                Err(refusal) => {
                    tracing::warn!(node = %self.node, uid, %refusal, "a half-made claim stays");
                }
            }
        }
    }

    /// Destroys the instances of a GPU that no claim holds.
    fn destroy_unknown(&self, driver: &dyn Driver, uuid: &str, devices: &Devices) {
        if self.holds().may_hold_unknown(uuid, devices) {
            tracing::warn!(node = %self.node, gpu = uuid, "a damaged record may have instances of this GPU: none is destroyed");
            return;
        }
        let instances = match driver.mig_instances(uuid) {
            Ok(instances) => instances,
            Err(error) => {
                tracing::warn!(node = %self.node, gpu = uuid, %error, "could not look for instances that no claim has");
                return;
            }
        };
        let known = self.holds().slices(|_, _| true);
        let is_known = |start, size| known.contains(&(uuid.to_owned(), start, size));
        let mut has_destroyed = false;
        for found in instances.iter().filter(|i| !is_known(i.placement.start, i.placement.size)) {
            let (id, start) = (found.gpu_instance, found.placement.start);
            match driver.destroy_mig(uuid, id) {
                Ok(()) | Err(DriverError::NotFound { .. }) => {
                    tracing::info!(node = %self.node, gpu = uuid, gpu_instance = id, start, "destroyed an instance that no claim has");
                    failpoint::hit("start.instance-destroyed");
                    has_destroyed = true;
                }
                Err(error) => {
                    tracing::warn!(node = %self.node, gpu = uuid, gpu_instance = id, start, %error, "an instance that no claim has stays");
                }
            }
        }
        if has_destroyed {
            let held = HeldDevice {
                device: format!("GPU {uuid}"),
                uuid: uuid.to_owned(),
                ..HeldDevice::default()
            };
            self.turn_mode_off(driver, &held);
        }
    }

    /// Reports the missing instances of prepared claims.
    async fn report_missing_instances(self: &Arc<Self>) {
        let uids = self.holds().uids();
        for uid in uids {
            let Some(_turn) = self.claim_locks.try_lock(&uid) else { continue };
            let Some(hold) = self.holds().get(&uid).filter(ClaimHold::is_prepared) else {
                continue;
            };
            // An unresponsive GPU is reported elsewhere.
            let missing = self.missing(&hold.record).await.unwrap_or_default();
            if !missing.is_empty() {
                let (claim, devices) = (&hold.record.claim, &missing);
                tracing::warn!(node = %self.node, %claim, ?devices, "MIG instances of a claim are gone");
                // Once: afterwards nothing is known of them.
                let mut had = hold.record.dynamic_mig().filter(|(_, mig)| mig.made.is_some());
                if had.any(|(held, _)| missing.contains(&held.device)) {
                    // Include findings about its shares: a fenced share must stay reported.
                    let devices = self.reported(&hold.record, &missing);
                    self.reporter.prepared(claim, &devices);
                }
                if let Err(refusal) = self.forget_missing_instances(claim, &missing).await {
                    tracing::warn!(node = %self.node, %claim, %refusal, "MIG instances that are gone stay in a claim's files");
                }
            }
        }
    }
}
