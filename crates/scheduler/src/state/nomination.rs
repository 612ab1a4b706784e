//! Nominations: places that victims must leave first. Victims are evicted, the place is kept, and
//! the pods are bound once it is free.
//!
//! From the decision on, the engine cache has the nominated pods in their places and the victims
//! gone. So no other pod is placed there. A nomination is dropped if a victim cannot be evicted or
//! a node is lost; then its pods are pending again.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::Plan;
use octavo_engine::plan::Placed;
use octavo_engine::workload::MemberId;

use octavo_kube_io::objects::PodUid;

use super::pending_reason::{PendingReason, Reason};
use super::pod::{Place, PlaceState};
use super::queue::{QueueKey, State};
use super::{OpPurpose, Scheduler};
use crate::bind::{Evict, Failure, FailureKind, OpKind};
use crate::status::{StatusText, StatusUpdate};

/// Milliseconds in which the devices of departed victims must become free. A controller deallocates
/// their claims.
const DEALLOCATION_TIMEOUT_MS: u64 = 60_000;
/// Milliseconds after a failed eviction before the pod can be a victim again.
const EVICTION_RETRY_DELAY_MS: u64 = 30_000;

/// Nominated places of an entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Nomination {
    /// Pods that must leave.
    victims: BTreeSet<PodUid>,
    /// Pods that have left. Their devices may not be free yet.
    departed: BTreeSet<PodUid>,
    /// Pods that get places.
    members: Vec<PodUid>,
    /// When the nomination is dropped although all victims have left, in milliseconds.
    deadline: Option<u64>,
}

impl Nomination {
    /// Whether it has a place for a pod.
    pub(super) fn includes(&self, uid: &PodUid) -> bool {
        self.members.contains(uid)
    }

    /// Victims that have not left yet.
    pub(super) fn victims(&self) -> impl Iterator<Item = &PodUid> {
        self.victims.iter()
    }
}

impl Scheduler {
    /// Nominates places for members of an entry, and evicts the victims.
    pub(super) fn nominate(
        &mut self,
        key: &QueueKey,
        members: &[(PodUid, Placed)],
        plan: &Plan,
    ) -> Result<(), PendingReason> {
        let evicted = plan.evictions.iter().copied();
        let moved = plan.moves.iter().map(|step| step.member);
        let mut victims: Vec<(PodUid, bool)> = Vec::new();
        for (id, is_moved) in evicted.map(|id| (id, false)).chain(moved.map(|id| (id, true))) {
            let Some(uid) = self.victim(id) else {
                // The engine cache has a pod that the API has not; the next watch event corrects
                // it.
                return Err(PendingReason::Failed(
                    "a victim of the plan no longer exists".to_owned(),
                ));
            };
            victims.push((uid, is_moved));
        }
        for step in &plan.moves {
            if let Some(uid) = self.victim(step.member) {
                self.hold_place_for_successor(&uid, &step.to, key);
            }
        }
        let preempted: BTreeSet<_> =
            victims.iter().map(|(uid, _)| self.queue_key_of(uid)).collect();
        for victim in &preempted {
            self.metric_events.preempted(victim);
        }
        let beneficiary = self.beneficiary(key);
        for (uid, is_moved) in &victims {
            self.evict(uid, &beneficiary, *is_moved);
        }
        // From now on moved pods have their new places in the engine cache.
        self.show_new_successor_places();
        let mut nodes: BTreeSet<Arc<str>> = BTreeSet::new();
        for (uid, placed) in members {
            let node: Arc<str> = self.engine.world.cluster.name(placed.placement.node).into();
            let gpus = placed.placement.gpus.clone();
            nodes.insert(Arc::clone(&node));
            self.set_place(uid, Some(Place { node, gpus, state: PlaceState::Nominated }));
        }
        if let (QueueKey::Pod(uid), Some(node)) = (key, nodes.first()) {
            // Cluster autoscalers read it. A gang reports the node in its status.
            self.set_nominated_node(uid, Some(node));
        }
        let nomination = Nomination {
            victims: victims.iter().map(|(uid, _)| uid.clone()).collect(),
            departed: BTreeSet::new(),
            members: members.iter().map(|(uid, _)| uid.clone()).collect(),
            deadline: None,
        };
        let reason = PendingReason::Nominated {
            pods: nomination.victims.len(),
            nodes: match nodes.len() {
                1 => nodes.into_iter().next().unwrap_or_default().to_string(),
                count => format!("{count} nodes"),
            },
        };
        // An older nomination exists if binds of members have failed since.
        self.replace_nomination(key, &nomination);
        self.nominations.insert(key.clone(), nomination);
        self.enqueue_nominated(key);
        self.set_pending(key, &reason);
        self.queue.set_state(key, State::Nominated);
        Ok(())
    }

