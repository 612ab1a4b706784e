//! Makes a claim's MIG instances: the intention on disk, the driver asked, the outcome in memory. A process that
//! dies in between leaves a record from which the next takes back what was made.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_api::Refusal;

use super::holds::Hold;
use super::mig::{Making, Own};
use super::work::{interrupted, now, refusal};
use super::{Devices, Inner};
use crate::checkpoint::{HeldDevice, HeldKind, Record, RecordState};
use crate::crash;

impl Inner {
    /// Makes instances anew that are gone. When that fails the record stays as it was: another attempt finds
    /// them missing again.
    pub(super) async fn make_again(
        self: &Arc<Self>,
        before: Record,
        missing: &BTreeSet<String>,
    ) -> Result<Record, Refusal> {
        let Some(devices) = self.devices() else {
            let (claim, node) = (before.claim.to_string(), self.node.clone());
            return Err(Refusal::NotReady { claim, node });
        };
        let mut intended = Record { state: RecordState::Preparing, ..before.clone() };
        for held in intended.devices.iter_mut().filter(|held| missing.contains(&held.device)) {
            if let HeldKind::Mig(mig) = &mut held.kind {
                mig.made = None;
            }
        }
        self.intend(&intended).await?;
        let own = before.dynamic_mig().map(|(held, mig)| (held.device.clone(), mig.clone()));
        let own: Own = own.collect();
        let mut making = Making::of(intended, &own);
        if let Err(refusal) = self.make(&mut making, &own, &devices).await {
            let devices = before.devices.iter().zip(making.record.devices);
            let devices = devices.map(|(before, now)| match &now.kind {
                HeldKind::Mig(mig) if mig.made.is_none() => before.clone(),
                _ => now,
            });
            let record = Record { devices: devices.collect(), ..before };
            self.holds().change(record.clone());
            self.intend(&record).await?;
            return Err(refusal);
        }
        Ok(self.made(making))
    }

    /// Makes the instances of a claim that is new. When that fails what was made is taken back. What a
    /// damaged record of the claim may hold stays as it was: its containers may run.
    pub(super) async fn make_new(
        self: &Arc<Self>,
        record: Record,
        before: Option<Hold>,
        devices: &Arc<Devices>,
    ) -> Result<Record, Refusal> {
        let uid = record.claim.uid.clone();
        if let Err(refusal) = self.driver(&record.claim) {
            self.holds().restore(&uid, before);
            return Err(refusal);
        }
        // A record of the claim that told too little: its instances may be there.
        let own = record.dynamic_mig().filter(|(wanted, _)| {
            before.as_ref().is_some_and(|hold| {
                let is_named = |held: &HeldDevice| held.device == wanted.device;
                hold.may_hold_any() || hold.record.devices.iter().any(is_named)
            })
        });
        let own: Own = own.map(|(held, mig)| (held.device.clone(), mig.clone())).collect();
        let mut making = Making::of(record, &own);
        let made = match self.intend(&making.record).await {
            Ok(()) => self.make(&mut making, &own, devices).await,
            Err(refusal) => Err(refusal),
        };
        let Err(refusal) = made else { return Ok(self.made(making)) };
        let unresolved = before.filter(|hold| hold.record.is_unresolved());
        let taken_back = if let Some(hold) = unresolved {
            let record = hold.record.clone();
            self.holds().restore(&uid, Some(hold));
            self.intend(&record).await
        } else {
            self.holds().change(making.leftovers());
            self.release(&uid).await
        };
        if let Err(error) = taken_back {
            tracing::warn!(node = %self.node, uid, %error, "what was half-made stays for now");
        }
        Err(refusal)
    }

    /// Writes a claim's record down before the driver is asked for anything.
    async fn intend(self: &Arc<Self>, record: &Record) -> Result<(), Refusal> {
        let (inner, intended) = (Arc::clone(self), record.clone());
        let task = tokio::task::spawn_blocking(move || {
            inner.store.write(&intended).map_err(|error| refusal(&error))?;
            crash::point("mig.intended");
            Ok(())
        });
        task.await.unwrap_or_else(|error| Err(interrupted(&record.claim, &error)))
    }

    /// The record of a claim whose instances are there now; its files are to be written.
    fn made(&self, making: Making) -> Record {
        crash::point("mig.made");
        let record =
            Record { state: RecordState::Prepared, prepared_at: Some(now()), ..making.record };
        self.holds().change(record.clone());
        record
    }
}
