//! Places that volumes must reach first (`WaitForFirstConsumer`).
//!
//! The volume of such a claim is chosen when its pod is placed: an existing volume is reserved for
//! the claim, or one is provisioned for the node. The place is nominated meanwhile. As in
//! kube-scheduler the pod is bound only when all its claims are bound, or decided again if that
//! fails or takes too long.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{NodeName, ObjectName, PodUid};

use super::Nomination;
use crate::bind::{Failure, FailureKind, OpKind, VolumeWrite};
use crate::predicates::{Unfit, VolumeChoice, Volumes};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::pod::{Place, PlaceState};
use crate::state::cycle::reserve::AssumedPlacement;
use crate::state::operations::OpPurpose;
use crate::state::queue::QueueKey;
use crate::state::reporter::pending_reason::PendingReason;

/// Milliseconds in which volumes must be bound: kube-scheduler's `bindTimeoutSeconds`.
const VOLUME_TIMEOUT_MS: u64 = 600_000;

/// The volumes that a nomination waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct AwaitedVolumes {
    /// Claims for which the watch has shown the selected node. Its removal means that provisioning
    /// has failed.
    seen: BTreeSet<ObjectName>,
    /// Existing volumes that are reserved for claims, each with the pod that uses it.
    reserved: BTreeMap<Arc<str>, PodUid>,
}

/// What is known of the volumes of a nomination.
pub(super) enum VolumeState {
    /// All claims are bound.
    Bound,
    /// They are not bound yet.
    Waiting,
    /// The volumes cannot come, for this pod.
    Failed(PodUid, String),
}

impl Scheduler {
    /// Nominates the places of assumed pods whose volumes are not bound yet, and requests these
    /// volumes. Returns the placements if there are no such pods.
    pub(in crate::state) fn await_volumes(
        &mut self,
        key: &QueueKey,
        assumed: Vec<AssumedPlacement>,
    ) -> Option<Vec<AssumedPlacement>> {
        let placed = assumed.iter().map(|placement| (&placement.uid, &placement.node));
        if !placed.clone().any(|(uid, node)| !self.cache.volumes_to_request(uid, node).is_empty()) {
            return Some(assumed);
        }
        let members: Vec<PodUid> = placed.map(|(uid, _)| uid.clone()).collect();
        for AssumedPlacement { uid, node, .. } in &assumed {
            // Its devices stay assumed.
            let place = self.cache.pod(uid).and_then(|record| record.place.clone());
            let nominated = place.map(|place| Place { state: PlaceState::Nominated, ..place });
            self.cache.set_place(uid, nominated);
            self.holders_changed(node);
        }
        for placement in &assumed {
            self.cache.neighbour_changed(&placement.uid);
        }
        let mut nomination = Nomination {
            members,
            assumed: assumed.iter().filter_map(|placement| placement.devices.clone()).collect(),
            decided_at: self.cache.now(),
            revision: self.cache.revision(),
            ..Nomination::default()
        };
        self.request_volumes(&mut nomination);
        if let QueueKey::Pod(uid) = key
            && let Some(placement) = assumed.first()
        {
            self.set_nominated_node(uid, Some(&placement.node));
        }
        let nodes: BTreeSet<&NodeName> = assumed.iter().map(|placement| &placement.node).collect();
        let reason = PendingReason::AwaitsVolumes {
            nodes: match nodes.first() {
                Some(only) if nodes.len() == 1 => format!("node {only}"),
                _ => format!("{} nodes", nodes.len()),
            },
        };
        self.reservations.nominations.insert(key.clone(), nomination);
        self.enqueue(key);
        self.set_pending(key, &reason);
        None
    }

    /// Sets the deadline of a nomination whose volumes are bound: only devices may be missing.
    pub(super) fn volumes_are_bound(&mut self, key: &QueueKey) {
        let at = self.cache.now().saturating_add(super::DEALLOCATION_TIMEOUT_MS);
        if let Some(nomination) = self.reservations.nominations.get_mut(key)
            && nomination.volumes.take().is_some()
        {
            nomination.deadline = nomination.deadline.min(at);
        }
    }

    /// Requests the volumes of all pods of a nomination.
    fn request_volumes(&mut self, nomination: &mut Nomination) {
        let mut awaited = AwaitedVolumes::default();
        nomination.deadline = self.cache.now().saturating_add(VOLUME_TIMEOUT_MS);
        // Members may share a claim.
        let mut requested: BTreeSet<ObjectName> = BTreeSet::new();
        for uid in &nomination.members {
            let Some(record) = self.cache.pod(uid) else { continue };
            let pod = record.reference();
            let Some(node) = record.place.as_ref().map(|place| place.node.clone()) else {
                continue;
            };
            let mut choices = self.cache.volumes_to_request(uid, &node);
            choices.retain(|choice| requested.insert(choice.claim().clone()));
            self.cache.assume_volumes(&choices);
            self.cache.select_node(&choices, &node);
            for choice in &choices {
                if let VolumeChoice::Bind { volume, .. } = choice {
                    awaited.reserved.insert(Arc::clone(volume), uid.clone());
                }
            }
            let writes: Vec<_> = choices
                .iter()
                .filter_map(|choice| self.cache.volume_write(choice, &node))
                .collect();
            if !writes.is_empty() {
                let task = OpKind::RequestVolumes { pod, node, writes };
                self.operations.submit(uid, OpPurpose::RequestVolumes, task);
            }
        }
        nomination.volumes = Some(awaited);
    }

