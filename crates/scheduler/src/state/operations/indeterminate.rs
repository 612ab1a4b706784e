//! Binds with an indeterminate outcome: resolved by re-reading, never by timeout.
//!
//! ```text
//!   indeterminate --> led without a gap: resubmitted with backoff --> succeeded
//!        |                                       ^       |
//!        |                                       '-------+-- indeterminate again
//!        |                                               |-- failed, nothing left: requeued
//!        |<-- attempts exhausted, or plan invalid --------'
//!        '-> another may have led: waits for a relist --> bound, or requeued
//! ```
//!
//! A resubmitted bind finds its own earlier writes, so all attempts have one outcome. Meanwhile its
//! place stays assumed.
//!
//! Another leader may have allocated the devices again. So after a leadership gap the bind is over,
//! and the first relist after its end is authoritative. No write of the bind is in flight by then.
//! A bind that leaves something ends after its last write is settled. No write outlives the lease
//! on the API server either (`?timeout=` on each request).
//!
//! No timeout decides whether a pod is bound. Without a relist the watches do not know either, so a
//! timeout could give assigned devices to another pod.

use octavo_kube_io::objects::PodUid;

use crate::bind::{Bind, Failure, FailureKind, OpId, OpKind};
use crate::groups::GroupName;
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::operations::Operations;
use crate::state::operations::{InFlightOp, OpPurpose};

/// Delay before the first resubmission, in milliseconds. Doubles each time.
const FIRST_RETRY_DELAY_MS: u64 = 1000;
const MAX_RETRY_DELAY_MS: u64 = 10_000;
const MAX_BACKOFF_DOUBLINGS: u32 = 4;
/// Maximum number of attempts. A permanent obstacle then leads to a new decision, and its message
/// is reported.
const MAX_ATTEMPTS: u32 = 8;

/// A bind with an indeterminate outcome.
#[derive(Clone, Debug)]
pub(in crate::state) struct IndeterminateBind {
    /// The bind, with its claims as they were before it. They decide what it may roll back.
    bind: Bind,
    failure: Failure,
    /// Id of the first attempt. Binds that share a claim are resubmitted in this order.
    first_op: OpId,
    /// Number of attempts.
    attempts: u32,
    step: ResolveStep,
    /// Whether no other scheduler can have led since the first attempt.
    led_throughout: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResolveStep {
    /// To be resubmitted at this time.
    RetryAt(u64),
    /// Resubmitted.
    InFlight,
    /// Ends with a relist that started at this time or later. `None`: at the time of the bind's
    /// end, which the next [`Scheduler::tick`] sets.
    AwaitRelist(Option<u64>),
}

impl Failure {
    /// Whether the outcome of the bind is unknown.
    pub(in crate::state) fn is_indeterminate(&self) -> bool {
        self.kind == FailureKind::Indeterminate || !self.unreleased.is_empty()
    }
}

impl Scheduler {
    /// Records a bind that ended with an indeterminate outcome.
    pub(in crate::state) fn record_indeterminate(
        &mut self,
        uid: &PodUid,
        id: OpId,
        op: InFlightOp,
        failure: &Failure,
    ) {
        let Some(bind) = op.bind else { return };
        let name = &bind.pod.name;
        tracing::warn!(pod = %name, %failure, left = ?failure.unreleased, "a bind ended with an indeterminate outcome");
        let older = self.operations.indeterminate.remove(uid);
        let (first_op, attempts) =
            older.map_or((id, 1), |older| (older.first_op, older.attempts + 1));
        let led_throughout = !op.spans_leadership_gap && failure.kind != FailureKind::NotLeader;
        let mut indeterminate_bind = IndeterminateBind {
            bind: *bind,
            failure: failure.clone(),
            first_op,
            attempts,
            // Also for a pod that is known to be unbound: its claims may be allocated.
            step: ResolveStep::AwaitRelist(None),
            led_throughout,
        };
        if led_throughout
            && attempts < MAX_ATTEMPTS
            && self.cache.can_resubmit(uid, &indeterminate_bind)
        {
            let wait = FIRST_RETRY_DELAY_MS << (attempts - 1).min(MAX_BACKOFF_DOUBLINGS);
            let at = self.cache.now().saturating_add(wait.min(MAX_RETRY_DELAY_MS));
            indeterminate_bind.step = ResolveStep::RetryAt(at);
        }
        self.operations.indeterminate.insert(uid.clone(), indeterminate_bind);
    }

