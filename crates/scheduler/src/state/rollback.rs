//! Claims that are taken back from pods that are not bound: tried again while the API server refuses it,
//! later each time, and given up in the end.
//!
//! While one is on its way its pod is not decided on: the pod could be bound with a claim that is just
//! taken from it. Between two tries it is, and where it gets its place there is nothing to take back.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_kube_io::objects::{Claim, ObjectName};

use super::queue::State;
use super::{OpPurpose, Scheduler};
use crate::bind::{Failure, FailureKind, OrderId, PodRef, Task};

/// Tries until a claim is given up: with the waits between them some six minutes.
const MAX_ATTEMPTS: u32 = 10;
/// Most doublings of the wait between tries. The first is twice the wait of the pod's own next try, so that
/// this comes first.
const MAX_BACKOFF_DOUBLINGS: u32 = 6;

/// Claims that are taken back.
#[derive(Debug, Default)]
pub(super) struct ClaimRollbacks {
    /// By UID of the pod and name of the claim.
    all: BTreeMap<(Arc<str>, ObjectName), Rollback>,
    abandoned: u64,
}

/// How it stands with a claim.
#[derive(Clone, Debug)]
struct Rollback {
    /// The claim's version that was to be taken back last.
    version: Arc<str>,
    /// Tries that failed.
    failures: u32,
    step: RollbackStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RollbackStep {
    /// The order is on its way.
    InFlight(OrderId),
    /// Not before this time.
    RetryAt(u64),
    /// Not before the claim is another.
    Abandoned,
}

impl ClaimRollbacks {
    /// The claim that is being taken back from a pod, if one is.
    pub(super) fn in_flight_for(&self, pod: &str) -> Option<&ObjectName> {
        let of_pod = self.all.range((Arc::from(pod), ObjectName::default())..);
        of_pod
            .take_while(|((uid, _), _)| **uid == *pod)
            .find(|(_, rollback)| matches!(rollback.step, RollbackStep::InFlight(_)))
            .map(|((_, claim), _)| claim)
    }

    /// Pods from which claims are being taken back.
    pub(super) fn pods_in_flight(&self) -> Vec<Arc<str>> {
        let in_flight = self
            .all
            .iter()
            .filter(|(_, rollback)| matches!(rollback.step, RollbackStep::InFlight(_)));
        in_flight.map(|((uid, _), _)| Arc::clone(uid)).collect()
    }

    /// A pod is gone: what became of its claims is nobody's to know any more.
    pub(super) fn forget(&mut self, pod: &str) {
        self.all.retain(|(uid, _), _| **uid != *pod);
    }

    /// Whether none is on its way, waits or was given up.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Forgets all: somebody else leads, and sees what is left.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }
}

impl Scheduler {
    /// Claims that could not be taken back since the last call, after all tries.
    pub fn take_abandoned_rollbacks(&mut self) -> u64 {
        std::mem::take(&mut self.rollbacks.abandoned)
    }

    /// Takes a claim back from a pod, unless that is on its way, waits to be tried again, or was given up.
    pub(super) fn roll_back_claim(&mut self, pod: &PodRef, claim: &Arc<Claim>) {
        let key = (Arc::clone(&pod.uid), claim.meta.name.clone());
        let known = self.rollbacks.all.get(&key);
        let is_new = known.is_none_or(|rollback| {
            rollback.step == RollbackStep::Abandoned && rollback.version != claim.meta.version
        });
        if is_new {
            self.submit_rollback(key, pod, claim, 0);
        }
    }

    /// An order has failed, and these claims could not be taken back: that is tried again if the pod does
    /// not get its place by its own next try.
    pub(super) fn schedule_rollback(&mut self, uid: &Arc<str>, claims: &[ObjectName]) {
        let at = self.now.saturating_add(self.rollback_delay_ms(0));
        for claim in claims {
            let rollback =
                Rollback { version: Arc::default(), failures: 0, step: RollbackStep::RetryAt(at) };
            self.rollbacks.all.entry((Arc::clone(uid), claim.clone())).or_insert(rollback);
        }
    }

