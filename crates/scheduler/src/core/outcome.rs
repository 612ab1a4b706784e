//! What became of orders.

use std::sync::Arc;

use octavo_kube_io::objects::ObjectName;

use super::grant::Granted;
use super::queue::{State, Unit};
use super::statement::Blocked;
use super::{Core, Decided, FlightKind};
use crate::bind::{Failure, FailureKind, Outcome};
use crate::status::Report;

/// How long an order may stay undecided, in milliseconds: longer than a request may live, and than a watch
/// takes to come back.
const DOUBT: u64 = 45_000;
/// Most doublings of the wait between tries.
const MOST_DOUBLINGS: u32 = 4;

/// An order of which nobody knows what it left.
#[derive(Clone, Debug)]
pub(super) struct Doubt {
    /// How long that is waited for.
    until: u64,
    failure: Failure,
}

impl Doubt {
    /// Whether the pod may be bound although the order failed.
    fn may_be_bound(&self) -> bool {
        matches!(self.failure.kind, FailureKind::Unreachable | FailureKind::NotLeader)
    }
}

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
    pub fn outcome(&mut self, outcome: &Outcome) {
        let Some(flight) = self.flying.remove(&outcome.id) else { return };
        let uid = flight.pod;
        match (flight.kind, &outcome.result) {
            (FlightKind::Bind, Ok(())) => self.bound(&uid),
            (FlightKind::Bind, Err(failure)) => self.not_bound(&uid, failure),
            (FlightKind::Evict, Err(failure)) => self.not_evicted(&uid, failure),
            (FlightKind::Repair, Err(_)) => self.not_repaired(&uid),
            (FlightKind::Undo, result) => self.undone(&uid, outcome.id, result),
            (FlightKind::Evict | FlightKind::Repair | FlightKind::Other, _) => {}
        }
    }

    fn bound(&mut self, uid: &Arc<str>) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        record.failures = 0;
        let Some(place) = &record.place else { return };
        let report = Report::PodBound { pod: record.reference(), node: Arc::clone(&place.node) };
        let group = record.member.as_ref().map(|member| member.group.clone());
        self.reports.push(report);
        if let Some(group) = group {
            self.report_group(&group);
        }
    }

    fn not_bound(&mut self, uid: &Arc<str>, failure: &Failure) {
        let Some(record) = self.pods.get_mut(uid) else {
            self.devices.forget(uid);
            return;
        };
        if record.pod.node.is_some() {
            // The API said meanwhile that it is bound, so it is.
            return;
        }
        if failure.kind == FailureKind::BoundAlready {
            // The watch will say where; until then its place stays counted.
            return;
        }
        if !failure.left.is_empty() {
            // It may be bound, or its claims allocated. Its place stays its own until that is seen.
            tracing::warn!(pod = %record.pod.meta.name, left = ?failure.left, "an order ended undecided");
            let until = self.now.saturating_add(DOUBT);
            self.doubtful.insert(Arc::clone(uid), Doubt { until, failure: failure.clone() });
            return;
        }
        self.not_placed(uid, failure);
    }

    /// Orders whose end nobody knew, for long enough: what the watches say by now is the truth. Where it
    /// was only not known which claims are allocated, it is enough to have seen them.
    pub(super) fn end_doubts(&mut self) -> Option<u64> {
        let is_seen = |claim: &ObjectName| {
            self.devices.claim(claim).is_some_and(|claim| claim.claim.allocation.is_some())
        };
        let due = |doubt: &Doubt| {
            doubt.until <= self.now
                || (!doubt.may_be_bound() && doubt.failure.left.iter().all(is_seen))
        };
        let due = self.doubtful.iter().filter(|(_, doubt)| due(doubt));
        let due: Vec<_> = due.map(|(uid, _)| Arc::clone(uid)).collect();
        for uid in due {
            let Some(doubt) = self.doubtful.remove(&uid) else { continue };
            let is_bound = self.pods.get(&uid).is_none_or(|record| record.pod.node.is_some());
            if is_bound {
                continue;
            }
            let may_be_bound = doubt.may_be_bound();
            let Failure { left, .. } = doubt.failure.clone();
            let failure = if may_be_bound {
                Failure {
                    stage: "bind",
                    message: "whether it was carried out could not be found out".to_owned(),
                    kind: FailureKind::Unreachable,
                    left: Vec::new(),
                }
            } else {
                doubt.failure
            };
            self.not_placed(&uid, &failure);
            self.undo_later(&uid, &left);
        }
        self.doubtful.values().map(|doubt| doubt.until).min()
    }

    /// An order was not carried out: what was decided is forgotten, and decided anew after a while.
    fn not_placed(&mut self, uid: &Arc<str>, failure: &Failure) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        record.failures = record.failures.saturating_add(1);
        let failures = record.failures;
        let node = record.place.as_ref().map(|place| Arc::clone(&place.node));
        self.devices.forget(uid);
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
