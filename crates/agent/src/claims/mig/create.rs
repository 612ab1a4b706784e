//! Creation of a claim's MIG instances: intent on disk, driver call, result in memory.
//!
//! If the process dies in between, the record remains. The next process releases the instances, or adopts them if the
//! claim's containers may run.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_api::Refusal;
use octavo_node::ClaimRef;
use octavo_node::failpoint;

use crate::checkpoint::{HeldDevice, Record, RecordState};
use crate::claims::claim_holds::ClaimHold;
use crate::claims::mig::FormerInstances;
use crate::claims::prepare::{interrupted, now, refusal};
use crate::claims::{Devices, Inner};

impl Inner {
    /// Recreates missing instances. The claim keeps its other devices on failure, since its containers may run.
    pub(in crate::claims) async fn recreate_instances(
        self: &Arc<Self>,
        before: &Record,
        missing: &BTreeSet<String>,
    ) -> Result<(), Refusal> {
        let Some(devices) = self.devices() else {
            let (claim, node) = (before.claim.to_string(), self.node.clone());
            return Err(Refusal::NotReady { claim, node });
        };
        let own = before.dynamic_mig().map(|(held, mig)| (held.device.clone(), mig.clone()));
        let own: FormerInstances = own.collect();
        let mut wanted = before.clone();
        wanted.devices.retain(|held| missing.contains(&held.device));
        let mut asked = BTreeSet::new();
        let made = self.make(&wanted, &own, &mut asked, &devices).await;
        if made.is_ok() {
            self.made(&before.claim.uid);
        } else if let Err(error) = self.write_record(&before.claim).await {
            tracing::warn!(node = %self.node, claim = %before.claim, %error, "recreated instances are not recorded yet");
        }
        made
    }

    /// Creates the instances of a new claim whose devices are reserved in memory. On failure the created instances are
    /// destroyed. Devices of a damaged record of the claim stay, since containers may run.
    pub(in crate::claims) async fn create_for_new_claim(
        self: &Arc<Self>,
        record: &Record,
        before: Option<ClaimHold>,
        devices: &Devices,
    ) -> Result<(), Refusal> {
        if let Err(refusal) = self.modes.check_open(&record.claim) {
            self.holds().restore(&record.claim.uid, before);
            return Err(refusal);
        }
        // An incomplete earlier record of the claim: its instances may exist.
        let own = record.dynamic_mig().filter(|(wanted, _)| {
            before.as_ref().is_some_and(|hold| {
                let is_named = |held: &HeldDevice| held.device == wanted.device;
                hold.may_hold_any() || hold.record.devices.iter().any(is_named)
            })
        });
        let own: FormerInstances =
            own.map(|(held, mig)| (held.device.clone(), mig.clone())).collect();
        let mut asked = own.keys().cloned().collect();
        let made = match self.write_record(&record.claim).await {
            Ok(()) => {
                failpoint::hit("mig.intended");
                self.make_and_share(record, &own, &mut asked, devices).await
            }
            Err(refusal) => Err(refusal),
        };
        if made.is_ok() {
            self.made(&record.claim.uid);
        } else if let Err(error) = self.roll_back(&record.claim, before, &asked).await {
            tracing::warn!(node = %self.node, claim = %record.claim, %error, "a half-made claim could not be rolled back; it is retried");
        }
        made
    }

    /// Creates the instances of a new claim, and sets what its containers share.
    async fn make_and_share(
        self: &Arc<Self>,
        record: &Record,
        own: &FormerInstances,
        asked: &mut BTreeSet<String>,
        devices: &Devices,
    ) -> Result<(), Refusal> {
        self.make(record, own, asked, devices).await?;
        let Some(ClaimHold { record, .. }) = self.holds().get(&record.claim.uid) else {
            return Ok(());
        };
        if !record.has_sharing() {
            return Ok(());
        }
        let shared = record.devices.iter().filter(|held| held.sharing.is_some());
        asked.extend(shared.map(|held| held.device.clone()));
        self.share(&record).await
    }

    /// Rolls back a claim that cannot be completed. Only instances that the driver was asked for can be the claim's;
    /// others in their place are foreign.
    async fn roll_back(
        self: &Arc<Self>,
        claim: &ClaimRef,
        before: Option<ClaimHold>,
        asked: &BTreeSet<String>,
    ) -> Result<(), Refusal> {
        let Some(ClaimHold { record: mut leftovers, .. }) = self.holds().get(&claim.uid) else {
            return Ok(());
        };
        leftovers.devices.retain(|held| asked.contains(&held.device));
        let Some(mut before) = before.filter(|hold| hold.record.is_unresolved()) else {
            self.holds().change(leftovers);
            return self.release(&claim.uid).await;
        };
        // A record that may hold any device already covers these.
        if !before.may_hold_any() {
            let devices = &mut before.record.devices;
            let is_new =
                |held: &HeldDevice| devices.iter().all(|known| known.device != held.device);
            leftovers.devices.retain(is_new);
            devices.append(&mut leftovers.devices);
        }
        self.holds().restore(&claim.uid, Some(before));
        self.write_record(claim).await
    }

    /// Writes the in-memory record of a claim to disk.
    async fn write_record(self: &Arc<Self>, claim: &ClaimRef) -> Result<(), Refusal> {
        let (inner, uid) = (Arc::clone(self), claim.uid.clone());
        let task = tokio::task::spawn_blocking(move || {
            let _files = inner.shared_files();
            let hold = inner.holds().get(&uid);
            hold.map_or(Ok(()), |hold| inner.store.write(&hold.record))
        });
        let written = task.await.map_err(|error| interrupted(claim, &error))?;
        written.map_err(|error| refusal(&error))
    }

    /// Marks a claim's instances as created. The claim is prepared once its files are written.
    fn made(&self, uid: &str) {
        failpoint::hit("mig.made");
        let mut holds = self.holds();
        if let Some(ClaimHold { record, .. }) = holds.get(uid) {
            let state = RecordState::Prepared;
            holds.change(Record { state, prepared_at: Some(now()), ..record });
        }
    }
}