    /// Resubmits or ends the binds that are due. Returns the next deadline.
    pub(in crate::state) fn resolve_due(&mut self) -> Option<u64> {
        let now = self.cache.now();
        for indeterminate_bind in self.operations.indeterminate.values_mut() {
            if indeterminate_bind.step == ResolveStep::AwaitRelist(None) {
                indeterminate_bind.step = ResolveStep::AwaitRelist(Some(now));
            }
        }
        let all = self.operations.indeterminate.iter();
        let mut all: Vec<_> = all.map(|(uid, bind)| (bind.first_op, uid.clone())).collect();
        all.sort_unstable();
        for (_, uid) in all {
            self.resolve(&uid);
        }
        let times = self.operations.indeterminate.values().filter_map(|indeterminate_bind| {
            match indeterminate_bind.step {
                ResolveStep::RetryAt(at) => Some(at).filter(|at| *at > self.cache.now()),
                ResolveStep::InFlight | ResolveStep::AwaitRelist(_) => None,
            }
        });
        times.min()
    }

    /// Resubmits or ends a bind if it is due.
    fn resolve(&mut self, uid: &PodUid) {
        let Some(indeterminate_bind) = self.operations.indeterminate.get(uid) else { return };
        let IndeterminateBind { bind: Bind { node, .. }, step, led_throughout, .. } =
            indeterminate_bind;
        let (node, now) = (node.clone(), self.cache.now());
        let record = self.cache.pod(uid);
        let bound_to = record.and_then(|record| record.pod.node.as_ref());
        let is_bound = record.is_none() || bound_to.is_some();
        let is_ours = *led_throughout && bound_to == Some(&node);
        match step {
            ResolveStep::RetryAt(_) | ResolveStep::AwaitRelist(_) if is_bound => {
                self.operations.indeterminate.remove(uid);
                if is_ours {
                    self.pod_bound(uid);
                } else {
                    self.accept_observed(uid);
                }
            }
            ResolveStep::RetryAt(at) if *at <= now => self.resubmit(uid),
            _ => {}
        }
    }

    /// Resubmits a bind. One that cannot be resubmitted waits for a relist.
    fn resubmit(&mut self, uid: &PodUid) {
        let Some(indeterminate_bind) = self.operations.indeterminate.get_mut(uid) else { return };
        if !self.cache.can_resubmit(uid, indeterminate_bind) {
            indeterminate_bind.step = ResolveStep::AwaitRelist(None);
            return;
        }
        indeterminate_bind.step = ResolveStep::InFlight;
        let bind = Bind { is_retry: true, ..indeterminate_bind.bind.clone() };
        let op = self.operations.submit(uid, OpPurpose::Bind, OpKind::Bind(bind));
        self.cache.set_assumed(uid, op);
    }

    /// Records that lists of pods and claims which started at `at` have been applied, by the clock
    /// of [`Scheduler::tick`]. All earlier writes are known: pods without a node are not bound.
    pub fn on_relist(&mut self, at: u64) {
        let is_read = |indeterminate_bind: &IndeterminateBind| matches!(indeterminate_bind.step, ResolveStep::AwaitRelist(Some(since)) if since <= at);
        let read = self
            .operations
            .indeterminate
            .iter()
            .filter(|(_, indeterminate_bind)| is_read(indeterminate_bind));
        for uid in read.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            let Some(mut indeterminate_bind) = self.operations.indeterminate.remove(&uid) else {
                continue;
            };
            if self.cache.pod(&uid).is_none_or(|record| record.pod.node.is_some()) {
                self.accept_observed(&uid);
                continue;
            }
            if indeterminate_bind.failure.kind == FailureKind::Indeterminate {
                indeterminate_bind.failure = Failure {
                    step: "binding the pod",
                    message:
                        "the response was lost, and a new list shows that the pod is not bound"
                            .to_owned(),
                    kind: FailureKind::Unreachable,
                    unreleased: indeterminate_bind.failure.unreleased,
                };
            }
            // The pod is requeued, and leftover claims are rolled back.
            let failure = indeterminate_bind.failure;
            self.requeue_after_failure(&uid, &failure);
            self.schedule_rollback(&uid, &failure.unreleased);
        }
    }