    /// What became of an order to take a claim back.
    pub(super) fn rollback_finished(
        &mut self,
        uid: &Arc<str>,
        id: OrderId,
        result: &Result<(), Failure>,
    ) {
        let in_flight = self
            .rollbacks
            .all
            .iter()
            .find(|(_, rollback)| rollback.step == RollbackStep::InFlight(id));
        let Some((key, failures)) =
            in_flight.map(|(key, rollback)| (key.clone(), rollback.failures))
        else {
            return;
        };
        if let Some(claim) = self.devices.claim(&key.1).map(Arc::clone) {
            self.devices.claim_taken_back(&claim);
        }
        let failure = match result {
            Err(failure) if is_retryable(failure.kind) => failure,
            _ => {
                self.rollbacks.all.remove(&key);
                self.make_ready_if_gated(uid);
                return;
            }
        };
        let failures = failures + 1;
        let step = if failures < MAX_ATTEMPTS {
            RollbackStep::RetryAt(self.now.saturating_add(self.rollback_delay_ms(failures)))
        } else {
            tracing::warn!(
                claim = %key.1, pod = %uid, %failure,
                "a claim could not be taken back from a pod that is not bound, after all tries: its \
                 devices are in use until somebody deallocates it or the pod goes"
            );
            self.rollbacks.abandoned += 1;
            RollbackStep::Abandoned
        };
        if let Some(rollback) = self.rollbacks.all.get_mut(&key) {
            (rollback.failures, rollback.step) = (failures, step);
        }
        self.make_ready_if_gated(uid);
    }

    /// Takes back again what could not be. Says when the next is tried.
    pub(super) fn retry_rollbacks(&mut self) -> Option<u64> {
        let due = |rollback: &Rollback| matches!(rollback.step, RollbackStep::RetryAt(at) if at <= self.now);
        let due = self.rollbacks.all.iter().filter(|(_, rollback)| due(rollback));
        for (key, rollback) in
            due.map(|(key, rollback)| (key.clone(), rollback.clone())).collect::<Vec<_>>()
        {
            let record = self.pods.get(&key.0).filter(|record| record.pod.node.is_none());
            let claim = self.devices.claim(&key.1).filter(|claim| {
                claim.is_extended || claim.reserved_for.iter().any(|user| user.uid == key.0)
            });
            let (Some(record), Some(claim)) = (record, claim) else {
                // The pod has its place or is gone, or the claim is no longer its own.
                self.rollbacks.all.remove(&key);
                continue;
            };
            let (pod, claim) = (record.reference(), Arc::clone(claim));
            let is_waiting = record.is_pending_for(&self.config.scheduler_name);
            if is_waiting && self.in_flight.values().all(|op| op.pod != key.0) {
                self.submit_rollback(key, &pod, &claim, rollback.failures);
            } else if let Some(known) = self.rollbacks.all.get_mut(&key) {
                // Its own try comes first.
                known.step = RollbackStep::RetryAt(self.now.saturating_add(1000));
            }
        }
        let waits = self.rollbacks.all.values().filter_map(|rollback| match rollback.step {
            RollbackStep::RetryAt(at) => Some(at),
            RollbackStep::InFlight(_) | RollbackStep::Abandoned => None,
        });
        waits.min()
    }

    fn submit_rollback(
        &mut self,
        key: (Arc<str>, ObjectName),
        pod: &PodRef,
        claim: &Arc<Claim>,
        failures: u32,
    ) {
        self.devices.claim_taken_back(claim);
        let task = Task::Undo { pod: pod.clone(), claim: Arc::clone(claim) };
        let id = self.submit(&pod.uid, OpPurpose::Rollback, task);
        let version = Arc::clone(&claim.meta.version);
        self.rollbacks
            .all
            .insert(key, Rollback { version, failures, step: RollbackStep::InFlight(id) });
    }

    fn rollback_delay_ms(&self, failures: u32) -> u64 {
        let doubled = 2_u64 << failures.min(MAX_BACKOFF_DOUBLINGS - 1);
        self.config.retry_seconds.saturating_mul(1000).saturating_mul(doubled)
    }

    /// The pod was not decided on meanwhile.
    pub(super) fn make_ready_if_gated(&mut self, uid: &Arc<str>) {
        let key = self.queue_key_of(uid);
        if self.queue.state(&key) == Some(State::Gated) {
            self.queue.set_state(&key, State::Ready);
        }
    }
}

/// Whether taking a claim back may succeed another time.
fn is_retryable(kind: FailureKind) -> bool {
    match kind {
        // Nobody is there to take it from, it is rightly had, or it is another's to do.
        FailureKind::PodGone | FailureKind::BoundAlready | FailureKind::NotLeader => false,
        FailureKind::Conflict
        | FailureKind::Refused
        | FailureKind::Budget
        | FailureKind::Unreachable
        | FailureKind::Undecided => true,
    }
}
