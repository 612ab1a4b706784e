//! Makes a claim's MIG instances: the intention on disk, the driver asked, the outcome in memory. A process that
//! dies in between leaves a record from which the next takes back what was made, or, where the claim's
//! containers may run, finds it in its place.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_api::Refusal;

use crate::checkpoint::{HeldDevice, Record, RecordState};
use crate::claims::claim_holds::ClaimHold;
use crate::claims::mig::FormerInstances;
use crate::claims::prepare::{interrupted, now, refusal};
use crate::claims::{Devices, Inner};
use crate::failpoint;
use crate::node::ClaimRef;

impl Inner {
    /// Makes instances anew that are gone. What else the claim has stays as it is, whatever comes of it: its
    /// containers may run.
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
            tracing::warn!(node = %self.node, claim = %before.claim, %error, "what was made anew is not written down yet");
        }
        made
    }

    /// Makes the instances of a claim that is new and has its devices in memory. When that fails what was
    /// made is taken back. What a damaged record of the claim may hold stays: its containers may run.
    pub(in crate::claims) async fn create_for_new_claim(
        self: &Arc<Self>,
        record: &Record,
        before: Option<ClaimHold>,
        devices: &Devices,
    ) -> Result<(), Refusal> {
        if let Err(refusal) = self.driver(&record.claim) {
            self.holds().restore(&record.claim.uid, before);
            return Err(refusal);
        }
        // A record of the claim that told too little: its instances may be there.
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
                self.make(record, &own, &mut asked, devices).await
            }
            Err(refusal) => Err(refusal),
        };
        if made.is_ok() {
            self.made(&record.claim.uid);
        } else if let Err(error) = self.roll_back(&record.claim, before, &asked).await {
            tracing::warn!(node = %self.node, claim = %record.claim, %error, "what was half-made stays for now");
        }
        made
    }

    /// Takes back what was made of a claim that cannot be made whole. Only that for which the driver was
    /// asked may be there: what else is in its place is somebody else's.
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
        // One that may hold any may hold these.
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

    /// Writes down what memory says of a claim.
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

    /// The claim has its instances: it is prepared as soon as its files are written.
    fn made(&self, uid: &str) {
        failpoint::hit("mig.made");
        let mut holds = self.holds();
        if let Some(ClaimHold { record, .. }) = holds.get(uid) {
            let state = RecordState::Prepared;
            holds.change(Record { state, prepared_at: Some(now()), ..record });
        }
    }
}