    /// Looks at the volumes of a nomination whose victims have left. Requests them first, if that
    /// was not done.
    pub(super) fn check_volumes(
        &mut self,
        key: &QueueKey,
        places: &[(PodUid, Place)],
    ) -> VolumeState {
        let Some(mut nomination) = self.reservations.nominations.get(key).cloned() else {
            return VolumeState::Bound;
        };
        let mut reserved = nomination.volumes.iter().flat_map(|awaited| &awaited.reserved);
        let gone = reserved.find(|(volume, _)| self.cache.volumes().volume(volume).is_none());
        if let Some((volume, uid)) = gone {
            return VolumeState::Failed(uid.clone(), format!("volume {volume} was deleted"));
        }
        let mut is_waiting = false;
        for (uid, place) in places {
            let choices = match self.cache.choose_volumes(uid, &place.node) {
                Ok(choices) => choices,
                Err(unfit) => return VolumeState::Failed(uid.clone(), unfit.to_string()),
            };
            let record = self.cache.pod(uid);
            is_waiting |= !choices.is_empty()
                || (nomination.volumes.is_some()
                    && record.is_some_and(|record| self.cache.volumes().is_binding(&record.pod)));
            let Some(awaited) = &mut nomination.volumes else { continue };
            for choice in &choices {
                let VolumeChoice::Provision { claim } = choice else { continue };
                if self.cache.volumes().selected_node(claim) == Some(&*place.node) {
                    awaited.seen.insert(claim.clone());
                } else if awaited.seen.contains(claim) {
                    let words = format!("provisioning the volume of claim {claim} failed");
                    return VolumeState::Failed(uid.clone(), words);
                }
            }
        }
        if !is_waiting {
            return VolumeState::Bound;
        }
        if nomination.volumes.is_none() {
            self.request_volumes(&mut nomination);
        }
        self.reservations.nominations.insert(key.clone(), nomination);
        VolumeState::Waiting
    }

    /// Drops a nomination whose volumes cannot come. Its entry is decided again after a delay.
    pub(in crate::state) fn volumes_failed(&mut self, key: &QueueKey, uid: &PodUid, words: &str) {
        let failure = Failure::new("waiting for volumes", FailureKind::Rejected, words);
        self.fail_volumes(key, uid, &failure);
    }

    /// Handles a failed request of volumes.
    pub(in crate::state) fn volume_request_failed(&mut self, uid: &PodUid, failure: &Failure) {
        let key = self.cache.queue_key_of(uid);
        let is_waiting =
            |nomination: &Nomination| nomination.volumes.is_some() && nomination.includes(uid);
        if self.reservations.nominations.get(&key).is_some_and(is_waiting) {
            self.fail_volumes(&key, uid, failure);
        }
    }

    fn fail_volumes(&mut self, key: &QueueKey, uid: &PodUid, failure: &Failure) {
        self.revoke_nomination(key);
        self.requeue_after_failure(uid, failure);
    }
}

impl Cache {
    /// How the claims of a pod that are not bound get volumes on a node; empty if all are bound.
    fn volumes_to_request(&self, uid: &PodUid, node: &str) -> Vec<VolumeChoice> {
        self.choose_volumes(uid, node).unwrap_or_default()
    }

    /// How the claims of a pod that are not bound get volumes on a node.
    pub(in crate::state) fn choose_volumes(
        &self,
        uid: &PodUid,
        node: &str,
    ) -> Result<Vec<VolumeChoice>, Unfit> {
        let (Some(record), Some(target)) = (self.pod(uid), self.node(node)) else {
            return Ok(Vec::new());
        };
        if !Volumes::uses_claims(&record.pod) {
            return Ok(Vec::new());
        }
        self.volumes().choose_volumes(&record.pod, node, &target.node.meta.labels)
    }

    /// The write for a volume; `None` if it has been made.
    fn volume_write(&self, choice: &VolumeChoice, node: &str) -> Option<VolumeWrite> {
        match choice {
            VolumeChoice::Provision { claim } => {
                let is_requested = self.volumes().selected_node(claim) == Some(node);
                let claim = self.volumes().claim(claim).filter(|_| !is_requested)?;
                Some(VolumeWrite::Provision {
                    claim: claim.meta.name.clone(),
                    uid: claim.meta.uid.clone(),
                })
            }
            VolumeChoice::Bind { claim, volume } => {
                let (claim, volume) =
                    (self.volumes().claim(claim)?, self.volumes().volume(volume)?);
                let is_bound = volume.claim.as_ref().is_some_and(|(_, uid)| *uid == claim.meta.uid);
                (!is_bound).then(|| VolumeWrite::Bind {
                    volume: volume.meta.name.name.clone(),
                    version: volume.meta.version.clone(),
                    claim: claim.meta.name.clone(),
                    claim_uid: claim.meta.uid.clone(),
                })
            }
        }
    }
}
