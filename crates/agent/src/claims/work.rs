//! The steps of prepare.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_api::Refusal;

use super::holds::Hold;
use super::report::is_told;
use super::{Inner, ReportedDevice, plan, shares};
use crate::cdi::spec_for;
use crate::checkpoint::{HeldDevice, Record, RecordState, StorageError, is_plain_name};
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
        let mut is_news = hold.is_none();
        let result = match hold {
            Some(hold) => {
                devices = ReportedDevice::held(&hold.record, &BTreeSet::new());
                self.prepare_again(hold, &mut is_news).await
            }
            None => self.prepare_new(claim, &mut devices).await,
        };
        match &result {
            Ok(record) => {
                let was_refused = self.refused().remove(&claim.uid);
                if was_refused || (is_news && record.has_facts()) {
                    let devices = ReportedDevice::held(record, &BTreeSet::new());
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
        result.map(|record| answer(&record))
    }

    /// Makes the devices of a claim ready that was prepared before: files that are missing are written, and
    /// instances that are gone are made anew in their places.
    async fn prepare_again(
        self: &Arc<Self>,
        hold: Hold,
        is_news: &mut bool,
    ) -> Result<Record, Refusal> {
        let Hold { mut record, mut is_written, .. } = hold;
        let missing = self.missing(&record).await?;
        if !missing.is_empty() {
            record = self.make_again(record, &missing).await?;
            (*is_news, is_written) = (true, false);
        }
        self.write(record.clone(), !is_written).await?;
        Ok(record)
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
        let mut record = plan::plan(&object, &devices, &self.node, self.store.boot_id())?;
        record.prepared_at = record.has_facts().then(now);
        let is_cut = |held: &HeldDevice| devices.dynamic.contains(&held.uuid);
        if record.devices.iter().any(is_cut) {
            self.settle().await;
        }
        let before = self.holds().get(&claim.uid);
        self.reserve(&record, &devices).await?;
        crash::point("prepare.reserved");
        if let Err(refusal) = self.end_modes(&record, &devices).await {
            self.holds().restore(&claim.uid, before);
            return Err(refusal);
        }
        if record.state == RecordState::Preparing {
            record = self.make_new(record, before, &devices).await?;
        }
        self.write(record.clone(), true).await?;
        if object.is_reported_not_ready {
            // By an agent before this one.
            self.note_refused(&claim.uid);
        }
        Ok(record)
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
            // A spec of before may name nodes of an instance that is gone.
            let is_needed = !is_there || record.dynamic_mig().next().is_some();
            if is_needed { inner.check_spec(&record, is_there) } else { Ok(()) }
        });
        task.await.unwrap_or_else(|error| Err(interrupted(&name, &error)))
    }

    /// Why a claim has no spec, or none that is good: one of its GPUs or instances is not there, or none is
    /// known yet.
    fn check_spec(&self, record: &Record, is_there: bool) -> Result<(), Refusal> {
        let devices = self.devices();
        if let Some(devices) = &devices {
            self.parts(devices, record)?;
        }
        if is_there {
            return Ok(());
        }
        Err(Refusal::NotReady { claim: record.claim.to_string(), node: self.node.clone() })
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
            && let Ok(parts) = self.parts(devices, record)
        {
            is_written |= shares::write(&self.paths.run_root, record, &parts)?;
            let spec = spec_for(&self.paths, &devices.files, &record.claim.uid, &parts);
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
        let Some(hold) = self.holds().get(uid).filter(|hold| !hold.is_releasing) else {
            return Ok(None);
        };
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
}

/// What the kubelet is told.
fn answer(record: &Record) -> Vec<PreparedDevice> {
    record.devices.iter().map(crate::checkpoint::HeldDevice::prepared).collect()
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// A failed file operation as a refusal.
pub(super) fn refusal(error: &StorageError) -> Refusal {
    Refusal::Storage {
        action: error.action,
        path: error.path.display().to_string(),
        error: error.error.to_string(),
    }
}
