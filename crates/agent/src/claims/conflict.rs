//! Conflicts between claims: finding the holder, and checking whether it still exists.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use octavo_api::Refusal;
use octavo_node::ClaimRef;

use super::claim_holds::{ClaimHold, Conflict};
use super::{Devices, Inner, plan};
use crate::checkpoint::{HeldDevice, Record};

/// How long a claim without an object keeps its GPUs.
///
/// A force-deleted pod takes its claim with it while its containers still end. The kubelet unprepares afterwards,
/// unless it has forgotten the claim. The value is the usual grace period of a pod.
pub(super) const GONE_GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Conflicting claims read from the API server at once. A GPU may have many shares.
const MAX_CONCURRENT_READS: usize = 8;

/// State of a holding claim according to the API server.
pub(super) enum HolderState {
    /// The claim exists and is allocated on this node, with these devices of this driver.
    Valid(Vec<HeldDevice>),
    /// The claim does not exist, has another UID, or lost its allocation.
    Gone,
    /// Its name is unknown, or the API server does not answer.
    Unknown,
}

impl Inner {
    /// Reserves a claim's devices in memory.
    ///
    /// Each conflicting claim is read from the API server once. A claim that has been missing for long enough is
    /// released; an existing one stays.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        record: &Record,
        devices: &Devices,
    ) -> Result<(), Refusal> {
        let mut asked = BTreeSet::from([record.claim.uid.clone()]);
        loop {
            let reserved = {
                let mut holds = self.holds();
                // Under the lock of the reservation: nothing is lent or closed between the two.
                if holds.is_lent() {
                    let (claim, node) = (record.claim.to_string(), self.node.clone());
                    return Err(Refusal::LentToPlugin { claim, node });
                }
                if let Some(held) = holds.closed_device(record) {
                    let (device, claim) = (held.device.clone(), record.claim.to_string());
                    return Err(Refusal::LayoutChanges { device, claim });
                }
                holds.reserve(record.clone(), devices)
            };
            let Err(conflict) = reserved else { return Ok(()) };
            let in_the_way = conflict.holders.iter().filter(|holder| !asked.contains(*holder));
            let mut unasked: Vec<_> = in_the_way.cloned().collect();
            unasked.truncate(MAX_CONCURRENT_READS);
            if unasked.is_empty() {
                return Err(self.refusal_for(&conflict));
            }
            // Wait for all of them: a release must not stop halfway.
            join_all(unasked.iter().map(|holder| self.resolve(holder, Instant::now()))).await;
            asked.extend(unasked);
        }
    }

    /// Releases every claim that has been missing for long enough.
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

    /// Determines the devices of a conflicting claim. Returns whether the state in memory improved.
    async fn resolve(self: &Arc<Self>, uid: &str, now: Instant) -> bool {
        // A claim with a call in progress exists. Waiting for its lock could deadlock.
        let Some(_turn) = self.claim_locks.try_lock(uid) else { return false };
        let Some(hold) = self.holds().get(uid) else { return true };
        let holder_state = self.holder_state(&hold).await;
        let gone_since = match &holder_state {
            HolderState::Gone => self.holds().set_gone(uid, Some(now)),
            HolderState::Valid(_) => self.holds().set_gone(uid, None),
            HolderState::Unknown => None,
        };
        match holder_state {
            HolderState::Gone
                if gone_since.is_none_or(|since| now.duration_since(since) < GONE_GRACE_PERIOD) =>
            {
                false
            }
            HolderState::Gone => match self.release(uid).await {
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
            HolderState::Valid(devices) if hold.may_hold_any() && !devices.is_empty() => {
                let record = Record { devices, ..hold.record };
                // The next repair writes the file. A restart before that only knows less.
                self.holds().insert(record);
                true
            }
            HolderState::Unknown | HolderState::Valid(_) => false,
        }
    }

    /// Reads the state of a holding claim from the API server.
    pub(super) async fn holder_state(&self, hold: &ClaimHold) -> HolderState {
        let claim = &hold.record.claim;
        if claim.name.is_empty() {
            return HolderState::Unknown;
        }
        let object = match self.reader.read(claim).await {
            Err(_) => return HolderState::Unknown,
            Ok(None) => return HolderState::Gone,
            Ok(Some(object)) if object.claim.uid != claim.uid => return HolderState::Gone,
            Ok(Some(object)) => object,
        };
        let here = object.allocation.iter().flat_map(plan::ours).filter(|r| r.pool == self.node);
        let known = self.devices();
        let devices: Vec<_> = here
            .map(|result| {
                let known = known.as_ref();
                let held = known.map(|known| plan::held(&claim.uid, result, known, &self.node));
                // An unknown device counts as the whole GPU.
                held.and_then(Result::ok).unwrap_or_else(|| HeldDevice {
                    requests: vec![result.request.clone()],
                    pool: result.pool.clone(),
                    device: result.device.clone(),
                    admin_access: result.admin_access,
                    ..HeldDevice::default()
                })
            })
            .collect();
        // A claim that was deallocated and allocated again is a different one.
        let is_given = |held: &HeldDevice| {
            devices.iter().any(|device| {
                let is_same_share = held.share_id.is_none() || held.share_id == device.share_id;
                held.device == device.device && is_same_share
            })
        };
        let is_same = hold.record.devices.is_empty() || hold.record.devices.iter().any(is_given);
        if is_same && !devices.is_empty() { HolderState::Valid(devices) } else { HolderState::Gone }
    }

    /// The refusal for a conflict, for the kubelet.
    fn refusal_for(&self, conflict: &Conflict) -> Refusal {
        let Conflict { device, holders, is_possible_only, shortage } = conflict.clone();
        let holds = holders.into_iter().map(|holder| {
            let hold = self.holds().get(&holder);
            (holder, hold)
        });
        let holds: Vec<_> = holds.collect();
        let is_gone =
            |hold: &Option<ClaimHold>| hold.as_ref().is_some_and(|h| h.gone_since.is_some());
        let gone = holds.iter().find(|(_, hold)| is_gone(hold)).cloned();
        let Some((holder, hold)) = gone.or_else(|| holds.first().cloned()) else {
            return Refusal::DeviceInUse { device, holder: "another".to_owned() };
        };
        let is_unresolved = hold.as_ref().is_some_and(|hold| hold.record.is_unresolved());
        if is_possible_only && is_unresolved {
            let mut file = self.store.path(&holder).display().to_string();
            let spec = self.cdi.path(&holder);
            if spec.exists() {
                file = format!("{file} and {}", spec.display());
            }
            return Refusal::DeviceMayBeInUse { device, holder, file };
        }
        let words = |holder: &str, hold: &Option<ClaimHold>| match hold {
            None => format!("UID {holder}"),
            Some(hold) => {
                let claim = &hold.record.claim;
                // Do not repeat the device if the holder has exactly the same.
                match hold.describe_on_gpu(&device) {
                    has if has == device || has.is_empty() => format!("{claim} (UID {holder})"),
                    has => format!("{claim} (UID {holder}, has {has})"),
                }
            }
        };
        if is_gone(&hold) {
            let holder = words(&holder, &hold);
            return Refusal::DeviceNotFreed {
                device,
                holder,
                seconds: GONE_GRACE_PERIOD.as_secs(),
            };
        }
        if let Some((wanted, free)) = shortage {
            let holders: Vec<_> = holds.iter().map(|(holder, hold)| words(holder, hold)).collect();
            return Refusal::ShareDoesNotFit {
                wanted: wanted.words(),
                free: free.words(),
                holders: holders.join(" and "),
                device,
            };
        }
        let holder = words(&holder, &hold);
        Refusal::DeviceInUse { device, holder }
    }
}
