//! What became of orders.

use std::sync::Arc;

use super::grant::Granted;
use super::queue::{State, Unit};
use super::statement::Blocked;
use super::{Core, Decided, Flight, FlightKind};
use crate::bind::{Failure, FailureKind, OpId, OpResult};
use crate::status::StatusUpdate;

/// Most doublings of the wait between tries.
const MOST_DOUBLINGS: u32 = 4;

impl Core {
    /// A unit has its places: the orders are given. Who of a gang has none is decided on anew.
    pub(super) fn placed(&mut self, unit: &Unit, granted: Vec<Granted>) {
        self.order_places(unit, granted);
        match unit {
            Unit::Pod(_) => self.queue.remove(unit),
            Unit::Group(group) => {
                if self.settle_group(group) {
                    self.queue.set(unit, State::Ready);
                }
                self.report_group(group);
            }
        }
    }

    /// A gang has as many places as there are for it: the orders are given, and who waits still is told
    /// why.
    pub(super) fn gang_placed(&mut self, unit: &Unit, granted: Vec<Granted>, why: &Blocked) {
        self.order_places(unit, granted);
        let Unit::Group(group) = unit else { return };
        if self.settle_group(group) {
            // The gang's status says it, too.
            self.block(unit, why);
        } else {
            self.report_group(group);
        }
    }

    fn order_places(&mut self, unit: &Unit, granted: Vec<Granted>) {
        for one in granted {
            self.order_grant(one);
        }
        let is_gang = matches!(unit, Unit::Group(_));
        self.decided.push(Decided { is_gang, result: "placed", reason: "" });
        self.waiting.remove(unit);
    }

    /// Takes a gang out of the queue when nobody of it waits. Says whether somebody does.
    fn settle_group(&mut self, group: &crate::groups::GroupName) -> bool {
        let waits = self.has_waiting_members(group);
        if waits {
            self.queue_group(group);
        } else {
            self.queue.remove(&Unit::Group(group.clone()));
        }
        waits
    }

    /// Takes in what became of an order.
    pub fn outcome(&mut self, outcome: &OpResult) {
        let Some(flight) = self.flying.remove(&outcome.id) else { return };
        if matches!(&outcome.result, Err(failure) if failure.kind == FailureKind::NotLeader) {
            // Also where it was for so short that nobody else has noticed.
            self.others_may_have_led();
        }
        let uid = Arc::clone(&flight.pod);
        if let (Some(bind), Err(_)) = (&flight.bind, &outcome.result) {
            self.devices.note_rollback(bind, self.pods.contains_key(&uid));
        }
        match (flight.kind, &outcome.result) {
            (FlightKind::Bind, Ok(())) => {
                self.no_doubt(&uid);
                self.bound(&uid);
            }
            (FlightKind::Bind, Err(failure)) => {
                self.not_bound(&uid, outcome.id, flight, failure);
            }
            (FlightKind::Evict, Err(failure)) => self.not_evicted(&uid, failure),
            (FlightKind::Repair, Err(_)) => self.not_repaired(&uid),
            (FlightKind::Undo, result) => self.undone(&uid, outcome.id, result),
            (FlightKind::Evict | FlightKind::Repair | FlightKind::Other, _) => {}
        }
    }

    pub(super) fn bound(&mut self, uid: &Arc<str>) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        record.failures = 0;
        let Some(place) = &record.place else { return };
        let report =
            StatusUpdate::PodBound { pod: record.reference(), node: Arc::clone(&place.node) };
        let group = record.member.as_ref().map(|member| member.group.clone());
        self.reports.push(report);
        if let Some(group) = group {
            self.report_group(&group);
        }
    }

    fn not_bound(&mut self, uid: &Arc<str>, id: OpId, flight: Flight, failure: &Failure) {
        let Some(record) = self.pods.get_mut(uid) else {
            self.let_go(uid);
            return;
        };
        if record.pod.node.is_some() {
            // The API said meanwhile that it is bound, so it is; by this order, if nobody else has led.
            self.no_doubt(uid);
            if flight.is_outlived || failure.kind == FailureKind::NotLeader {
                self.accept_observed(uid);
            }
            return;
        }
        if failure.kind == FailureKind::AlreadyBound {
            // The watch will say where; until then its place stays counted.
            self.no_doubt(uid);
            self.accept_observed(uid);
            return;
        }
        if failure.is_undecided() {
            // It may be bound, or its claims allocated. Its place stays its own until that is known.
            self.doubt(uid, id, flight, failure);
            return;
        }
        if self.is_still_doubtful(uid, failure) {
            return;
        }
        self.doubtful.remove(uid);
        self.not_placed(uid, failure);
    }

    /// What was decided for a pod is forgotten. A claim that it was to allocate may be allocated all the same:
    /// who is on the way to use it has it then.
    pub(super) fn let_go(&mut self, uid: &Arc<str>) {
        let heirs = self.flying.values().filter(|flight| flight.bind.is_some());
        let heirs = heirs.map(|flight| &flight.pod).chain(self.doubtful.keys());
        let heirs = heirs.filter(|other| *other != uid).cloned().collect();
        self.devices.transfer_assumed(uid, &heirs);
        self.devices.forget(uid);
    }

    /// A pod is bound, and maybe by another with other devices of the same node.
    pub(super) fn accept_observed(&mut self, uid: &Arc<str>) {
        if self.devices.accept_observed(uid).is_empty() {
            return;
        }
        let place = self.pods.get(uid).and_then(|record| record.place.as_ref());
        if let Some(node) = place.map(|place| Arc::clone(&place.node)) {
            self.holders_changed(&node);
        }
    }

    /// An order was not carried out: what was decided is forgotten, and decided anew after a while.
    pub(super) fn not_placed(&mut self, uid: &Arc<str>, failure: &Failure) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        record.failures = record.failures.saturating_add(1);
        let failures = record.failures;
        let node = record.place.as_ref().map(|place| Arc::clone(&place.node));
        self.let_go(uid);
        self.put(uid, None);
        if let Some(node) = node {
            self.holders_changed(&node);
        }
        self.place_in_queue(uid);
        let unit = self.unit_of(uid);
        if failure.kind != FailureKind::PodGone {
            let doubled = 1_u64 << failures.saturating_sub(1).min(MOST_DOUBLINGS);
            let wait = match failure.kind {
                // The object is looked at anew as soon as the watch has it.
                FailureKind::Conflict if failures == 1 => 100,
                _ => self.config.retry_seconds.saturating_mul(1000).saturating_mul(doubled),
            };
            if self.queue.state(&unit) != Some(State::Promised) {
                self.block(&unit, &Blocked::Failed(failure.to_string()));
                self.queue.set(&unit, State::NotBefore(self.now.saturating_add(wait)));
            }
        }
        self.something_changed();
    }

    /// The unit that a pod is decided on in.
    pub(super) fn unit_of(&self, uid: &Arc<str>) -> Unit {
        let member = self.pods.get(uid).and_then(|record| record.member.as_ref());
        member
            .map_or_else(|| Unit::Pod(Arc::clone(uid)), |member| Unit::Group(member.group.clone()))
    }
}
