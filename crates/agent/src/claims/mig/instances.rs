//! The instance of each device of a claim, in memory and in the claim's files.
//!
//! Drivers reuse the ids of destroyed instances. A spec with a stale id would let restarted containers into the
//! instance of another claim. The spec of a missing instance is therefore removed, and the record keeps only the
//! requested device.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use octavo_api::Refusal;
use octavo_node::ClaimRef;
use octavo_node::failpoint;
use octavo_node::files::StorageError;

use crate::checkpoint::{HeldDevice, HeldKind, HeldMig, MadeMig, Record};
use crate::claims::Inner;
use crate::claims::prepare::refusal;

impl Inner {
    /// Permission to write a claim's files from memory. Meanwhile no instance is removed from a claim. Not reentrant.
    pub(in crate::claims) fn shared_files(&self) -> RwLockReadGuard<'_, ()> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exclusive permission for the files of all claims.
    fn all_files(&self) -> RwLockWriteGuard<'_, ()> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the instance of a claim's device in memory. Other devices that had the same instance id lose theirs: those
    /// instances no longer exist, and their containers must not enter this one. The caller holds the GPU's lock.
    pub(in crate::claims) fn assign_instance(
        &self,
        uid: &str,
        held: &HeldDevice,
        mig: &HeldMig,
        made: &MadeMig,
    ) -> Result<(), Refusal> {
        let _files = self.all_files();
        let replaced = self.holds().replaced_by(&held.uuid, mig.placement(), made);
        for (other, device) in replaced {
            self.forget_instance_locked(&other, &device).map_err(|error| refusal(&error))?;
            tracing::warn!(node = %self.node, uid = other, device, "a claim's MIG instance is gone; its id is another's now");
        }
        self.holds().set_made(uid, &held.device, Some(made));
        Ok(())
    }

    /// Removes the instance of a claim's device, because it is missing or about to be recreated.
    pub(in crate::claims) fn forget_instance(
        &self,
        uid: &str,
        device: &str,
    ) -> Result<(), StorageError> {
        let _files = self.all_files();
        self.forget_instance_locked(uid, device)
    }

    /// Removes instances that were found missing.
    pub(in crate::claims) async fn forget_missing_instances(
        self: &Arc<Self>,
        claim: &ClaimRef,
        missing: &BTreeSet<String>,
    ) -> Result<(), Refusal> {
        let (inner, uid, missing) = (Arc::clone(self), claim.uid.clone(), missing.clone());
        let forget = move || missing.iter().try_for_each(|gone| inner.forget_instance(&uid, gone));
        self.blocking(claim, forget).await?.map_err(|error| refusal(&error))
    }

    /// The spec is removed first, since no container starts without it. Memory changes last, so that a failure is
    /// retried.
    fn forget_instance_locked(&self, uid: &str, device: &str) -> Result<(), StorageError> {
        let Some(mut record) = self.holds().get(uid).map(|hold| hold.record) else {
            return Ok(());
        };
        let has_one = |held: &HeldDevice| match &held.kind {
            HeldKind::Mig(mig) => held.device == device && mig.made.is_some(),
            HeldKind::Whole | HeldKind::Share(_) => false,
        };
        if !record.devices.iter().any(has_one) {
            return Ok(());
        }
        self.cdi.remove(uid)?;
        failpoint::hit("mig.spec-removed");
        record.set_made(device, None);
        self.store.write(&record)?;
        failpoint::hit("mig.forgotten");
        self.holds().set_made(uid, device, None);
        Ok(())
    }

    /// Checks that the static instances of a claim exist. Without an open driver the node's known devices decide.
    pub(in crate::claims) async fn check_static_instances(
        self: &Arc<Self>,
        record: &Record,
    ) -> Result<(), Refusal> {
        for held in &record.devices {
            let HeldKind::Mig(mig) = &held.kind else { continue };
            let Some(made) = mig.made.clone().filter(|_| !mig.is_dynamic) else { continue };
            let turn = self.modes.turn_or_lock(&held.uuid).await;
            let (inner, uid) = (Arc::clone(self), record.claim.uid.clone());
            let (held, mig) = (held.clone(), mig.clone());
            let checked = self.blocking(&record.claim, move || {
                if let Ok(turn) = &turn {
                    let is_there = turn.has(&held, &mig);
                    let is_there =
                        is_there.map_err(|error| inner.unusable(&held, error.to_string()))?;
                    if !is_there {
                        return Err(inner.replaced(&held));
                    }
                }
                inner.assign_instance(&uid, &held, &mig, &made)
            });
            checked.await??;
        }
        Ok(())
    }

    /// Refusal of an unusable MIG instance.
    pub(in crate::claims) fn unusable(&self, held: &HeldDevice, problem: String) -> Refusal {
        Refusal::MigNotUsable { device: held.device.clone(), problem, node: self.node.clone() }
    }

    /// Refusal of a missing or replaced instance.
    pub(in crate::claims) fn replaced(&self, held: &HeldDevice) -> Refusal {
        let problem = "the instance is gone, or another is in its place";
        self.unusable(held, problem.to_owned())
    }
}
