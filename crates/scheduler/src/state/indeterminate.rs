//! Orders of which nobody knows what they left: ended by asking, not by waiting.
//!
//! ```text
//!  undecided --> led without a gap: sent again, later each time --> carried out: kept until that is seen
//!            |                                    ^       |
//!            |                                    '-------+-- undecided again
//!            |                                            |-- failed, nothing left: decided anew
//!            |<-- too often, or not as it was decided -------'
//!            '-> another may have led: waits until the cluster is read anew --> bound, or decided anew
//! ```
//!
//! An order that is sent again finds what it wrote before, so it ends as one. All the time its place stays its
//! own. Once another scheduler may have led, that one may have given the devices away: then the order is over,
//! and what is read after its end is the truth. Nothing of it is under way by then: an order that leaves something ends
//! when its last write is settled, and no write outlives the lease at the server either (`?timeout=` on each).
//!
//! No wait ends a doubt of whether a pod is bound. Without a new reading the watches know nothing either, and a place that is given away
//! by the clock is given away blindly.

use std::sync::Arc;

use super::pod::PlaceState;
use super::{InFlightOp, OpPurpose, Scheduler};
use crate::bind::{Bind, Failure, FailureKind, OrderId, Task};
use crate::groups::GroupName;

/// Wait before an order is sent again the first time, in milliseconds; twice as long each time.
const FIRST_RETRY_DELAY_MS: u64 = 1000;
const MAX_RETRY_DELAY_MS: u64 = 10_000;
const MAX_BACKOFF_DOUBLINGS: u32 = 4;
/// How often an order is sent. Where something is in its way for good it is decided anew after that, and
/// people are told what it is.
const MAX_ATTEMPTS: u32 = 8;
/// How long after its end what an order did and undid on its way may still be told by a watch, in
/// milliseconds: longer than a watch may be silent until it is begun anew where it was.
const STALE_EVENT_WINDOW_MS: u64 = 300_000;

/// An order of which nobody knows what it left.
#[derive(Clone, Debug)]
pub(super) struct IndeterminateBind {
    /// The order, with its claims as they stood before it: what it may undo is judged by them.
    bind: Bind,
    failure: Failure,
    /// Its first number: those that share a claim are sent again in the order in which they were.
    first_op: OrderId,
    /// How often it was sent.
    attempts: u32,
    step: ResolveStep,
    /// Where it waits for a reading: whether nobody else can have led since it was sent, so that its devices
    /// are its own still.
    led_throughout: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResolveStep {
    /// It is sent again at this time.
    RetryAt(u64),
    /// It is on its way.
    InFlight,
    /// It was carried out. Until this time, and until its pod is seen bound, a watch may tell what it had
    /// undone before.
    Confirmed(u64),
    /// It ends when all is read anew, by lists that began at this time or later. `None`: the time of the
    /// order's end, which is told with the next [`Scheduler::tick`].
    AwaitRelist(Option<u64>),
}

impl IndeterminateBind {
    /// Whether its devices are its own still.
    fn keeps_devices(&self) -> bool {
        self.led_throughout || !matches!(self.step, ResolveStep::AwaitRelist(_))
    }
}

impl Failure {
    /// Whether nobody knows what the order left.
    pub(super) fn is_indeterminate(&self) -> bool {
        self.kind == FailureKind::Undecided || !self.left.is_empty()
    }
}

impl Scheduler {
    /// An order ended undecided.
    pub(super) fn record_indeterminate(
        &mut self,
        uid: &Arc<str>,
        id: OrderId,
        op: InFlightOp,
        failure: &Failure,
    ) {
        let Some(bind) = op.bind else { return };
        let name = &bind.pod.name;
        tracing::warn!(pod = %name, %failure, left = ?failure.left, "an order ended undecided");
        let older = self.indeterminate.remove(uid);
        let (first_op, attempts) =
            older.map_or((id, 1), |older| (older.first_op, older.attempts + 1));
        let led_throughout = !op.spans_leadership_gap && failure.kind != FailureKind::NotLeader;
        let step = if led_throughout {
            let wait = FIRST_RETRY_DELAY_MS << (attempts - 1).min(MAX_BACKOFF_DOUBLINGS);
            ResolveStep::RetryAt(self.now.saturating_add(wait.min(MAX_RETRY_DELAY_MS)))
        } else {
            ResolveStep::AwaitRelist(None)
        };
        let indeterminate_bind = IndeterminateBind {
            bind: *bind,
            failure: failure.clone(),
            first_op,
            attempts,
            step,
            led_throughout,
        };
        self.keep_indeterminate(uid, indeterminate_bind);
    }

