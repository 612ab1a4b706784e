//! Nominations: places that victims must leave first, or that volumes must reach. Victims are
//! evicted, the place is kept, and the pods are bound once it is free and has the volumes.
//!
//! From the decision on, the engine cache has the nominated pods in their places and the victims
//! gone. So no other pod is placed there. [`revoke`] names what ends a nomination early; then its
//! pods are pending again.

mod loans;
mod reconsider;
mod revoke;
mod volumes;

use std::collections::BTreeSet;

use octavo_engine::plan::Placed;
use octavo_engine::workload::MemberId;

use octavo_kube_io::objects::{NodeName, PodUid};

use crate::bind::{Evict, OpKind};
use crate::devices::PodAllocation;
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::pod::{Place, PlaceState, PodRecord};
use crate::state::cycle::verify::VerifiedPlan;
use crate::state::operations::OpPurpose;
use crate::state::queue::{QueueKey, State};
use crate::state::reporter::pending_reason::{PendingReason, Reason};
use crate::status::{StatusText, StatusUpdate};
pub(in crate::state) use revoke::EVICTION_RETRY_DELAY_MS;
use volumes::{AwaitedVolumes, VolumeState};

/// Milliseconds in which the devices of departed victims must become free. A controller deallocates
/// their claims.
const DEALLOCATION_TIMEOUT_MS: u64 = 60_000;
/// Milliseconds that a victim may take to leave beyond its grace period.
const VICTIM_TIMEOUT_MS: u64 = 30_000;

/// Nominated places of an entry.
#[derive(Clone, Debug, Default)]
pub(in crate::state) struct Nomination {
    /// Pods that must leave.
    victims: BTreeSet<PodUid>,
    /// Pods that have left. Their devices may not be free yet.
    departed: BTreeSet<PodUid>,
    /// Pods that run in its places until its victims have left.
    borrowers: BTreeSet<PodUid>,
    /// Whether borrowers were evicted, so that nothing is lent any more.
    is_reclaiming: bool,
    /// Pods that get places.
    members: Vec<PodUid>,
    /// When it is dropped unless its pods are bound, in milliseconds. At first the victims must
    /// leave by then, and once they have, their devices must become free.
    deadline: u64,
    /// When it was decided last, in milliseconds, and for which cluster revision.
    decided_at: u64,
    revision: u64,
    /// The devices that its pods hold while they wait for volumes alone.
    assumed: Vec<PodAllocation>,
    /// The volumes that it waits for, once they are requested.
    volumes: Option<AwaitedVolumes>,
    /// The devices that the members get. They are reserved, so that pods that come later do not take
    /// those of a victim that has left before the others.
    devices: Vec<PodAllocation>,
}

impl Nomination {
    /// Whether it has a place for a pod.
    pub(in crate::state) fn includes(&self, uid: &PodUid) -> bool {
        self.members.contains(uid)
    }

    /// Whether a pod is a victim or a borrower, departed or not.
    pub(super) fn has_victim(&self, uid: &str) -> bool {
        [&self.departed, &self.victims, &self.borrowers].into_iter().any(|pods| pods.contains(uid))
    }

    /// Victims and borrowers, departed ones included.
    pub(super) fn all_victims(&self) -> impl Iterator<Item = &PodUid> {
        self.leaving().chain(&self.departed)
    }

    /// Victims that have not left yet.
    pub(super) fn victims(&self) -> impl Iterator<Item = &PodUid> {
        self.victims.iter()
    }
}

