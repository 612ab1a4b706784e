//! Rollbacks of claims of unbound pods: retried with backoff while the API server rejects them, and
//! abandoned in the end.
//!
//! While a rollback is in flight its pod is not decided on, because it could be bound with a claim
//! that is being deallocated. Between attempts it is decided on, and if it gets a place no rollback
//! is needed.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_kube_io::objects::{Claim, ObjectName, PodUid};

use crate::bind::{Failure, FailureKind, OpId, OpKind, PodRef};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::operations::OpPurpose;
use crate::state::queue::State;

/// Attempts before a rollback is abandoned, about six minutes with the delays.
const MAX_ATTEMPTS: u32 = 10;
/// Maximum number of doublings of the delay. The first delay is twice the pod's own retry delay, so
/// that the pod is retried first.
const MAX_BACKOFF_DOUBLINGS: u32 = 6;

/// Rollbacks of claims.
#[derive(Debug, Default)]
pub(in crate::state) struct ClaimRollbacks {
    /// By pod UID and claim name.
    all: BTreeMap<(PodUid, ObjectName), Rollback>,
    abandoned: u64,
}

/// State of one rollback.
#[derive(Clone, Debug)]
struct Rollback {
    /// `resourceVersion` of the claim at the last attempt.
    version: Arc<str>,
    /// Failed attempts.
    failures: u32,
    step: RollbackStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RollbackStep {
    /// An attempt is in flight.
    InFlight(OpId),
    /// The next attempt, in milliseconds.
    RetryAt(u64),
    /// No attempt until the claim changes.
    Abandoned,
}

impl ClaimRollbacks {
    /// The claim of a pod whose rollback is in flight, if any.
    pub(in crate::state) fn in_flight_for(&self, pod: &str) -> Option<&ObjectName> {
        let of_pod = self.all.range((PodUid::from(pod), ObjectName::default())..);
        of_pod
            .take_while(|((uid, _), _)| **uid == *pod)
            .find(|(_, rollback)| matches!(rollback.step, RollbackStep::InFlight(_)))
            .map(|((_, claim), _)| claim)
    }

    /// Pods with a rollback in flight.
    pub(in crate::state) fn pods_in_flight(&self) -> Vec<PodUid> {
        let in_flight = self
            .all
            .iter()
            .filter(|(_, rollback)| matches!(rollback.step, RollbackStep::InFlight(_)));
        in_flight.map(|((uid, _), _)| uid.clone()).collect()
    }

    /// Forgets the rollbacks of a deleted pod.
    pub(in crate::state) fn forget(&mut self, pod: &str) {
        self.all.retain(|(uid, _), _| **uid != *pod);
    }

    /// Whether there are no rollbacks in any state.
    #[cfg(test)]
    pub(in crate::state) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Forgets all rollbacks: another leader sees the leftover claims itself.
    pub(in crate::state) fn clear(&mut self) {
        self.all.clear();
    }
}

impl Scheduler {
    /// Number of rollbacks abandoned since the last call.
    pub fn take_abandoned_rollbacks(&mut self) -> u64 {
        std::mem::take(&mut self.operations.rollbacks.abandoned)
    }

    /// Rolls back a claim of a pod, unless a rollback is in flight, scheduled or abandoned.
    pub(in crate::state) fn roll_back_claim(&mut self, pod: &PodRef, claim: &Arc<Claim>) {
        let key = (pod.uid.clone(), claim.meta.name.clone());
        let rollback = self.operations.rollbacks.all.get(&key);
        let is_new = rollback.is_none_or(|rollback| {
            rollback.step == RollbackStep::Abandoned && rollback.version != claim.meta.version
        });
        if is_new {
            self.submit_rollback(key, pod, claim, 0);
        }
    }

    /// Schedules rollbacks of claims that a failed bind could not roll back itself. They run if the
    /// pod's own retry does not place it first.
    pub(in crate::state) fn schedule_rollback(&mut self, uid: &PodUid, claims: &[ObjectName]) {
        let at = self.cache.now().saturating_add(self.cache.rollback_delay_ms(0));
        for claim in claims {
            let rollback =
                Rollback { version: Arc::default(), failures: 0, step: RollbackStep::RetryAt(at) };
            self.operations.rollbacks.all.entry((uid.clone(), claim.clone())).or_insert(rollback);
        }
    }

