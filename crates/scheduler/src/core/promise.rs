//! Places that others must leave first: who leaves is asked to, the place is kept, and the order is given
//! when it is free.
//!
//! From the moment of the decision the picture shows the newcomers in their places and the victims gone,
//! so nobody else is put there. A promise that cannot be kept (a victim that may not be evicted, a node
//! that is lost) is taken back, and the newcomers wait again.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::Plan;
use octavo_engine::plan::Placed;
use octavo_engine::workload::MemberId;

use super::pod::{Hold, Place};
use super::queue::{State, Unit};
use super::statement::Blocked;
use super::{Core, FlightKind};
use crate::bind::{Evict, Failure, FailureKind, OpKind};
use crate::status::{StatusText, StatusUpdate};

/// How long the devices of victims that have left may take to become free, in milliseconds: their claims
/// are deallocated by a controller.
const CLEARING: u64 = 60_000;
/// How long somebody who could not be evicted is left alone, in milliseconds.
const LEFT_ALONE: u64 = 30_000;

/// Places that are promised to a unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Promise {
    /// Who must leave.
    victims: BTreeSet<Arc<str>>,
    /// Who has left, and whose devices may not be free yet.
    gone: BTreeSet<Arc<str>>,
    /// Who gets places.
    members: Vec<Arc<str>>,
    /// When it is taken back although all have left.
    until: Option<u64>,
}

impl Promise {
    /// Whether it has a place for a pod.
    pub(super) fn is_to(&self, uid: &Arc<str>) -> bool {
        self.members.contains(uid)
    }

    /// Who must leave and is there yet.
    pub(super) fn victims(&self) -> impl Iterator<Item = &Arc<str>> {
        self.victims.iter()
    }
}

impl Core {
    /// Promises places to members of a unit, and asks those who have them to leave.
    pub(super) fn promise(
        &mut self,
        unit: &Unit,
        members: &[(Arc<str>, Placed)],
        plan: &Plan,
    ) -> Result<(), Blocked> {
        let evicted = plan.evictions.iter().copied();
        let moved = plan.moves.iter().map(|step| step.member);
        let mut victims: Vec<(Arc<str>, bool)> = Vec::new();
        for (id, is_moved) in evicted.map(|id| (id, false)).chain(moved.map(|id| (id, true))) {
            let Some(uid) = self.victim(id) else {
                // The picture has somebody whom the API does not: it is put right by the next change.
                return Err(Blocked::Failed("who was to leave is not known any more".to_owned()));
            };
            victims.push((uid, is_moved));
        }
        for step in &plan.moves {
            if let Some(uid) = self.victim(step.member) {
                self.keep_place_for_successor(&uid, &step.to, unit);
            }
        }
        let reason = self.promise_words(unit);
        for (uid, is_moved) in &victims {
            self.ask_to_leave(uid, &reason, *is_moved);
        }
        // Those who were moved have their new places from now on, in the picture.
        self.take_held_places();
        let mut nodes: BTreeSet<Arc<str>> = BTreeSet::new();
        for (uid, placed) in members {
            let node: Arc<str> = self.picture.world.cluster.name(placed.placement.node).into();
            let gpus = placed.placement.gpus.clone();
            nodes.insert(Arc::clone(&node));
            self.put(uid, Some(Place { node, gpus, hold: Hold::Promised }));
        }
        if let (Unit::Pod(uid), Some(node)) = (unit, nodes.first()) {
            // Autoscalers and people see where it will be. A gang says so in its status.
            self.nominate(uid, Some(node));
        }
        let promise = Promise {
            victims: victims.iter().map(|(uid, _)| Arc::clone(uid)).collect(),
            gone: BTreeSet::new(),
            members: members.iter().map(|(uid, _)| Arc::clone(uid)).collect(),
            until: None,
        };
        let blocked = Blocked::Promised {
            pods: promise.victims.len(),
            nodes: match nodes.len() {
                1 => nodes.into_iter().next().unwrap_or_default().to_string(),
                count => format!("{count} nodes"),
            },
        };
        // An older promise, if members' orders have failed since.
        self.drop_promise_but(unit, &promise);
        self.promises.insert(unit.clone(), promise);
        self.place_in_queue_promised(unit);
        self.block(unit, &blocked);
        self.queue.set(unit, State::Promised);
        Ok(())
    }

