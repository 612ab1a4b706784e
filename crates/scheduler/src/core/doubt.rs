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

use super::pod::Hold;
use super::{Core, Flight, FlightKind};
use crate::bind::{Bind, Failure, FailureKind, OpId, OpKind};
use crate::groups::GroupName;

/// Wait before an order is sent again the first time, in milliseconds; twice as long each time.
const FIRST_WAIT: u64 = 1000;
const MOST_WAIT: u64 = 10_000;
const MOST_DOUBLINGS: u32 = 4;
/// How often an order is sent. Where something is in its way for good it is decided anew after that, and
/// people are told what it is.
const MOST_SENT: u32 = 8;
/// How long after its end what an order did and undid on its way may still be told by a watch, in
/// milliseconds: longer than a watch may be silent until it is begun anew where it was.
const ECHO: u64 = 300_000;

/// An order of which nobody knows what it left.
#[derive(Clone, Debug)]
pub(super) struct Doubt {
    /// The order, with its claims as they stood before it: what it may undo is judged by them.
    bind: Bind,
    failure: Failure,
    /// Its first number: those that share a claim are sent again in the order in which they were.
    first: OpId,
    /// How often it was sent.
    sent: u32,
    step: Step,
    /// Where it waits for a reading: whether nobody else can have led since it was sent, so that its devices
    /// are its own still.
    is_ours: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is sent again at this time.
    Again(u64),
    /// It is on its way.
    Flying,
    /// It was carried out. Until this time, and until its pod is seen bound, a watch may tell what it had
    /// undone before.
    Done(u64),
    /// It ends when all is read anew, by lists that began at this time or later. `None`: the time of the
    /// order's end, which is told with the next [`Core::tick`].
    Reading(Option<u64>),
}

impl Doubt {
    /// Whether its devices are its own still.
    fn is_kept(&self) -> bool {
        self.is_ours || !matches!(self.step, Step::Reading(_))
    }
}

impl Failure {
    /// Whether nobody knows what the order left.
    pub(super) fn is_undecided(&self) -> bool {
        self.kind == FailureKind::Indeterminate || !self.unreleased.is_empty()
    }
}

impl Core {
    /// An order ended undecided.
    pub(super) fn doubt(&mut self, uid: &Arc<str>, id: OpId, flight: Flight, failure: &Failure) {
        let Some(bind) = flight.bind else { return };
        let name = &bind.pod.name;
        tracing::warn!(pod = %name, %failure, left = ?failure.unreleased, "an order ended undecided");
        let older = self.doubtful.remove(uid);
        let (first, sent) = older.map_or((id, 1), |older| (older.first, older.sent + 1));
        let has_led = !flight.is_outlived && failure.kind != FailureKind::NotLeader;
        let step = if has_led {
            let wait = FIRST_WAIT << (sent - 1).min(MOST_DOUBLINGS);
            Step::Again(self.now.saturating_add(wait.min(MOST_WAIT)))
        } else {
            Step::Reading(None)
        };
        let is_ours = has_led;
        let doubt = Doubt { bind: *bind, failure: failure.clone(), first, sent, step, is_ours };
        self.keep_doubt(uid, doubt);
    }

    /// Keeps a doubt; if its order cannot be sent again, it waits for a reading.
    fn keep_doubt(&mut self, uid: &Arc<str>, mut doubt: Doubt) {
        let is_retry = matches!(doubt.step, Step::Again(_));
        if is_retry && (doubt.sent >= MOST_SENT || !self.may_be_sent_again(uid, &doubt)) {
            // Also where it is not bound: which of its claims are allocated nobody knows before.
            doubt.step = Step::Reading(None);
        }
        self.doubtful.insert(Arc::clone(uid), doubt);
    }

    /// Whether what was decided can still be carried out as it was.
    fn may_be_sent_again(&self, uid: &Arc<str>, doubt: &Doubt) -> bool {
        let place = self.pods.get(uid).and_then(|record| record.place.as_ref());
        let is_there = place.is_some_and(|place| place.node == doubt.bind.node)
            && self.nodes.contains_key(&doubt.bind.node);
        // It joined what another order was allocating: where the binding was sent that was looked at. If not,
        // the claim may have got devices elsewhere since.
        let is_joined_blindly =
            doubt.failure.kind != FailureKind::Indeterminate
                && doubt.bind.claims.iter().any(|write| {
                    write.allocation.is_none() && write.claim.claim.allocation.is_none()
                });
        is_there && !is_joined_blindly && self.devices.are_devices_held(&doubt.bind)
    }