impl Scheduler {
    /// Nominates places for members of an entry, and evicts the victims.
    pub(in crate::state) fn nominate(
        &mut self,
        key: &QueueKey,
        VerifiedPlan { plan, members, devices, .. }: VerifiedPlan,
    ) -> Result<(), PendingReason> {
        let evicted = plan.evictions.iter().copied();
        let moved = plan.moves.iter().map(|step| step.member);
        let mut victims: Vec<(PodUid, bool)> = Vec::new();
        let mut displaced: BTreeSet<QueueKey> = BTreeSet::new();
        for (id, is_moved) in evicted.map(|id| (id, false)).chain(moved.map(|id| (id, true))) {
            let Some(uid) = self.cache.victim(id) else {
                // The engine cache has a pod that the API has not; the next watch event corrects
                // it.
                return Err(PendingReason::Failed(
                    "a victim of the plan no longer exists".to_owned(),
                ));
            };
            if self.cache.is_nominated(&uid) {
                // It runs nowhere yet, so there is nothing to evict.
                displaced.insert(self.cache.queue_key_of(&uid));
            } else {
                victims.push((uid, is_moved));
            }
        }
        for step in &plan.moves {
            if let Some(uid) =
                self.cache.victim(step.member).filter(|uid| !self.cache.is_nominated(uid))
            {
                self.hold_place_for_successor(&uid, &step.to, key);
            }
        }
        let name =
            |placed: &Placed| self.cache.engine().world.cluster.name(placed.placement.node).into();
        let nodes: Vec<NodeName> = members.iter().map(|(_, placed)| name(placed)).collect();
        let distinct: BTreeSet<&NodeName> = nodes.iter().collect();
        let mut nomination = Nomination {
            victims: victims.iter().map(|(uid, _)| uid.clone()).collect(),
            members: members.iter().map(|(uid, _)| uid.clone()).collect(),
            deadline: self.cache.victims_deadline(victims.iter().map(|(uid, _)| uid)).unwrap_or(0),
            decided_at: self.cache.now(),
            revision: self.cache.revision(),
            devices,
            ..Nomination::default()
        };
        let preempted: BTreeSet<_> =
            victims.iter().map(|(uid, _)| self.cache.queue_key_of(uid)).collect();
        for victim in &preempted {
            self.reporter.metrics().preempted(victim);
        }
        let beneficiary = self.cache.beneficiary(key);
        for (uid, is_moved) in &victims {
            let (reason, what) = if *is_moved {
                (Reason::Moved, "restarted elsewhere")
            } else {
                (Reason::Preempted, "preempted")
            };
            self.evict(uid, reason, format!("{what} to make room for {beneficiary}"));
        }
        for other in displaced.iter().filter(|other| *other != key) {
            self.displace_nomination(other, &distinct, &mut nomination);
        }
        // From now on moved pods have their new places in the engine cache.
        self.show_new_successor_places();
        for ((uid, placed), node) in members.iter().zip(&nodes) {
            let gpus = placed.placement.gpus.clone();
            let place = Place { node: node.clone(), gpus, state: PlaceState::Nominated };
            self.cache.set_place(uid, Some(place));
        }
        for (uid, _) in &members {
            self.cache.neighbour_changed(uid);
        }
        if let (QueueKey::Pod(uid), Some(node)) = (key, nodes.first()) {
            // Cluster autoscalers read it. A gang reports the node in its status.
            self.set_nominated_node(uid, Some(node));
        }
        let reason = PendingReason::Nominated {
            pods: nomination.victims.len(),
            nodes: match distinct.first() {
                Some(only) if distinct.len() == 1 => only.to_string(),
                _ => format!("{} nodes", distinct.len()),
            },
        };
        // An older nomination exists if binds of members have failed since.
        self.replace_nomination(key, &distinct, &mut nomination);
        if nomination.victims.is_empty() {
            // Only devices are waited for.
            nomination.deadline = self.cache.now().saturating_add(DEALLOCATION_TIMEOUT_MS);
        }
        self.cache.reserve_devices(&nomination.devices);
        self.reservations.nominations.insert(key.clone(), nomination);
        self.reclaim_loans_on(&distinct);
        self.enqueue(key);
        self.set_pending(key, &reason);
        Ok(())
    }