    /// Applies the result of a rollback.
    pub(in crate::state) fn rollback_finished(
        &mut self,
        uid: &PodUid,
        id: OpId,
        failure: Option<&Failure>,
    ) {
        let in_flight = self
            .operations
            .rollbacks
            .all
            .iter()
            .find(|(_, rollback)| rollback.step == RollbackStep::InFlight(id));
        let Some((key, failures)) =
            in_flight.map(|(key, rollback)| (key.clone(), rollback.failures))
        else {
            return;
        };
        let Some(failure) = failure.filter(|failure| is_retryable(failure.kind)) else {
            self.operations.rollbacks.all.remove(&key);
            self.make_ready_if_gated(uid);
            return;
        };
        let failures = failures + 1;
        let step = if failures < MAX_ATTEMPTS {
            RollbackStep::RetryAt(
                self.cache.now().saturating_add(self.cache.rollback_delay_ms(failures)),
            )
        } else {
            tracing::warn!(
                claim = %key.1, pod = %uid, %failure,
                "the rollback of a claim is abandoned after too many failures: its devices stay \
                 allocated until the claim is deallocated or its pod is deleted"
            );
            self.operations.rollbacks.abandoned += 1;
            RollbackStep::Abandoned
        };
        if let Some(rollback) = self.operations.rollbacks.all.get_mut(&key) {
            (rollback.failures, rollback.step) = (failures, step);
        }
        self.make_ready_if_gated(uid);
    }

    /// Runs the rollbacks that are due. Returns the next deadline.
    pub(in crate::state) fn retry_rollbacks(&mut self) -> Option<u64> {
        let due = |rollback: &Rollback| matches!(rollback.step, RollbackStep::RetryAt(at) if at <= self.cache.now());
        let due = self.operations.rollbacks.all.iter().filter(|(_, rollback)| due(rollback));
        for (key, rollback) in
            due.map(|(key, rollback)| (key.clone(), rollback.clone())).collect::<Vec<_>>()
        {
            let record = self.cache.pod(&key.0).filter(|record| record.pod.node.is_none());
            let claim = self.cache.devices().claim(&key.1).filter(|claim| {
                claim.is_extended || claim.reserved_for.iter().any(|user| *user.uid == *key.0)
            });
            let (Some(record), Some(claim)) = (record, claim) else {
                // The pod has a place or is gone, or the claim no longer belongs to it.
                self.operations.rollbacks.all.remove(&key);
                continue;
            };
            let (pod, claim) = (record.reference(), Arc::clone(claim));
            let is_waiting = record.is_pending_for(&self.cache.config().scheduler_name);
            if is_waiting && self.operations.in_flight.values().all(|op| op.pod != key.0) {
                self.submit_rollback(key, &pod, &claim, rollback.failures);
            } else if let Some(rollback) = self.operations.rollbacks.all.get_mut(&key) {
                // The pod's own retry goes first.
                rollback.step = RollbackStep::RetryAt(self.cache.now().saturating_add(1000));
            }
        }
        let waits =
            self.operations.rollbacks.all.values().filter_map(|rollback| match rollback.step {
                RollbackStep::RetryAt(at) => Some(at),
                RollbackStep::InFlight(_) | RollbackStep::Abandoned => None,
            });
        waits.min()
    }

    fn submit_rollback(
        &mut self,
        key: (PodUid, ObjectName),
        pod: &PodRef,
        claim: &Arc<Claim>,
        failures: u32,
    ) {
        let task = OpKind::Rollback { pod: pod.clone(), claim: Arc::clone(claim) };
        let id = self.operations.submit(&pod.uid, OpPurpose::Rollback, task);
        let version = Arc::clone(&claim.meta.version);
        self.operations
            .rollbacks
            .all
            .insert(key, Rollback { version, failures, step: RollbackStep::InFlight(id) });
    }

    /// Makes the entry of a pod ready that was gated meanwhile.
    pub(in crate::state) fn make_ready_if_gated(&mut self, uid: &PodUid) {
        let key = self.cache.queue_key_of(uid);
        if self.queue.state(&key) == Some(State::Gated) {
            self.queue.set_state(&key, State::Ready);
        }
    }
}

impl Cache {
    fn rollback_delay_ms(&self, failures: u32) -> u64 {
        let doubled = 2_u64 << failures.min(MAX_BACKOFF_DOUBLINGS - 1);
        self.config().retry_seconds.saturating_mul(1000).saturating_mul(doubled)
    }
}

/// Whether another attempt may succeed.
fn is_retryable(kind: FailureKind) -> bool {
    match kind {
        // The pod is gone, it uses the claim rightly, or the new leader handles it.
        FailureKind::PodGone | FailureKind::AlreadyBound | FailureKind::NotLeader => false,
        FailureKind::Conflict
        | FailureKind::Rejected
        | FailureKind::Budget
        | FailureKind::Unreachable
        | FailureKind::Indeterminate => true,
    }
}