    /// The order is over, and its pod is not bound: it is decided on anew, and what is left is taken back.
    fn give_up(&mut self, uid: &Arc<str>, doubt: &Doubt) {
        self.not_placed(uid, &doubt.failure);
        self.undo_later(uid, &doubt.failure.unreleased);
    }

    /// An order in doubt was sent again by one who no longer leads: it may be carried out all the same, by what
    /// was sent before. Says whether there was a doubt.
    pub(super) fn is_still_doubtful(&mut self, uid: &str, failure: &Failure) -> bool {
        let doubt = self.doubtful.get_mut(uid);
        let doubt = doubt.filter(|_| failure.kind == FailureKind::NotLeader);
        let is_doubtful = doubt.is_some();
        if let Some(doubt) = doubt {
            (doubt.step, doubt.is_ours) = (Step::Reading(None), false);
        }
        is_doubtful
    }

    /// An order was carried out, maybe not at once.
    pub(super) fn no_doubt(&mut self, uid: &Arc<str>) {
        if let Some(doubt) = self.doubtful.get_mut(uid) {
            doubt.step = Step::Done(self.now.saturating_add(ECHO));
        }
    }

    /// Another scheduler may have led since orders were sent: none of them is sent again.
    pub(super) fn others_may_have_led(&mut self) {
        for flight in self.flying.values_mut() {
            flight.is_outlived = true;
        }
        for doubt in self.doubtful.values_mut() {
            doubt.is_ours = false;
            if matches!(doubt.step, Step::Again(_)) {
                doubt.step = Step::Reading(None);
            }
        }
    }

    /// Sends again what is due. Says when it wants to be asked again.
    pub(super) fn end_doubts(&mut self) -> Option<u64> {
        self.devices.tick(self.now);
        if self.doubtful.is_empty() {
            return None;
        }
        for doubt in self.doubtful.values_mut() {
            if doubt.step == Step::Reading(None) {
                doubt.step = Step::Reading(Some(self.now));
            }
        }
        let mut due = Vec::new();
        for (uid, doubt) in &self.doubtful {
            let record = self.pods.get(uid);
            let is_bound = record.is_none_or(|record| record.pod.node.is_some());
            let has_ended = record.is_none_or(|record| record.pod.has_ended());
            let is_due = match doubt.step {
                Step::Again(at) => is_bound || at <= self.now,
                Step::Flying => false,
                Step::Done(until) => is_bound && (until <= self.now || has_ended),
                Step::Reading(_) => is_bound,
            };
            if is_due {
                due.push((doubt.first, Arc::clone(uid), is_bound, has_ended));
            }
        }
        due.sort_unstable();
        for (_, uid, is_bound, has_ended) in due {
            let Some(doubt) = self.doubtful.remove(&uid) else { continue };
            let is_own_binding = is_bound && doubt.is_ours;
            match doubt.step {
                Step::Again(_) | Step::Reading(_) if is_own_binding => {
                    let node = self.pods.get(&uid).and_then(|record| record.pod.node.as_ref());
                    if node == Some(&doubt.bind.node) {
                        self.bound(&uid);
                        // What was undone before it was bound may still be told.
                        let step = Step::Done(self.now.saturating_add(ECHO));
                        self.doubtful.insert(uid, Doubt { step, ..doubt });
                    }
                }
                Step::Again(_) => self.send_again(&uid, doubt),
                // What is kept for it may never be seen again, and need not be.
                Step::Done(_) if has_ended => {
                    self.devices.forget(&uid);
                    self.holders_changed(&doubt.bind.node);
                }
                Step::Reading(_) => self.accept_observed(&uid),
                Step::Flying | Step::Done(_) => {}
            }
        }
        let times = self.doubtful.values().filter_map(|doubt| match doubt.step {
            Step::Again(at) | Step::Done(at) => Some(at).filter(|at| *at > self.now),
            Step::Flying | Step::Reading(_) => None,
        });
        times.min()
    }