    fn evict(&mut self, uid: &PodUid, reason: Reason, message: String) {
        let Some(record) = self.cache.pod(uid) else { return };
        let pod = record.reference();
        let is_going = record.pod.meta.deleted.is_some();
        self.cache.set_leaving(uid, true);
        let status_text = StatusText { reason: reason.as_str(), message: message.clone() };
        self.reporter.report(StatusUpdate::PodEvicted { pod: pod.clone(), status_text });
        if is_going {
            return;
        }
        let task = OpKind::Evict(Evict {
            pod,
            message,
            reason: "PreemptionByScheduler",
            is_bound_by_budgets: true,
        });
        self.operations.submit(uid, OpPurpose::Evict, task);
    }

    /// Sets or clears `status.nominatedNodeName`.
    pub(in crate::state) fn set_nominated_node(&mut self, uid: &PodUid, node: Option<&NodeName>) {
        let Some(pod) = self.cache.set_nominated_node(uid, node) else { return };
        let task = OpKind::Nominate { pod, node: node.cloned() };
        self.operations.submit(uid, OpPurpose::Nominate, task);
    }

    /// Handles the end of a write of `status.nominatedNodeName`. What the API has then comes with the
    /// next watch event, or is known already if the write failed.
    pub(in crate::state) fn nominated_node_written(&mut self, uid: &PodUid, has_failed: bool) {
        self.cache.nominated_node_written(uid, has_failed);
        if has_failed {
            let key = QueueKey::Pod(uid.clone());
            if self.queue.is_refused(&key) {
                // The next decision writes it again.
                let at = self
                    .cache
                    .now()
                    .saturating_add(self.cache.config().retry_seconds.saturating_mul(1000));
                self.queue.set_state(&key, State::BackoffUntil(at));
            }
        }
    }

    /// Records that a victim or borrower has left, and completes nominations without further victims.
    pub(in crate::state) fn victim_left(&mut self, uid: &PodUid) {
        let mut free: Vec<QueueKey> = Vec::new();
        for (key, nomination) in &mut self.reservations.nominations {
            if nomination.victims.remove(uid) || nomination.borrowers.remove(uid) {
                nomination.departed.insert(uid.clone());
                if nomination.victims.is_empty() {
                    nomination.deadline = self.cache.now().saturating_add(DEALLOCATION_TIMEOUT_MS);
                    free.push(key.clone());
                }
            }
        }
        for key in free {
            self.complete_nomination(&key);
        }
    }

