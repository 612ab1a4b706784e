//! The steps of unprepare.

use std::sync::Arc;

use octavo_api::Refusal;
use octavo_node::ClaimRef;
use octavo_node::failpoint;
use octavo_node::files::StorageError;

use super::claim_holds::ClaimHold;
use super::conflict::HolderState;
use super::extent::instances_of;
use super::prepare::refusal;
use super::{Inner, shares};
use crate::checkpoint::Record;

impl Inner {
    /// Releases a claim's devices for the kubelet. If a damaged record names no devices, they are taken from the
    /// claim's object as far as it is readable. The caller holds the claim's lock.
    pub(super) async fn unprepare(self: &Arc<Self>, claim: &ClaimRef) -> Result<(), Refusal> {
        let hold = self.holds().get(&claim.uid).filter(ClaimHold::may_hold_any);
        if let Some(mut hold) = hold {
            hold.record.claim = claim.clone();
            if let HolderState::Valid(devices) = self.holder_state(&hold).await {
                self.holds().insert(Record { devices, ..hold.record });
            }
        }
        self.release(&claim.uid).await
    }

    /// Releases a claim in this order: spec, shares with their frozen containers, sharing, instances, record, memory.
    ///
    /// If an instance cannot be destroyed or a mode not be reset, the record stays and the claim keeps its devices. The caller holds the
    /// claim's lock.
    pub(super) async fn release(self: &Arc<Self>, uid: &str) -> Result<(), Refusal> {
        let record = self.holds().get(uid).map(|hold| hold.record);
        let devices = self.devices();
        let instances = record.as_ref().map(|record| instances_of(record, devices.as_deref()));
        let instances = instances.unwrap_or_default();
        let has_sharing = |record: &Record| record.has_sharing() || record.is_unresolved();
        let is_last = instances.is_empty() && !record.as_ref().is_some_and(has_sharing);
        let (inner, released) = (Arc::clone(self), uid.to_owned());
        self.files(uid, move || {
            inner.remove_spec(&released)?;
            if is_last { inner.remove_record(&released) } else { Ok(()) }
        })
        .await?;
        let Some(record) = record.filter(|_| !is_last) else { return Ok(()) };
        self.unshare(&record).await?;
        self.destroy(&record.claim, instances).await?;
        let (inner, released) = (Arc::clone(self), uid.to_owned());
        self.files(uid, move || inner.remove_record(&released)).await
    }

    /// Removes the files from which containers are created.
    fn remove_spec(&self, uid: &str) -> Result<(), StorageError> {
        failpoint::hit("unprepare.begun");
        self.holds().set_releasing(uid);
        self.publish_active_shares();
        self.cdi.remove(uid)?;
        failpoint::hit("unprepare.cdi-removed");
        shares::remove(&self.paths, uid)?;
        failpoint::hit("unprepare.shares-removed");
        Ok(())
    }

    /// Forgets a claim.
    fn remove_record(&self, uid: &str) -> Result<(), StorageError> {
        let _files = self.shared_files();
        self.store.remove(uid)?;
        failpoint::hit("unprepare.checkpoint-removed");
        self.holds().remove(uid);
        self.refused().remove(uid);
        self.forget_findings(uid);
        self.reporter.released(uid);
        Ok(())
    }

    /// Does work on files, to its end.
    async fn files(
        &self,
        uid: &str,
        work: impl FnOnce() -> Result<(), StorageError> + Send + 'static,
    ) -> Result<(), Refusal> {
        let done = tokio::task::spawn_blocking(work).await.map_err(|error| {
            Refusal::Interrupted { claim: uid.to_owned(), error: error.to_string() }
        })?;
        done.map_err(|error| refusal(&error))
    }
}