    fn send_again(&mut self, uid: &Arc<str>, mut doubt: Doubt) {
        if !self.may_be_sent_again(uid, &doubt) {
            self.keep_doubt(uid, doubt);
            return;
        }
        let bind = Bind { is_retry: true, ..doubt.bind.clone() };
        let order = self.order(uid, FlightKind::Bind, OpKind::Bind(bind));
        if let Some(record) = self.pods.get_mut(uid)
            && let Some(place) = &mut record.place
        {
            place.hold = Hold::Assumed(order);
        }
        doubt.step = Step::Flying;
        self.doubtful.insert(Arc::clone(uid), doubt);
    }

    /// Claims have changed: what an order gave back that is to be carried out all the same is its own again,
    /// before anybody looks.
    pub(super) fn keep_doubtful(&mut self) {
        for (uid, doubt) in &self.doubtful {
            let record = self.pods.get(uid).filter(|record| !record.pod.has_ended());
            let place = record.and_then(|record| record.place.as_ref());
            let is_there = place.is_some_and(|place| place.node == doubt.bind.node);
            if is_there && doubt.is_kept() {
                self.devices.reassume(&doubt.bind);
            }
        }
    }

    /// The earliest reading that a doubt waits for.
    pub(super) fn doubts_want_reading(&self) -> Option<u64> {
        let wanted = self.doubtful.values().filter_map(|doubt| match doubt.step {
            Step::Reading(since) => since,
            _ => None,
        });
        wanted.min()
    }

    /// All was read anew, by lists that began at `at`: who is not bound is not.
    pub(super) fn end_doubts_read(&mut self, at: u64) {
        self.devices.on_relist(at);
        let is_read =
            |doubt: &Doubt| matches!(doubt.step, Step::Reading(Some(since)) if since <= at);
        let read = self.doubtful.iter().filter(|(_, doubt)| is_read(doubt));
        for uid in read.map(|(uid, _)| Arc::clone(uid)).collect::<Vec<_>>() {
            let Some(mut doubt) = self.doubtful.remove(&uid) else { continue };
            if self.pods.get(&uid).is_none_or(|record| record.pod.node.is_some()) {
                self.accept_observed(&uid);
                continue;
            }
            if doubt.failure.kind == FailureKind::Indeterminate {
                doubt.failure = Failure {
                    step: "binding the pod",
                    message: "its answer was lost, and read anew the pod is not bound".to_owned(),
                    kind: FailureKind::Unreachable,
                    unreleased: doubt.failure.unreleased,
                };
            }
            self.give_up(&uid, &doubt);
        }
    }

    /// What people are told of a pod whose order ended undecided.
    pub(super) fn doubt_said(&self, uid: &str) -> Option<String> {
        let Doubt { bind, failure, sent, step, .. } = self.doubtful.get(uid)?;
        let order =
            format!("whether it could be bound to {} is not known yet ({failure})", bind.node);
        match step {
            Step::Again(at) => {
                let wait = at.saturating_sub(self.now).div_ceil(1000);
                Some(format!(
                    "{order}: sent {sent} times, asked again in {wait} s; its place is kept"
                ))
            }
            Step::Flying => Some(format!("{order}: it is being asked again; its place is kept")),
            Step::Reading(_) => Some(format!(
                "{order}: another scheduler may have led meanwhile, so it ends when pods and claims are \
                 read anew; its place is kept until then"
            )),
            Step::Done(_) => None,
        }
    }

    /// What people are told of a gang with members whose orders ended undecided.
    pub(super) fn doubt_said_of(&self, group: &GroupName) -> Option<String> {
        let members = self.members.get(group).into_iter().flatten();
        let mut said = members.filter_map(|uid| Some((uid, self.doubt_said(uid)?)));
        let (uid, first) = said.next()?;
        let name = self.pods.get(uid).map(|record| record.pod.meta.name.to_string());
        let first = format!("pod {}: {first}", name.unwrap_or_default());
        match said.count() {
            0 => Some(first),
            others => Some(format!("{first}; {others} more are in doubt")),
        }
    }
}