    /// Retries nominations whose victims have left and whose devices were not free yet. Drops those
    /// whose victims did not leave in time. Returns the next deadline.
    pub(in crate::state) fn retry_nominations(&mut self) -> Option<u64> {
        let due =
            self.reservations.nominations.iter().filter(|(_, nomination)| {
                nomination.victims.is_empty() || nomination.is_reclaiming
            });
        for key in due.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.complete_nomination(&key);
        }
        self.drop_expired_nominations();
        self.reservations.nominations.values().map(|nomination| nomination.deadline).min()
    }

    /// Binds the nominated pods, once borrowers have left, too.
    fn complete_nomination(&mut self, key: &QueueKey) {
        let Some(nomination) = self.reservations.nominations.get(key).cloned() else { return };
        if !nomination.borrowers.is_empty() {
            self.reclaim_loans(key);
            return;
        }
        if !nomination.victims.is_empty() {
            return;
        }
        let mut places = Vec::new();
        for uid in &nomination.members {
            let Some(record) = self.cache.pod(uid) else { continue };
            // A deleted pod needs no place, and a pod bound by another has one.
            let needs_place = record.pod.node.is_none()
                && record.pod.meta.deleted.is_none()
                && !record.pod.has_ended();
            let Some(place) = record.place.clone().filter(|_| needs_place) else { continue };
            places.push((uid.clone(), place));
        }
        if places.is_empty() {
            self.revoke_nomination(key);
            return;
        }
        match self.check_volumes(key, &places) {
            VolumeState::Bound => self.volumes_are_bound(key),
            VolumeState::Waiting => return,
            VolumeState::Failed(uid, words) => {
                self.volumes_failed(key, &uid, &words);
                return;
            }
        }
        // Waiting does not help a pod that has changed so that its node excludes it.
        if places.iter().any(|(uid, place)| self.cache.check_node_rules(uid, &place.node).is_err())
        {
            self.revoke_nomination(key);
            return;
        }
        // The places are reserved like any other, so they must not count as occupied.
        self.cache.release_devices(&nomination.devices);
        for (uid, _) in &places {
            self.cache.devices_mut().forget(uid);
            self.cache.set_place(uid, None);
        }
        let placements: Vec<_> = places
            .iter()
            .filter_map(|(uid, place)| {
                let node = self.cache.engine().node(&place.node)?;
                Some((uid, octavo_engine::Placement { node, gpus: place.gpus.clone() }))
            })
            .collect();
        let result = self.reserve_all(placements.iter().map(|(uid, place)| (*uid, place)));
        match result {
            Ok(assumed) => {
                self.reservations.nominations.remove(key);
                for placement in &assumed {
                    self.forget_volumes(&placement.uid);
                    if self.lent_below(&placement.node).is_some() {
                        // This nomination may have been the one that lent nothing there.
                        self.cache.room_changed(&placement.node);
                    }
                }
                // Its pods may be victims from now on.
                self.cache.victims_changed();
                if let QueueKey::Pod(uid) = key {
                    self.update_queue(&uid.clone());
                }
                self.finish_placement(key, assumed);
            }
            Err((_, words)) => {
                for (uid, place) in places {
                    self.cache.set_place(&uid, Some(place));
                }
                for devices in &nomination.assumed {
                    self.cache.devices_mut().assume(devices);
                }
                if nomination.deadline > self.cache.now() {
                    self.cache.reserve_devices(&nomination.devices);
                    tracing::debug!(entry = ?key, %words, "nominated devices are not free yet");
                } else {
                    tracing::info!(entry = ?key, %words, "nominated devices did not become free in time");
                    self.revoke_nomination(key);
                }
            }
        }
    }

    /// Updates the position of an entry in the queue: nominated entries come first.
    fn enqueue(&mut self, key: &QueueKey) {
        match key {
            QueueKey::Pod(uid) => self.enqueue_pod(uid),
            QueueKey::Group(group) => self.enqueue_group(&group.clone()),
        }
    }
}

impl Cache {
    /// When pods that are evicted now must have left: after the longest grace period among them, and
    /// some time for the kubelet. `None` without pods.
    fn victims_deadline<'a>(&self, victims: impl Iterator<Item = &'a PodUid>) -> Option<u64> {
        let records = victims.filter_map(|uid| self.pod(uid));
        let seconds = records.map(|record| record.pod.spec.grace_seconds).max()?;
        let grace = u64::try_from(seconds).unwrap_or(0).saturating_mul(1000);
        Some(self.now().saturating_add(grace).saturating_add(VICTIM_TIMEOUT_MS))
    }

    /// Whether a pod has a place that victims must leave first.
    fn is_nominated(&self, uid: &PodUid) -> bool {
        self.pod(uid).is_some_and(PodRecord::is_nominated)
    }

    /// Reserves the devices of nominated pods.
    fn reserve_devices(&mut self, devices: &[PodAllocation]) {
        for allocation in devices {
            self.devices_mut().reserve_nominated(allocation);
        }
    }

    /// Ends the reservation of their devices.
    fn release_devices(&mut self, devices: &[PodAllocation]) {
        for allocation in devices {
            self.devices_mut().release_nominated(&allocation.pod);
        }
    }

    fn victim(&self, id: MemberId) -> Option<PodUid> {
        let (uid, _) = self.pods().get_key_value(&**self.engine().holder(id)?)?;
        Some(uid.clone())
    }

    fn beneficiary(&self, key: &QueueKey) -> String {
        match key {
            QueueKey::Pod(uid) => self
                .pod(uid)
                .map_or_else(String::new, |record| format!("pod {}", record.pod.meta.name)),
            QueueKey::Group(group) => group.to_string(),
        }
    }
}