    /// Keeps a doubt; if its order cannot be sent again, it waits for a reading.
    fn keep_indeterminate(&mut self, uid: &Arc<str>, mut indeterminate_bind: IndeterminateBind) {
        let is_retry = matches!(indeterminate_bind.step, ResolveStep::RetryAt(_));
        if is_retry
            && (indeterminate_bind.attempts >= MAX_ATTEMPTS
                || !self.can_resubmit(uid, &indeterminate_bind))
        {
            // Also where it is not bound: which of its claims are allocated nobody knows before.
            indeterminate_bind.step = ResolveStep::AwaitRelist(None);
        }
        self.indeterminate.insert(Arc::clone(uid), indeterminate_bind);
    }

    /// Whether what was decided can still be carried out as it was.
    fn can_resubmit(&self, uid: &Arc<str>, indeterminate_bind: &IndeterminateBind) -> bool {
        let place = self.pods.get(uid).and_then(|record| record.place.as_ref());
        let is_there = place.is_some_and(|place| place.node == indeterminate_bind.bind.node)
            && self.nodes.contains_key(&indeterminate_bind.bind.node);
        // It joined what another order was allocating: where the binding was sent that was looked at. If not,
        // the claim may have got devices elsewhere since.
        let joins_unverified_claim =
            indeterminate_bind.failure.kind != FailureKind::Undecided
                && indeterminate_bind.bind.claims.iter().any(|write| {
                    write.allocation.is_none() && write.claim.claim.allocation.is_none()
                });
        is_there && !joins_unverified_claim && self.devices.are_held(&indeterminate_bind.bind)
    }

    /// The order is over, and its pod is not bound: it is decided on anew, and what is left is taken back.
    fn abandon_bind(&mut self, uid: &Arc<str>, indeterminate_bind: &IndeterminateBind) {
        self.requeue_after_failure(uid, &indeterminate_bind.failure);
        self.schedule_rollback(uid, &indeterminate_bind.failure.left);
    }

    /// An order in doubt was sent again by one who no longer leads: it may be carried out all the same, by what
    /// was sent before. Says whether there was a doubt.
    pub(super) fn defer_to_relist(&mut self, uid: &str, failure: &Failure) -> bool {
        let indeterminate_bind = self.indeterminate.get_mut(uid);
        let indeterminate_bind =
            indeterminate_bind.filter(|_| failure.kind == FailureKind::NotLeader);
        let was_indeterminate = indeterminate_bind.is_some();
        if let Some(indeterminate_bind) = indeterminate_bind {
            (indeterminate_bind.step, indeterminate_bind.led_throughout) =
                (ResolveStep::AwaitRelist(None), false);
        }
        was_indeterminate
    }

    /// An order was carried out, maybe not at once.
    pub(super) fn confirm_bind(&mut self, uid: &Arc<str>) {
        if let Some(indeterminate_bind) = self.indeterminate.get_mut(uid) {
            indeterminate_bind.step =
                ResolveStep::Confirmed(self.now.saturating_add(STALE_EVENT_WINDOW_MS));
        }
    }

