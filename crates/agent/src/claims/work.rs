//! The steps of prepare and unprepare.

use std::sync::Arc;

use octavo_api::Refusal;

use super::holds::Hold;
use super::report::is_told;
use super::{Devices, Inner, ReportedDevice, plan};
use crate::cdi::spec_for;
use crate::checkpoint::{HeldDevice, Record, StorageError, is_plain_name};
use crate::claims::KnownDevice;
use crate::crash;
use crate::node::{ClaimRef, PreparedDevice};

/// Refused claims that are remembered until they are prepared or unprepared.
const REFUSED_REMEMBERED: usize = 1024;

/// Refuses a UID that could lead a file's name elsewhere.
pub(super) fn check_uid(claim: &ClaimRef) -> Result<(), Refusal> {
    if is_plain_name(&claim.uid) {
        Ok(())
    } else {
        Err(Refusal::BadClaimUid { uid: claim.uid.clone() })
    }
}

/// A task that did not end by itself.
pub(super) fn interrupted(claim: &ClaimRef, error: &tokio::task::JoinError) -> Refusal {
    Refusal::Interrupted { claim: claim.to_string(), error: error.to_string() }
}

impl Inner {
    /// Makes a claim's devices ready. The claim's turn is held.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        claim: &ClaimRef,
    ) -> Result<Vec<PreparedDevice>, Refusal> {
        let mut devices = Vec::new();
        let hold = self.holds().get(&claim.uid).filter(Hold::is_prepared);
        let result = match hold {
            Some(hold) => {
                devices.extend(hold.record.devices.iter().map(ReportedDevice::held));
                let written = self.write(hold.record.clone(), !hold.is_written).await;
                written.map(|()| answer(&hold.record))
            }
            None => self.prepare_new(claim, &mut devices).await,
        };
        match &result {
            Ok(_) => {
                if self.refused().remove(&claim.uid) {
                    self.reporter.prepared(claim, &devices);
                }
            }
            Err(refusal) => {
                if is_told(refusal) && !devices.is_empty() {
                    self.note_refused(&claim.uid);
                }
                self.reporter.refused(claim, &devices, refusal);
            }
        }
        result
    }

    /// Remembers that a claim has a condition that says no. The report may still be on its way when the
    /// claim is read again, so what the claim's object says is not enough.
    fn note_refused(&self, uid: &str) {
        let mut refused = self.refused();
        if refused.len() >= REFUSED_REMEMBERED {
            refused.pop_first();
        }
        refused.insert(uid.to_owned());
    }

    /// The same for a claim that has nothing yet; also tells which devices it was allocated.
    async fn prepare_new(
        self: &Arc<Self>,
        claim: &ClaimRef,
        allocated: &mut Vec<ReportedDevice>,
    ) -> Result<Vec<PreparedDevice>, Refusal> {
        let name = claim.to_string();
        let Some(devices) = self.devices() else {
            return Err(Refusal::NotReady { claim: name, node: self.node.clone() });
        };
        let read = self.reader.read(claim).await;
        let object = read
            .map_err(|error| Refusal::ApiUnavailable { claim: name.clone(), error: error.0 })?
            .ok_or_else(|| Refusal::ClaimNotFound { claim: name.clone() })?;
        if object.claim.uid != claim.uid {
            let (asked, found) = (claim.uid.clone(), object.claim.uid);
            return Err(Refusal::ClaimReplaced { claim: name, asked, found });
        }
        let results = object.allocation.iter().flat_map(plan::ours);
        allocated.extend(results.map(ReportedDevice::of));
        let record = plan::plan(&object, &devices, &self.node, self.store.boot_id())?;
        self.reserve(&record).await?;
        crash::point("prepare.reserved");
        self.write(record.clone(), true).await?;
        if object.is_reported_not_ready {
            // By an agent before this one.
            self.note_refused(&claim.uid);
        }
        Ok(answer(&record))
    }

    /// Writes a claim's record and then its spec, where they are not there already. A claim that was
    /// given its devices keeps them when this fails: the kubelet tries again or unprepares. Without a spec
    /// there is nothing to answer: the runtime would not find the names.
    async fn write(self: &Arc<Self>, record: Record, is_new: bool) -> Result<(), Refusal> {
        let inner = Arc::clone(self);
        let name = record.claim.clone();
        let task = tokio::task::spawn_blocking(move || {
            inner.write_files(&record, is_new).map_err(|error| refusal(&error))?;
            let is_there = inner.cdi.path(&record.claim.uid).is_file();
            if is_there { Ok(()) } else { Err(inner.without_spec(&record)) }
        });
        task.await.unwrap_or_else(|error| Err(interrupted(&name, &error)))
    }

    /// Why a claim has no spec: one of its GPUs is not there, or none is known yet.
    fn without_spec(&self, record: &Record) -> Refusal {
        let node = self.node.clone();
        let is_missing = |devices: &Arc<Devices>, held: &HeldDevice| {
            devices.by_name.get(&held.device).is_none_or(|device| device.uuid != held.uuid)
        };
        let devices = self.devices();
        let missing = devices
            .as_ref()
            .and_then(|devices| record.devices.iter().find(|held| is_missing(devices, held)));
        match missing {
            Some(held) => Refusal::UnknownDevice { device: held.device.clone(), node },
            None => Refusal::NotReady { claim: record.claim.to_string(), node },
        }
    }

    /// The same, blocking; says whether anything had to be written. Without `is_new` the files are
    /// written only where they are missing or changed.
    fn write_files(&self, record: &Record, is_new: bool) -> Result<bool, StorageError> {
        let mut is_written = false;
        if is_new || !self.store.is_intact(record) {
            self.store.write(record)?;
            crash::point("prepare.checkpoint-written");
            is_written = true;
        }
        let devices = self.devices();
        let mut has_spec = self.cdi.path(&record.claim.uid).is_file();
        // A GPU that the driver lost has no node to name; its spec stays as it was.
        if let Some(devices) = &devices
            && let Some(known) = known(devices, record)
        {
            let spec = spec_for(&self.paths, &devices.files, &record.claim.uid, &known);
            if is_new || !self.cdi.is_intact(record, &spec) {
                self.cdi.write(record, &spec)?;
                crash::point("prepare.cdi-written");
                is_written = true;
            }
            has_spec = true;
        }
        if has_spec {
            self.holds().set_written(&record.claim.uid);
        }
        Ok(is_written)
    }

    /// Writes the files of a claim again where they are missing or changed; says which claim had to be
    /// helped. The claim's turn is held.
    pub(super) fn repair(&self, uid: &str) -> Result<Option<ClaimRef>, StorageError> {
        let Some(hold) = self.holds().get(uid) else { return Ok(None) };
        if !hold.is_prepared() {
            // What an unresolved record says is only a guess: no spec is made of it.
            let is_intact = self.store.is_intact(&hold.record);
            if !is_intact {
                self.store.write(&hold.record)?;
            }
            return Ok((!is_intact).then_some(hold.record.claim));
        }
        let is_written = self.write_files(&hold.record, !hold.is_written)?;
        Ok(is_written.then_some(hold.record.claim))
    }

    /// Takes a claim's devices back: spec, record, memory, in this order. The claim's turn is held.
    pub(super) async fn release(self: &Arc<Self>, uid: &str) -> Result<(), Refusal> {
        let (inner, released) = (Arc::clone(self), uid.to_owned());
        let task = tokio::task::spawn_blocking(move || {
            crash::point("unprepare.begun");
            inner.cdi.remove(&released)?;
            crash::point("unprepare.cdi-removed");
            inner.store.remove(&released)?;
            crash::point("unprepare.checkpoint-removed");
            inner.holds().remove(&released);
            inner.refused().remove(&released);
            Ok(())
        });
        let removed: Result<(), StorageError> = task.await.map_err(|error| {
            Refusal::Interrupted { claim: uid.to_owned(), error: error.to_string() }
        })?;
        removed.map_err(|error| refusal(&error))
    }
}

/// What the kubelet is told.
fn answer(record: &Record) -> Vec<PreparedDevice> {
    record.devices.iter().map(crate::checkpoint::HeldDevice::prepared).collect()
}

/// The GPUs of a record, each once; `None` where one is not there or is another than before.
fn known<'a>(devices: &'a Devices, record: &Record) -> Option<Vec<&'a KnownDevice>> {
    let mut known: Vec<&KnownDevice> = Vec::new();
    for held in &record.devices {
        let device = devices.by_name.get(&held.device).filter(|device| device.uuid == held.uuid)?;
        if !known.contains(&device) {
            known.push(device);
        }
    }
    Some(known)
}

/// A failed file operation as a refusal.
fn refusal(error: &StorageError) -> Refusal {
    Refusal::Storage {
        action: error.action,
        path: error.path.display().to_string(),
        error: error.error.to_string(),
    }
}
