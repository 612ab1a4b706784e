//! Claims that are taken back from pods that are not bound: tried again while the API server refuses it,
//! later each time, and given up in the end.
//!
//! While one is on its way its pod is not decided on: the pod could be bound with a claim that is just
//! taken from it. Between two tries it is, and where it gets its place there is nothing to take back.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_kube_io::objects::{Claim, ObjectName};

use super::queue::State;
use super::{Core, FlightKind};
use crate::bind::{Failure, FailureKind, OpId, OpKind, PodRef};

/// Tries until a claim is given up: with the waits between them some six minutes.
const TRIES: u32 = 10;
/// Most doublings of the wait between tries. The first is twice the wait of the pod's own next try, so that
/// this comes first.
const MOST_DOUBLINGS: u32 = 6;

/// Claims that are taken back.
#[derive(Debug, Default)]
pub(super) struct Undos {
    /// By UID of the pod and name of the claim.
    all: BTreeMap<(Arc<str>, ObjectName), Undo>,
    given_up: u64,
}

/// How it stands with a claim.
#[derive(Clone, Debug)]
struct Undo {
    /// The claim's version that was to be taken back last.
    version: Arc<str>,
    /// Tries that failed.
    failed: u32,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The order is on its way.
    Flying(OpId),
    /// Not before this time.
    Waits(u64),
    /// Not before the claim is another.
    GivenUp,
}

impl Undos {
    /// The claim that is being taken back from a pod, if one is.
    pub(super) fn flying_of(&self, pod: &str) -> Option<&ObjectName> {
        let of_pod = self.all.range((Arc::from(pod), ObjectName::default())..);
        of_pod
            .take_while(|((uid, _), _)| **uid == *pod)
            .find(|(_, undo)| matches!(undo.step, Step::Flying(_)))
            .map(|((_, claim), _)| claim)
    }