    /// Another scheduler may have led since orders were sent: none of them is sent again.
    pub(super) fn note_leadership_gap(&mut self) {
        for op in self.in_flight.values_mut() {
            op.spans_leadership_gap = true;
        }
        for indeterminate_bind in self.indeterminate.values_mut() {
            indeterminate_bind.led_throughout = false;
            if matches!(indeterminate_bind.step, ResolveStep::RetryAt(_)) {
                indeterminate_bind.step = ResolveStep::AwaitRelist(None);
            }
        }
    }

    /// Sends again what is due. Says when it wants to be asked again.
    pub(super) fn resolve_due(&mut self) -> Option<u64> {
        self.devices.time_is(self.now);
        if self.indeterminate.is_empty() {
            return None;
        }
        for indeterminate_bind in self.indeterminate.values_mut() {
            if indeterminate_bind.step == ResolveStep::AwaitRelist(None) {
                indeterminate_bind.step = ResolveStep::AwaitRelist(Some(self.now));
            }
        }
        let mut due = Vec::new();
        for (uid, indeterminate_bind) in &self.indeterminate {
            let record = self.pods.get(uid);
            let is_bound = record.is_none_or(|record| record.pod.node.is_some());
            let has_ended = record.is_none_or(|record| record.pod.has_ended());
            let is_due = match indeterminate_bind.step {
                ResolveStep::RetryAt(at) => is_bound || at <= self.now,
                ResolveStep::InFlight => false,
                ResolveStep::Confirmed(until) => is_bound && (until <= self.now || has_ended),
                ResolveStep::AwaitRelist(_) => is_bound,
            };
            if is_due {
                due.push((indeterminate_bind.first_op, Arc::clone(uid), is_bound, has_ended));
            }
        }
        due.sort_unstable();
        for (_, uid, is_bound, has_ended) in due {
            let Some(indeterminate_bind) = self.indeterminate.remove(&uid) else { continue };
            let is_bound_by_us = is_bound && indeterminate_bind.led_throughout;
            match indeterminate_bind.step {
                ResolveStep::RetryAt(_) | ResolveStep::AwaitRelist(_) if is_bound_by_us => {
                    let node = self.pods.get(&uid).and_then(|record| record.pod.node.as_ref());
                    if node == Some(&indeterminate_bind.bind.node) {
                        self.pod_bound(&uid);
                        // What was undone before it was bound may still be told.
                        let step =
                            ResolveStep::Confirmed(self.now.saturating_add(STALE_EVENT_WINDOW_MS));
                        self.indeterminate
                            .insert(uid, IndeterminateBind { step, ..indeterminate_bind });
                    }
                }
                ResolveStep::RetryAt(_) => self.resubmit(&uid, indeterminate_bind),
                // What is kept for it may never be seen again, and need not be.
                ResolveStep::Confirmed(_) if has_ended => {
                    self.devices.forget(&uid);
                    self.holders_changed(&indeterminate_bind.bind.node);
                }
                ResolveStep::AwaitRelist(_) => self.accept_observed(&uid),
                ResolveStep::InFlight | ResolveStep::Confirmed(_) => {}
            }
        }
        let times = self.indeterminate.values().filter_map(|indeterminate_bind| {
            match indeterminate_bind.step {
                ResolveStep::RetryAt(at) | ResolveStep::Confirmed(at) => {
                    Some(at).filter(|at| *at > self.now)
                }
                ResolveStep::InFlight | ResolveStep::AwaitRelist(_) => None,
            }
        });
        times.min()
    }

    fn resubmit(&mut self, uid: &Arc<str>, mut indeterminate_bind: IndeterminateBind) {
        if !self.can_resubmit(uid, &indeterminate_bind) {
            self.keep_indeterminate(uid, indeterminate_bind);
            return;
        }
        let bind = Bind { is_again: true, ..indeterminate_bind.bind.clone() };
        let op = self.submit(uid, OpPurpose::Bind, Task::Bind(bind));
        if let Some(record) = self.pods.get_mut(uid)
            && let Some(place) = &mut record.place
        {
            place.state = PlaceState::Assumed(op);
        }
        indeterminate_bind.step = ResolveStep::InFlight;
        self.indeterminate.insert(Arc::clone(uid), indeterminate_bind);
    }