    /// Message about a pod whose bind has an indeterminate outcome.
    pub(in crate::state) fn indeterminate_message(&self, uid: &str) -> Option<String> {
        let IndeterminateBind { bind, failure, attempts, step, led_throughout, .. } =
            self.operations.indeterminate.get(uid)?;
        let summary =
            format!("it is not known yet whether the pod was bound to {} ({failure})", bind.node);
        match step {
            ResolveStep::RetryAt(at) => {
                let wait = at.saturating_sub(self.cache.now()).div_ceil(1000);
                Some(format!(
                    "{summary}: attempt {attempts} of {MAX_ATTEMPTS} has ended, the next one is in \
                     {wait} s; its place is kept"
                ))
            }
            ResolveStep::InFlight => {
                Some(format!("{summary}: another attempt is in flight; its place is kept"))
            }
            ResolveStep::AwaitRelist(_) => {
                let cause = if *led_throughout {
                    "no further attempt is possible"
                } else {
                    "another scheduler may have led meanwhile"
                };
                Some(format!(
                    "{summary}: {cause}, so pods and claims are listed again to find out; its \
                     place is kept until then"
                ))
            }
        }
    }

    /// Message about a gang with members whose binds have an indeterminate outcome.
    pub(in crate::state) fn gang_indeterminate_message(&self, group: &GroupName) -> Option<String> {
        let members = self.cache.members(group);
        let mut messages = members.filter_map(|uid| Some((uid, self.indeterminate_message(uid)?)));
        let (uid, first) = messages.next()?;
        let name = self.cache.pod(uid).map(|record| record.pod.meta.name.to_string());
        let first = format!("pod {}: {first}", name.unwrap_or_default());
        match messages.count() {
            0 => Some(first),
            others => Some(format!("{first}; the same holds for {others} more pods")),
        }
    }
}

impl Cache {
    /// Whether the decision can still be carried out unchanged.
    fn can_resubmit(&self, uid: &PodUid, indeterminate_bind: &IndeterminateBind) -> bool {
        let place = self.pod(uid).and_then(|record| record.place.as_ref());
        let is_placed = place.is_some_and(|place| place.node == indeterminate_bind.bind.node)
            && self.nodes().contains_key(&indeterminate_bind.bind.node);
        // The claim was to be allocated by another bind. An attempt that sent the binding has
        // verified that claim. Otherwise the claim may have been allocated elsewhere since.
        let joins_unverified_claim =
            indeterminate_bind.failure.kind != FailureKind::Indeterminate
                && indeterminate_bind.bind.claims.iter().any(|write| {
                    write.allocation.is_none() && write.claim.claim.allocation.is_none()
                });
        is_placed && !joins_unverified_claim
    }
}

impl Operations {
    /// Handles `NotLeader` for a resubmitted bind: an earlier attempt may have succeeded, so it
    /// waits for a relist. Returns whether the bind was indeterminate.
    pub(in crate::state) fn defer_to_relist(&mut self, uid: &str, failure: &Failure) -> bool {
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

    /// Another scheduler may have led: no bind from before is resubmitted.
    pub(in crate::state) fn note_leadership_gap(&mut self) {
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

    /// The earliest relist that an indeterminate bind needs.
    pub(in crate::state) fn indeterminate_relist_since(&self) -> Option<u64> {
        let wanted = self.indeterminate.values().filter_map(|indeterminate_bind| {
            match indeterminate_bind.step {
                ResolveStep::AwaitRelist(since) => since,
                _ => None,
            }
        });
        wanted.min()
    }
}