    fn victim(&self, id: MemberId) -> Option<Arc<str>> {
        self.picture.holder(id).filter(|holder| self.pods.contains_key(*holder)).cloned()
    }

    fn promise_words(&self, unit: &Unit) -> String {
        match unit {
            Unit::Pod(uid) => self
                .pods
                .get(uid)
                .map_or_else(String::new, |record| format!("pod {}", record.pod.meta.name)),
            Unit::Group(group) => group.to_string(),
        }
    }

    fn ask_to_leave(&mut self, uid: &Arc<str>, for_whom: &str, is_moved: bool) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        record.is_leaving = true;
        let pod = record.reference();
        let is_going = record.pod.meta.deleted.is_some();
        self.refresh(uid);
        let message = if is_moved {
            format!("restarted elsewhere to make room for {for_whom}")
        } else {
            format!("preempted to make room for {for_whom}")
        };
        let reason = if is_moved { "Moved" } else { "Preempted" };
        let status_text = StatusText { reason, message: message.clone() };
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
        self.order(uid, FlightKind::Evict, task);
    }

    pub(super) fn nominate(&mut self, uid: &Arc<str>, node: Option<&Arc<str>>) {
        let Some(record) = self.pods.get(uid) else { return };
        if record.pod.nominated_node.as_ref() == node {
            return;
        }
        let task = OpKind::Nominate { pod: record.reference(), node: node.cloned() };
        self.order(uid, FlightKind::Other, task);
    }

    /// Somebody has left: promises that waited for it go on.
    pub(super) fn victim_left(&mut self, uid: &Arc<str>) {
        let mut free: Vec<Unit> = Vec::new();
        for (unit, promise) in &mut self.promises {
            if promise.victims.remove(uid) {
                promise.gone.insert(Arc::clone(uid));
                if promise.victims.is_empty() {
                    promise.until = Some(self.now.saturating_add(CLEARING));
                    free.push(unit.clone());
                }
            }
        }
        for unit in free {
            self.fulfil(&unit);
        }
    }

    /// Tries promises of which all victims have left and whose devices were not free yet.
    pub(super) fn try_promises(&mut self) {
        let due = self.promises.iter().filter(|(_, promise)| promise.victims.is_empty());
        for unit in due.map(|(unit, _)| unit.clone()).collect::<Vec<_>>() {
            self.fulfil(&unit);
        }
    }

    /// Whether a pod has left for others, and its claims hold devices that are promised.
    pub(super) fn has_left_for_others(&self, uid: &str) -> bool {
        self.promises.values().any(|one| one.gone.contains(uid) || one.victims.contains(uid))
    }

    /// Gives those to whom places were promised their places.
    fn fulfil(&mut self, unit: &Unit) {
        let Some(promise) = self.promises.get(unit).cloned() else { return };
        let mut places = Vec::new();
        for uid in &promise.members {
            let Some(record) = self.pods.get(uid) else { continue };
            // Who is gone needs nothing, and who was bound by somebody else has it.
            let is_there = record.pod.node.is_none() && record.pod.meta.deleted.is_none();
            let Some(place) = record.place.clone().filter(|_| is_there) else { continue };
            places.push((Arc::clone(uid), place));
        }
        // The places are taken as anybody's would be; what was promised is free for it.
        for (uid, _) in &places {
            self.put(uid, None);
        }
        let placements: Vec<_> = places
            .iter()
            .filter_map(|(uid, place)| {
                let node = self.picture.node(&place.node)?;
                Some((uid, octavo_engine::Placement { node, gpus: place.gpus.clone() }))
            })
            .collect();
        let result = self.grant_all(placements.iter().map(|(uid, place)| (*uid, place)));
        match result {
            Ok(granted) => {
                self.promises.remove(unit);
                if let Unit::Pod(uid) = unit {
                    self.place_in_queue(&uid.clone());
                }
                self.placed(unit, granted);
            }
            Err((_, words)) if promise.until.is_some_and(|until| until > self.now) => {
                tracing::debug!(?unit, %words, "what was promised is not free yet");
                for (uid, place) in places {
                    self.put(&uid, Some(place));
                }
            }
            Err((_, words)) => {
                tracing::info!(?unit, %words, "what was promised did not become free");
                for (uid, place) in places {
                    self.put(&uid, Some(place));
                }
                self.drop_promise(unit);
                self.queue.set(unit, State::Ready);
            }
        }
    }

    /// Takes a promise back: who has not left yet stays.
    pub(super) fn drop_promise(&mut self, unit: &Unit) {
        let Some(promise) = self.promises.remove(unit) else { return };
        for uid in &promise.members {
            let is_promised = self
                .pods
                .get(uid)
                .and_then(|record| record.place.as_ref())
                .is_some_and(|place| place.hold == Hold::Promised);
            if is_promised {
                self.put(uid, None);
            }
        }
        for uid in &promise.victims {
            if let Some(record) = self.pods.get_mut(uid) {
                record.is_leaving = false;
                self.refresh(uid);
            }
        }
        if let Unit::Pod(uid) = unit {
            self.nominate(uid, None);
        }
        self.drop_holds_of(unit);
        let nodes: Vec<_> = self.claim_holders.keys().cloned().collect();
        for node in nodes {
            self.refresh_claims(&node);
        }
        self.something_changed();
    }

    /// Takes an older promise to a unit back as far as a newer one does not repeat it.
    fn drop_promise_but(&mut self, unit: &Unit, newer: &Promise) {
        let Some(older) = self.promises.remove(unit) else { return };
        for uid in older.members.iter().filter(|uid| !newer.members.contains(uid)) {
            let place = self.pods.get(uid).and_then(|record| record.place.as_ref());
            if place.is_some_and(|place| place.hold == Hold::Promised) {
                self.put(uid, None);
            }
        }
        for uid in older.victims.iter().filter(|uid| !newer.victims.contains(*uid)) {
            if let Some(record) = self.pods.get_mut(uid) {
                record.is_leaving = false;
                self.refresh(uid);
            }
        }
    }

    /// A node is gone: what was promised there cannot be kept.
    pub(super) fn forget_promises_on(&mut self, node: &str) {
        let is_there = |uid: &Arc<str>| {
            let place = self.pods.get(uid).and_then(|record| record.place.as_ref());
            place.is_some_and(|place| &*place.node == node && place.hold == Hold::Promised)
        };
        let promises = self.promises.iter();
        let lost = promises.filter(|(_, promise)| promise.members.iter().any(is_there));
        for unit in lost.map(|(unit, _)| unit.clone()).collect::<Vec<_>>() {
            self.drop_promise(&unit);
            self.queue.set(&unit, State::Ready);
        }
    }

    /// Somebody could not be evicted.
    pub(super) fn not_evicted(&mut self, uid: &Arc<str>, failure: &Failure) {
        if failure.kind == FailureKind::PodGone {
            // The watch says so, too.
            return;
        }
        if let Some(record) = self.pods.get_mut(uid) {
            record.left_alone_until = self.now.saturating_add(LEFT_ALONE);
            record.profile = None;
            record.is_leaving = false;
            self.left_alone.insert((record.left_alone_until, Arc::clone(uid)));
        }
        self.refresh(uid);
        let promises = self.promises.iter();
        let broken = promises.filter(|(_, promise)| promise.victims.contains(uid));
        for unit in broken.map(|(unit, _)| unit.clone()).collect::<Vec<_>>() {
            self.drop_promise(&unit);
            self.queue.set(&unit, State::Ready);
        }
    }

    /// Those who could not be evicted may be asked again after a while. Says when the next may.
    pub(super) fn ask_again(&mut self) -> Option<u64> {
        loop {
            let (at, uid) = self.left_alone.first()?.clone();
            if at > self.now {
                return Some(at);
            }
            self.left_alone.remove(&(at, Arc::clone(&uid)));
            self.forget_profile(&uid);
            self.refresh(&uid);
            self.something_changed();
        }
    }

    /// Puts a unit to the front of the queue: others have left for it.
    fn place_in_queue_promised(&mut self, unit: &Unit) {
        match unit {
            Unit::Pod(uid) => self.queue_pod(uid),
            Unit::Group(group) => self.queue_group(&group.clone()),
        }
    }
}
