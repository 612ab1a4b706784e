//! Which instance a device of a claim has, in memory and in the claim's files.
//!
//! A driver gives the ids of instances that are gone to new ones. A spec that still named one would let its
//! claim's containers, when they are started again, into the instance of another claim. So what is gone is
//! forgotten: the spec goes, and the record says no more than what the claim is to have.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use octavo_api::Refusal;

use crate::checkpoint::{HeldDevice, HeldKind, HeldMig, MadeMig, Record, StorageError};
use crate::claims::Inner;
use crate::claims::mig::is_there;
use crate::claims::prepare::refusal;
use crate::failpoint;
use crate::node::ClaimRef;

impl Inner {
    /// Leave to write a claim's files from what memory says of it: meanwhile nobody takes an instance away
    /// from it. Whoever has it must not ask for it again.
    pub(in crate::claims) fn shared_files(&self) -> RwLockReadGuard<'_, ()> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for the files of all claims, with nobody beside.
    fn all_files(&self) -> RwLockWriteGuard<'_, ()> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a claim's device its instance in memory. Other devices whose instances had the same id lose
    /// them: they are gone, and their claims' containers must not come into this one. The GPU's turn is held.
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

    /// Forgets the instance of a claim's device, before another is made in its place or because it is gone.
    pub(in crate::claims) fn forget_instance(
        &self,
        uid: &str,
        device: &str,
    ) -> Result<(), StorageError> {
        let _files = self.all_files();
        self.forget_instance_locked(uid, device)
    }

    /// The same for instances that were found to be gone.
    pub(in crate::claims) async fn forget_missing_instances(
        self: &Arc<Self>,
        claim: &ClaimRef,
        missing: &BTreeSet<String>,
    ) -> Result<(), Refusal> {
        let (inner, uid, missing) = (Arc::clone(self), claim.uid.clone(), missing.clone());
        let forget = move || missing.iter().try_for_each(|gone| inner.forget_instance(&uid, gone));
        self.blocking(claim, forget).await?.map_err(|error| refusal(&error))
    }

    /// The spec goes first: without it no record can let a container in. Memory comes last, so that what
    /// fails is tried again.
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

    /// Sees to it that the instances which a claim is given as they are, are there. Without an open driver
    /// what the node's devices say has to do.
    pub(in crate::claims) async fn check_static_instances(
        self: &Arc<Self>,
        record: &Record,
    ) -> Result<(), Refusal> {
        for held in &record.devices {
            let HeldKind::Mig(mig) = &held.kind else { continue };
            let Some(made) = mig.made.clone().filter(|_| !mig.is_dynamic) else { continue };
            let turn = self.gpu_locks.lock(&held.uuid).await;
            let driver = self.driver(&record.claim).ok();
            let (inner, uid) = (Arc::clone(self), record.claim.uid.clone());
            let (held, mig) = (held.clone(), mig.clone());
            let checked = self.blocking(&record.claim, move || {
                let _turn = turn;
                if let Some(driver) = driver {
                    let is_there = is_there(&*driver, &held, &mig)
                        .map_err(|error| inner.unusable(&held, error.to_string()))?;
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

    /// Why a MIG instance cannot be given.
    pub(in crate::claims) fn unusable(&self, held: &HeldDevice, problem: String) -> Refusal {
        Refusal::MigNotUsable { device: held.device.clone(), problem, node: self.node.clone() }
    }

    /// The same of one that is not there any more.
    pub(in crate::claims) fn replaced(&self, held: &HeldDevice) -> Refusal {
        let problem = "the instance is gone, or another is in its place";
        self.unusable(held, problem.to_owned())
    }
}
