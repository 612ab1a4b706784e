//! The steps of prepare.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_api::Refusal;
use octavo_node::ClaimRef;
use octavo_node::failpoint;
use octavo_node::files::{StorageError, is_plain_name};

use super::claim_holds::ClaimHold;
use super::extent::instances_of;
use super::report::is_reportable;
use super::{Devices, Inner, ReportedDevice, plan, shares};
use crate::cdi::spec_for;
use crate::checkpoint::{HeldDevice, Record, RecordState};
use crate::node::PreparedDevice;

/// Refused claims remembered until they are prepared or unprepared.
const MAX_REMEMBERED_REFUSALS: usize = 1024;

/// Refuses a UID that could change the path of a file.
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
    /// Makes a claim's devices ready. The caller holds the claim's lock.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        claim: &ClaimRef,
    ) -> Result<Vec<PreparedDevice>, Refusal> {
        self.modes.check_not_released(claim)?;
        self.check_hook(claim)?;
        let mut devices = Vec::new();
        let hold = self.holds().get(&claim.uid).filter(ClaimHold::is_prepared);
        let mut must_report = hold.is_none();
        let result = match hold {
            Some(hold) => {
                devices = ReportedDevice::held(&hold.record, &BTreeSet::new());
                self.prepare_again(hold, &mut must_report).await
            }
            None => self.prepare_new(claim, &mut devices).await,
        };
        match &result {
            Ok(record) => {
                let was_refused = self.refused().remove(&claim.uid);
                if was_refused || (must_report && record.has_facts()) {
                    let devices = self.reported(record, &BTreeSet::new());
                    self.reporter.prepared(claim, &devices);
                }
            }
            Err(refusal) => {
                if is_reportable(refusal) && !devices.is_empty() {
                    self.record_refused(&claim.uid);
                }
                self.reporter.refused(claim, &devices, refusal);
            }
        }
        result.map(|record| prepared_devices(&record))
    }

    /// Makes a prepared claim ready again: missing files are written, and missing instances recreated in their
    /// placements.
    async fn prepare_again(
        self: &Arc<Self>,
        hold: ClaimHold,
        must_report: &mut bool,
    ) -> Result<Record, Refusal> {
        let ClaimHold { record, mut is_written, .. } = hold;
        let missing = self.missing(&record).await?;
        if !missing.is_empty() {
            self.recreate_instances(&record, &missing).await?;
            (*must_report, is_written) = (true, false);
        }
        let record = self.holds().get(&record.claim.uid).map_or(record, |hold| hold.record);
        // Something may have undone it: an unprepare that failed, or a reset of the GPU.
        self.share(&record).await?;
        self.write(&record.claim, !is_written).await
    }

    /// Records that a claim has a negative condition. The claim's object is not sufficient: the report may still be in
    /// flight when the claim is read again.
    fn record_refused(&self, uid: &str) {
        let mut refused = self.refused();
        if refused.len() >= MAX_REMEMBERED_REFUSALS {
            refused.pop_first();
        }
        refused.insert(uid.to_owned());
    }

    /// Prepares a new claim. Also returns its allocated devices.
    async fn prepare_new(
        self: &Arc<Self>,
        claim: &ClaimRef,
        allocated: &mut Vec<ReportedDevice>,
    ) -> Result<Record, Refusal> {
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
        let (mut record, devices) = self.with_backends(record, devices).await?;
        record.prepared_at = record.has_facts().then(now);
        let is_cut = |held: &HeldDevice| devices.dynamic.contains(&held.uuid);
        if record.devices.iter().any(is_cut) {
            self.startup_cleanup().await;
        }
        let before = self.release_stale(&record, &devices).await?;
        if record.state == RecordState::Preparing
            && before.as_ref().is_some_and(|hold| hold.record.is_unresolved())
        {
            // Containers may run, so half-made instances must not be released.
            record.state = RecordState::Unresolved;
        }
        self.reserve(&record, &devices).await?;
        failpoint::hit("prepare.reserved");
        let checked = match self.leave_mig(&record, &devices).await {
            Ok(()) => self.check_static_instances(&record).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = checked {
            self.holds().restore(&claim.uid, before);
            return Err(refusal);
        }
        if record.state != RecordState::Prepared {
            self.create_for_new_claim(&record, before, &devices).await?;
        }
        let record = self.write(claim, true).await?;
        if object.is_reported_not_ready {
            // An earlier agent reported it.
            self.record_refused(&claim.uid);
        }
        Ok(record)
    }

    /// Chooses the backend of a claim's shares; see [`Inner::choose_backends`].
    async fn with_backends(
        self: &Arc<Self>,
        mut record: Record,
        devices: Arc<Devices>,
    ) -> Result<(Record, Arc<Devices>), Refusal> {
        let (inner, claim) = (Arc::clone(self), record.claim.clone());
        let task = tokio::task::spawn_blocking(move || {
            let devices = inner.choose_backends(&mut record, devices)?;
            Ok((record, devices))
        });
        task.await.unwrap_or_else(|error| Err(interrupted(&claim, &error)))
    }

    /// The state of a claim before it gets the devices of `record`. If it has an instance that `record` does not name,
    /// the allocation has changed. Such an instance would be lost, so everything is released first.
    async fn release_stale(
        self: &Arc<Self>,
        record: &Record,
        devices: &Devices,
    ) -> Result<Option<ClaimHold>, Refusal> {
        let uid = &record.claim.uid;
        let Some(before) = self.holds().get(uid) else { return Ok(None) };
        let is_named = |had: &HeldDevice| record.devices.iter().any(|now| now.device == had.device);
        let had = instances_of(&before.record, Some(devices));
        if had.iter().all(|(had, _)| is_named(had)) {
            return Ok(Some(before));
        }
        self.release(uid).await?;
        Ok(None)
    }

    /// Writes a claim's record and then its spec where necessary, and returns the record. On failure the claim keeps
    /// its devices: the kubelet retries or unprepares.
    async fn write(self: &Arc<Self>, claim: &ClaimRef, is_new: bool) -> Result<Record, Refusal> {
        let (inner, name) = (Arc::clone(self), claim.clone());
        let task = tokio::task::spawn_blocking(move || {
            inner.write_files(&name.uid, is_new).map_err(|error| refusal(&error))?;
            inner.written_record(&name)
        });
        task.await.unwrap_or_else(|error| Err(interrupted(claim, &error)))
    }

    /// The record of a claim whose files exist. Without a spec the runtime could not resolve the CDI names; an old spec
    /// may have nodes of a module that is no longer loaded, or of a missing instance.
    fn written_record(&self, claim: &ClaimRef) -> Result<Record, Refusal> {
        let not_ready = || Refusal::NotReady { claim: claim.to_string(), node: self.node.clone() };
        let record = self.holds().get(&claim.uid).map(|hold| hold.record).ok_or_else(not_ready)?;
        let is_there = self.cdi.path(&claim.uid).is_file();
        self.check_modules(&record)?;
        if (!is_there || record.has_mig())
            && let Some(devices) = self.devices()
        {
            // The error names the missing GPU or instance.
            self.cdi_devices(&devices, &record)?;
        }
        if is_there { Ok(record) } else { Err(not_ready()) }
    }

    /// Writes the files of a claim from memory; returns whether anything was written. Unless `is_new`, only missing or
    /// changed files are written. Blocks.
    fn write_files(&self, uid: &str, is_new: bool) -> Result<bool, StorageError> {
        let _files = self.shared_files();
        let Some(mut hold) = self.holds().get(uid) else { return Ok(false) };
        let mut has_spec = self.cdi.path(uid).is_file();
        let is_foreign = hold.record.has_foreign_names();
        if is_foreign && !has_spec {
            // What containers have by them is gone, too.
            hold.record.rename();
            self.holds().change(hold.record.clone());
        }
        let record = &hold.record;
        let mut is_written = false;
        if is_new || !self.store.is_intact(record) {
            self.store.write(record)?;
            failpoint::hit("prepare.checkpoint-written");
            is_written = true;
        }
        let devices = self.devices();
        // The spec of a GPU that is lost, or whose modules are not loaded, stays unchanged. So does that of another driver.
        if !(is_foreign && has_spec)
            && let Some(devices) = &devices
            && let Ok((majors, cdi_devices)) = self.cdi_devices(devices, record)
        {
            is_written |= shares::write(&self.paths, record, &cdi_devices)?;
            let spec = spec_for(&self.paths, &devices.files, majors, uid, &cdi_devices);
            if is_new || !self.cdi.is_intact(record, &spec) {
                self.cdi.write(record, &spec)?;
                failpoint::hit("prepare.cdi-written");
                is_written = true;
            }
            has_spec = true;
        }
        if has_spec {
            self.holds().set_written(uid);
        }
        self.publish_active_shares();
        Ok(is_written)
    }

    /// Rewrites missing or changed files of a claim; returns the claim if any were. The caller holds the claim's lock.
    pub(super) fn repair(&self, uid: &str) -> Result<Option<ClaimRef>, StorageError> {
        let Some(hold) = self.holds().get(uid).filter(|hold| !hold.is_releasing) else {
            return Ok(None);
        };
        if !hold.is_prepared() {
            // An unresolved record is a guess, so no spec is written from it.
            let _files = self.shared_files();
            let is_intact = self.store.is_intact(&hold.record);
            if !is_intact {
                self.store.write(&hold.record)?;
            }
            return Ok((!is_intact).then_some(hold.record.claim));
        }
        let is_written = self.write_files(uid, !hold.is_written)?;
        Ok(is_written.then_some(hold.record.claim))
    }
}

/// The devices as reported to the kubelet.
fn prepared_devices(record: &Record) -> Vec<PreparedDevice> {
    record.devices.iter().map(crate::checkpoint::HeldDevice::prepared).collect()
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// A failed file operation as a refusal.
pub(crate) fn refusal(error: &StorageError) -> Refusal {
    Refusal::Storage {
        action: error.action,
        path: error.path.display().to_string(),
        error: error.error.to_string(),
    }
}