    fn victim(&self, id: MemberId) -> Option<PodUid> {
        let (uid, _) = self.pods.get_key_value(&**self.engine.holder(id)?)?;
        Some(uid.clone())
    }

    fn beneficiary(&self, key: &QueueKey) -> String {
        match key {
            QueueKey::Pod(uid) => self
                .pods
                .get(uid)
                .map_or_else(String::new, |record| format!("pod {}", record.pod.meta.name)),
            QueueKey::Group(group) => group.to_string(),
        }
    }

    fn evict(&mut self, uid: &PodUid, beneficiary: &str, is_moved: bool) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        record.is_leaving = true;
        let pod = record.reference();
        let is_going = record.pod.meta.deleted.is_some();
        self.refresh_pod(uid);
        let message = if is_moved {
            format!("restarted elsewhere to make room for {beneficiary}")
        } else {
            format!("preempted to make room for {beneficiary}")
        };
        let reason = if is_moved { Reason::Moved } else { Reason::Preempted };
        let status_text = StatusText { reason: reason.as_str(), message: message.clone() };
        self.reports.push(StatusUpdate::PodEvicted { pod: pod.clone(), status_text });
        if is_going {
            return;
        }
        let task = OpKind::Evict(Evict {
            pod,
            message,
            reason: "PreemptionByScheduler",
            is_bound_by_budgets: true,
        });
        self.submit(uid, OpPurpose::Evict, task);
    }

    pub(super) fn set_nominated_node(&mut self, uid: &PodUid, node: Option<&Arc<str>>) {
        let Some(record) = self.pods.get(uid) else { return };
        if record.pod.nominated_node.as_ref() == node {
            return;
        }
        let task = OpKind::Nominate { pod: record.reference(), node: node.cloned() };
        self.submit(uid, OpPurpose::Other, task);
    }

    /// Records that a victim has left, and completes nominations without further victims.
    pub(super) fn victim_left(&mut self, uid: &PodUid) {
        let mut free: Vec<QueueKey> = Vec::new();
        for (key, nomination) in &mut self.nominations {
            if nomination.victims.remove(uid) {
                nomination.departed.insert(uid.clone());
                if nomination.victims.is_empty() {
                    nomination.deadline = Some(self.now.saturating_add(DEALLOCATION_TIMEOUT_MS));
                    free.push(key.clone());
                }
            }
        }
        for key in free {
            self.complete_nomination(&key);
        }
    }

    /// Retries nominations whose victims have left and whose devices were not free yet.
    pub(super) fn retry_nominations(&mut self) {
        let due = self.nominations.iter().filter(|(_, nomination)| nomination.victims.is_empty());
        for key in due.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.complete_nomination(&key);
        }
    }

    /// Whether a nomination has this pod as a victim: its claims hold nominated devices.
    pub(super) fn is_nomination_victim(&self, uid: &str) -> bool {
        self.nominations
            .values()
            .any(|nomination| nomination.departed.contains(uid) || nomination.victims.contains(uid))
    }

    /// Binds the nominated pods.
    fn complete_nomination(&mut self, key: &QueueKey) {
        let Some(nomination) = self.nominations.get(key).cloned() else { return };
        let mut places = Vec::new();
        for uid in &nomination.members {
            let Some(record) = self.pods.get(uid) else { continue };
            // A deleted pod needs no place, and a pod bound by another has one.
            let needs_place = record.pod.node.is_none() && record.pod.meta.deleted.is_none();
            let Some(place) = record.place.clone().filter(|_| needs_place) else { continue };
            places.push((uid.clone(), place));
        }
        // The places are reserved like any other, so they must not count as occupied.
        for (uid, _) in &places {
            self.set_place(uid, None);
        }
        let placements: Vec<_> = places
            .iter()
            .filter_map(|(uid, place)| {
                let node = self.engine.node(&place.node)?;
                Some((uid, octavo_engine::Placement { node, gpus: place.gpus.clone() }))
            })
            .collect();
        let result = self.reserve_all(placements.iter().map(|(uid, place)| (*uid, place)));
        match result {
            Ok(assumed) => {
                self.nominations.remove(key);
                if let QueueKey::Pod(uid) = key {
                    self.update_queue(&uid.clone());
                }
                self.finish_placement(key, assumed);
            }
            Err((_, words)) if nomination.deadline.is_some_and(|deadline| deadline > self.now) => {
                tracing::debug!(unit = ?key, %words, "nominated devices are not free yet");
                for (uid, place) in places {
                    self.set_place(&uid, Some(place));
                }
            }
            Err((_, words)) => {
                tracing::info!(unit = ?key, %words, "nominated devices did not become free in time");
                for (uid, place) in places {
                    self.set_place(&uid, Some(place));
                }
                self.drop_nomination(key);
                self.queue.set_state(key, State::Ready);
            }
        }
    }

    /// Drops a nomination: victims that have not left yet stay.
    pub(super) fn drop_nomination(&mut self, key: &QueueKey) {
        let Some(nomination) = self.nominations.remove(key) else { return };
        for uid in &nomination.members {
            let is_nominated = self
                .pods
                .get(uid)
                .and_then(|record| record.place.as_ref())
                .is_some_and(|place| place.state == PlaceState::Nominated);
            if is_nominated {
                self.set_place(uid, None);
            }
        }
        for uid in &nomination.victims {
            if let Some(record) = self.pods.get_mut(uid) {
                record.is_leaving = false;
                self.refresh_pod(uid);
            }
        }
        if let QueueKey::Pod(uid) = key {
            self.set_nominated_node(uid, None);
        }
        self.drop_successor_places_of(key);
        let nodes: Vec<_> = self.claim_holders.keys().cloned().collect();
        for node in nodes {
            self.refresh_claim_holders(&node);
        }
        self.cluster_changed();
    }

    /// Drops an older nomination, except for members and victims of the newer one.
    fn replace_nomination(&mut self, key: &QueueKey, newer: &Nomination) {
        let Some(older) = self.nominations.remove(key) else { return };
        for uid in older.members.iter().filter(|uid| !newer.members.contains(uid)) {
            let place = self.pods.get(uid).and_then(|record| record.place.as_ref());
            if place.is_some_and(|place| place.state == PlaceState::Nominated) {
                self.set_place(uid, None);
            }
        }
        for uid in older.victims.iter().filter(|uid| !newer.victims.contains(*uid)) {
            if let Some(record) = self.pods.get_mut(uid) {
                record.is_leaving = false;
                self.refresh_pod(uid);
            }
        }
    }

    /// Drops the nominations on a deleted node.
    pub(super) fn drop_nominations_on(&mut self, node: &str) {
        let is_nominated_there = |uid: &PodUid| {
            let place = self.pods.get(uid).and_then(|record| record.place.as_ref());
            place.is_some_and(|place| &*place.node == node && place.state == PlaceState::Nominated)
        };
        let nominations = self.nominations.iter();
        let lost =
            nominations.filter(|(_, nomination)| nomination.members.iter().any(is_nominated_there));
        for key in lost.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.drop_nomination(&key);
            self.queue.set_state(&key, State::Ready);
        }
    }

    /// Handles a failed eviction: the nominations of this victim are dropped.
    pub(super) fn eviction_failed(&mut self, uid: &PodUid, failure: &Failure) {
        if failure.kind == FailureKind::PodGone {
            // The watch delivers the deletion.
            return;
        }
        if let Some(record) = self.pods.get_mut(uid) {
            record.eviction_retry_at = self.now.saturating_add(EVICTION_RETRY_DELAY_MS);
            record.profile = None;
            record.is_leaving = false;
            self.eviction_retries.insert((record.eviction_retry_at, uid.clone()));
        }
        self.refresh_pod(uid);
        let nominations = self.nominations.iter();
        let broken = nominations.filter(|(_, nomination)| nomination.victims.contains(uid));
        for key in broken.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.drop_nomination(&key);
            self.queue.set_state(&key, State::Ready);
        }
    }

    /// Allows pods to be victims again after their delay. Returns the next deadline.
    pub(super) fn retry_evictions(&mut self) -> Option<u64> {
        loop {
            let (at, uid) = self.eviction_retries.first()?.clone();
            if at > self.now {
                return Some(at);
            }
            self.eviction_retries.remove(&(at, uid.clone()));
            self.forget_profile(&uid);
            self.refresh_pod(&uid);
            self.cluster_changed();
        }
    }

    /// Moves an entry to the front of the queue: victims leave for it.
    fn enqueue_nominated(&mut self, key: &QueueKey) {
        match key {
            QueueKey::Pod(uid) => self.enqueue_pod(uid),
            QueueKey::Group(group) => self.enqueue_group(&group.clone()),
        }
    }
}