    /// Pods from which claims are being taken back.
    pub(super) fn all_flying(&self) -> Vec<Arc<str>> {
        let flying = self.all.iter().filter(|(_, undo)| matches!(undo.step, Step::Flying(_)));
        flying.map(|((uid, _), _)| Arc::clone(uid)).collect()
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

impl Core {
    /// Claims that could not be taken back since the last call, after all tries.
    pub fn take_given_up(&mut self) -> u64 {
        std::mem::take(&mut self.undos.given_up)
    }

    /// Takes a claim back from a pod, unless that is on its way, waits to be tried again, or was given up.
    pub(super) fn undo(&mut self, pod: &PodRef, claim: &Arc<Claim>) {
        let key = (Arc::clone(&pod.uid), claim.meta.name.clone());
        let known = self.undos.all.get(&key);
        let is_new = known
            .is_none_or(|undo| undo.step == Step::GivenUp && undo.version != claim.meta.version);
        if is_new {
            self.order_undo(key, pod, claim, 0);
        }
    }

    /// An order has failed, and these claims could not be taken back: that is tried again if the pod does
    /// not get its place by its own next try.
    pub(super) fn undo_later(&mut self, uid: &Arc<str>, claims: &[ObjectName]) {
        let at = self.now.saturating_add(self.wait_to_undo(0));
        for claim in claims {
            let undo = Undo { version: Arc::default(), failed: 0, step: Step::Waits(at) };
            self.undos.all.entry((Arc::clone(uid), claim.clone())).or_insert(undo);
        }
    }

    /// What became of an order to take a claim back.
    pub(super) fn undone(&mut self, uid: &Arc<str>, id: OpId, result: &Result<(), Failure>) {
        let flying = self.undos.all.iter().find(|(_, undo)| undo.step == Step::Flying(id));
        let Some((key, failed)) = flying.map(|(key, undo)| (key.clone(), undo.failed)) else {
            return;
        };
        if let Some(claim) = self.devices.claim(&key.1).map(Arc::clone) {
            self.devices.note_claim_rollback(&claim);
        }
        let failure = match result {
            Err(failure) if is_worth_another(failure.kind) => failure,
            _ => {
                self.undos.all.remove(&key);
                self.decide_again(uid);
                return;
            }
        };
        let failed = failed + 1;
        let step = if failed < TRIES {
            Step::Waits(self.now.saturating_add(self.wait_to_undo(failed)))
        } else {
            tracing::warn!(
                claim = %key.1, pod = %uid, %failure,
                "a claim could not be taken back from a pod that is not bound, after all tries: its \
                 devices are in use until somebody deallocates it or the pod goes"
            );
            self.undos.given_up += 1;
            Step::GivenUp
        };
        if let Some(undo) = self.undos.all.get_mut(&key) {
            (undo.failed, undo.step) = (failed, step);
        }
        self.decide_again(uid);
    }

    /// Takes back again what could not be. Says when the next is tried.
    pub(super) fn undo_again(&mut self) -> Option<u64> {
        let due = |undo: &Undo| matches!(undo.step, Step::Waits(at) if at <= self.now);
        let due = self.undos.all.iter().filter(|(_, undo)| due(undo));
        for (key, undo) in due.map(|(key, undo)| (key.clone(), undo.clone())).collect::<Vec<_>>() {
            let record = self.pods.get(&key.0).filter(|record| record.pod.node.is_none());
            let claim = self.devices.claim(&key.1).filter(|claim| {
                claim.is_extended || claim.reserved_for.iter().any(|one| one.uid == key.0)
            });
            let (Some(record), Some(claim)) = (record, claim) else {
                // The pod has its place or is gone, or the claim is no longer its own.
                self.undos.all.remove(&key);
                continue;
            };
            let (pod, claim) = (record.reference(), Arc::clone(claim));
            let is_waiting = record.waits_for(&self.config.scheduler_name);
            if is_waiting && self.flying.values().all(|flight| flight.pod != key.0) {
                self.order_undo(key, &pod, &claim, undo.failed);
            } else if let Some(known) = self.undos.all.get_mut(&key) {
                // Its own try comes first.
                known.step = Step::Waits(self.now.saturating_add(1000));
            }
        }
        let waits = self.undos.all.values().filter_map(|undo| match undo.step {
            Step::Waits(at) => Some(at),
            Step::Flying(_) | Step::GivenUp => None,
        });
        waits.min()
    }

    fn order_undo(
        &mut self,
        key: (Arc<str>, ObjectName),
        pod: &PodRef,
        claim: &Arc<Claim>,
        failed: u32,
    ) {
        self.devices.note_claim_rollback(claim);
        let task = OpKind::Rollback { pod: pod.clone(), claim: Arc::clone(claim) };
        let id = self.order(&pod.uid, FlightKind::Undo, task);
        let version = Arc::clone(&claim.meta.version);
        self.undos.all.insert(key, Undo { version, failed, step: Step::Flying(id) });
    }

    fn wait_to_undo(&self, failed: u32) -> u64 {
        let doubled = 2_u64 << failed.min(MOST_DOUBLINGS - 1);
        self.config.retry_seconds.saturating_mul(1000).saturating_mul(doubled)
    }

    /// The pod was not decided on meanwhile.
    pub(super) fn decide_again(&mut self, uid: &Arc<str>) {
        let unit = self.unit_of(uid);
        if self.queue.state(&unit) == Some(State::Missing) {
            self.queue.set(&unit, State::Ready);
        }
    }
}

/// Whether taking a claim back may succeed another time.
fn is_worth_another(kind: FailureKind) -> bool {
    match kind {
        // Nobody is there to take it from, it is rightly had, or it is another's to do.
        FailureKind::PodGone | FailureKind::AlreadyBound | FailureKind::NotLeader => false,
        FailureKind::Conflict
        | FailureKind::Rejected
        | FailureKind::Budget
        | FailureKind::Unreachable
        | FailureKind::Indeterminate => true,
    }
}