    /// Claims have changed: what an order gave back that is to be carried out all the same is its own again,
    /// before anybody looks.
    pub(super) fn reassume_indeterminate(&mut self) {
        for (uid, indeterminate_bind) in &self.indeterminate {
            let record = self.pods.get(uid).filter(|record| !record.pod.has_ended());
            let place = record.and_then(|record| record.place.as_ref());
            let is_there = place.is_some_and(|place| place.node == indeterminate_bind.bind.node);
            if is_there && indeterminate_bind.keeps_devices() {
                self.devices.hold_again(&indeterminate_bind.bind);
            }
        }
    }

    /// The earliest reading that a doubt waits for.
    pub(super) fn indeterminate_relist_since(&self) -> Option<u64> {
        let wanted = self.indeterminate.values().filter_map(|indeterminate_bind| {
            match indeterminate_bind.step {
                ResolveStep::AwaitRelist(since) => since,
                _ => None,
            }
        });
        wanted.min()
    }

    /// All was read anew, by lists that began at `at`: who is not bound is not.
    pub(super) fn resolve_after_relist(&mut self, at: u64) {
        self.devices.read_anew(at);
        let is_read = |indeterminate_bind: &IndeterminateBind| matches!(indeterminate_bind.step, ResolveStep::AwaitRelist(Some(since)) if since <= at);
        let read =
            self.indeterminate.iter().filter(|(_, indeterminate_bind)| is_read(indeterminate_bind));
        for uid in read.map(|(uid, _)| Arc::clone(uid)).collect::<Vec<_>>() {
            let Some(mut indeterminate_bind) = self.indeterminate.remove(&uid) else { continue };
            if self.pods.get(&uid).is_none_or(|record| record.pod.node.is_some()) {
                self.accept_observed(&uid);
                continue;
            }
            if indeterminate_bind.failure.kind == FailureKind::Undecided {
                indeterminate_bind.failure = Failure {
                    stage: "binding the pod",
                    message: "its answer was lost, and read anew the pod is not bound".to_owned(),
                    kind: FailureKind::Unreachable,
                    left: indeterminate_bind.failure.left,
                };
            }
            self.abandon_bind(&uid, &indeterminate_bind);
        }
    }

    /// What people are told of a pod whose order ended undecided.
    pub(super) fn indeterminate_message(&self, uid: &str) -> Option<String> {
        let IndeterminateBind { bind, failure, attempts, step, .. } =
            self.indeterminate.get(uid)?;
        let summary =
            format!("whether it could be bound to {} is not known yet ({failure})", bind.node);
        match step {
            ResolveStep::RetryAt(at) => {
                let wait = at.saturating_sub(self.now).div_ceil(1000);
                Some(format!(
                    "{summary}: sent {attempts} times, asked again in {wait} s; its place is kept"
                ))
            }
            ResolveStep::InFlight => {
                Some(format!("{summary}: it is being asked again; its place is kept"))
            }
            ResolveStep::AwaitRelist(_) => Some(format!(
                "{summary}: another scheduler may have led meanwhile, so it ends when pods and claims are \
                 read anew; its place is kept until then"
            )),
            ResolveStep::Confirmed(_) => None,
        }
    }

    /// What people are told of a gang with members whose orders ended undecided.
    pub(super) fn gang_indeterminate_message(&self, group: &GroupName) -> Option<String> {
        let members = self.members.get(group).into_iter().flatten();
        let mut messages = members.filter_map(|uid| Some((uid, self.indeterminate_message(uid)?)));
        let (uid, first) = messages.next()?;
        let name = self.pods.get(uid).map(|record| record.pod.meta.name.to_string());
        let first = format!("pod {}: {first}", name.unwrap_or_default());
        match messages.count() {
            0 => Some(first),
            others => Some(format!("{first}; {others} more are in doubt")),
        }
    }
}
