//! Cleanup after earlier processes, once the driver and the devices are available.
//!
//! - An instance that was being created when a process died is destroyed, with its record.
//! - On GPUs under dynamic MIG, instances without a record are destroyed if the driver permits it. Later the agent
//!   destroys only instances that it created: a new foreign one is probably in use.
//! - Prepared claims keep their records if their instances are missing, as after a reset. The loss is reported, and
//!   preparing the claim again creates new instances.

use std::sync::Arc;

use super::Inner;
use crate::claims::claim_holds::ClaimHold;

impl Inner {
    /// Runs the cleanup once. Until the GPUs under dynamic MIG are known, only half-made claims are released.
    pub(super) async fn startup_cleanup(self: &Arc<Self>) {
        let mut is_cleaned_up = self.is_cleaned_up.lock().await;
        let Some(devices) = self.devices() else { return };
        if *is_cleaned_up || self.modes.driver().is_none() {
            return;
        }
        self.release_half_made().await;
        // Before instances are destroyed, which the servers of daemons use.
        self.end_unclaimed_daemons().await;
        let Some(managed) = self.modes.managed() else { return };
        for uuid in managed {
            let Ok(turn) = self.modes.turn_or_lock(&uuid).await else { return };
            let (inner, devices) = (Arc::clone(self), Arc::clone(&devices));
            let task = tokio::task::spawn_blocking(move || {
                if inner.holds().may_hold_unknown(&uuid, &devices) {
                    tracing::warn!(node = %inner.node, gpu = uuid, "a damaged record may have instances of this GPU: none is destroyed");
                    return;
                }
                let known = inner.holds().slices(|_, _| true);
                turn.destroy_unknown(&uuid, |start, size| {
                    known.contains(&(uuid.clone(), start, size))
                });
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
