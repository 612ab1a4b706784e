//! Two claims, one GPU: who is in the way, and whether it still is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_api::Refusal;

use super::holds::{Conflict, Hold};
use super::{Inner, plan};
use crate::checkpoint::{HeldDevice, Record, RecordState};
use crate::node::ClaimRef;

/// How long a claim that is gone keeps its GPUs. A pod that was deleted by force takes its claim with it while
/// its containers still end; the kubelet unprepares when they have. Only a kubelet that has forgotten the
/// claim never does. As long as a pod's usual grace period.
pub(super) const GONE_PATIENCE: Duration = Duration::from_secs(30);

/// What the API server says of a claim that holds something.
enum Standing {
    /// It is there and has its allocation on this node: the devices of it that are ours.
    Valid(Vec<HeldDevice>),
    /// It is gone, is another claim of the same name, or has lost its allocation.
    Gone,
    /// Nothing is known: its name is not, or the API server does not answer.
    Unknown,
}

impl Inner {
    /// Gives a claim its devices in memory. Another claim in the way is asked for at the API server: one
    /// that is gone for long enough is cleaned up, one that is there stays.
    pub(super) async fn reserve(self: &Arc<Self>, record: &Record) -> Result<(), Refusal> {
        // Each round resolves one claim in the way; more rounds than claims cannot help.
        let rounds = self.holds().uids().len() + 1;
        for _ in 0..rounds {
            let Err(conflict) = self.holds().reserve(record.clone()) else { return Ok(()) };
            if conflict.holder == record.claim.uid
                || !self.resolve(&conflict.holder, Instant::now()).await
            {
                return Err(self.refusal_for(&conflict));
            }
        }
        let conflict = self.holds().reserve(record.clone()).err();
        conflict.map_or(Ok(()), |conflict| Err(self.refusal_for(&conflict)))
    }

    /// Cleans up after every claim that is gone for long enough.
    pub(super) async fn sweep_gone(self: &Arc<Self>, now: Instant) -> Vec<ClaimRef> {
        let mut released = Vec::new();
        let uids = self.holds().uids();
        for uid in uids {
            let Some(hold) = self.holds().get(&uid) else { continue };
            if self.resolve(&uid, now).await && self.holds().get(&uid).is_none() {
                released.push(hold.record.claim);
            }
        }
        released
    }

    /// Finds out what a claim in the way holds; says whether memory knows more than before.
    async fn resolve(self: &Arc<Self>, uid: &str, now: Instant) -> bool {
        // A claim that is being worked on is there. Waiting for its turn could wait for ourselves.
        let Some(_turn) = self.turns.try_take(uid) else { return false };
        let Some(hold) = self.holds().get(uid) else { return true };
        let standing = self.standing(&hold).await;
        let gone_since = match &standing {
            Standing::Gone => self.holds().set_gone(uid, Some(now)),
            Standing::Valid(_) => self.holds().set_gone(uid, None),
            Standing::Unknown => None,
        };
        match standing {
            Standing::Gone
                if gone_since.is_none_or(|since| now.duration_since(since) < GONE_PATIENCE) =>
            {
                false
            }
            Standing::Gone => match self.release(uid).await {
                Ok(()) => {
                    let claim = &hold.record.claim;
                    tracing::info!(%claim, uid, "cleaned up a claim that is gone");
                    true
                }
                Err(refusal) => {
                    tracing::warn!(uid, %refusal, "could not clean up a claim that is gone");
                    false
                }
            },
            Standing::Valid(devices) if hold.may_hold_any() && !devices.is_empty() => {
                let record = Record { devices, ..hold.record };
                // The file follows with the next repair; until then a restart only knows less.
                self.holds().insert(record);
                true
            }
            Standing::Unknown | Standing::Valid(_) => false,
        }
    }

    /// Asks the API server for a claim that holds something.
    async fn standing(&self, hold: &Hold) -> Standing {
        let claim = &hold.record.claim;
        if claim.name.is_empty() {
            return Standing::Unknown;
        }
        let object = match self.reader.read(claim).await {
            Err(_) => return Standing::Unknown,
            Ok(None) => return Standing::Gone,
            Ok(Some(object)) if object.claim.uid != claim.uid => return Standing::Gone,
            Ok(Some(object)) => object,
        };
        let here = object.allocation.iter().flat_map(plan::ours).filter(|r| r.pool == self.node);
        let devices: Vec<_> = here
            .map(|result| HeldDevice {
                requests: vec![result.request.clone()],
                pool: result.pool.clone(),
                device: result.device.clone(),
                uuid: String::new(),
                admin_access: result.admin_access,
                cdi_ids: Vec::new(),
            })
            .collect();
        // An allocation that was taken back and given anew elsewhere is another one.
        let is_same = hold.record.devices.is_empty()
            || devices
                .iter()
                .any(|device| hold.record.devices.iter().any(|held| held.device == device.device));
        if is_same && !devices.is_empty() { Standing::Valid(devices) } else { Standing::Gone }
    }

    /// What the kubelet hears of a conflict.
    fn refusal_for(&self, conflict: &Conflict) -> Refusal {
        let Conflict { device, holder, is_possible_only } = conflict.clone();
        let hold = self.holds().get(&holder);
        let is_unresolved =
            hold.as_ref().is_some_and(|hold| hold.record.state == RecordState::Unresolved);
        if is_possible_only && is_unresolved {
            let mut file = self.store.path(&holder).display().to_string();
            let spec = self.cdi.path(&holder);
            if spec.exists() {
                file = format!("{file} and {}", spec.display());
            }
            return Refusal::DeviceMayBeInUse { device, holder, file };
        }
        let is_gone = hold.as_ref().is_some_and(|hold| hold.gone_since.is_some());
        let holder = match hold {
            Some(hold) => format!("{} (UID {holder})", hold.record.claim),
            None => format!("UID {holder}"),
        };
        if is_gone {
            return Refusal::DeviceNotFreed { device, holder, seconds: GONE_PATIENCE.as_secs() };
        }
        Refusal::DeviceInUse { device, holder }
    }
}
