//! Write operations in flight, and those that are tried again later.

pub(super) mod indeterminate;
pub(super) mod leftover_allocations;
pub(super) mod results;
pub(super) mod rollback;

use std::collections::{BTreeMap, BTreeSet};

use octavo_kube_io::objects::{ObjectName, PodUid};

use crate::bind::{Bind, OpId, OpKind, WriteOp};
use crate::state::operations::indeterminate::IndeterminateBind;
use crate::state::operations::rollback::ClaimRollbacks;

/// Write operations in flight, and what is tried again later.
#[derive(Debug, Default)]
pub(super) struct Operations {
    in_flight: BTreeMap<OpId, InFlightOp>,
    next_id: u64,
    /// Since the last [`Self::take`].
    submitted: Vec<WriteOp>,
    /// Pods whose eviction failed, by the time in milliseconds of the next attempt.
    eviction_retries: BTreeSet<(u64, PodUid)>,
    /// Binds with an indeterminate outcome, by pod UID.
    indeterminate: BTreeMap<PodUid, IndeterminateBind>,
    /// Rollbacks of claims.
    rollbacks: ClaimRollbacks,
}

/// A write operation in flight.
#[derive(Clone, Debug)]
pub(super) struct InFlightOp {
    pub(super) pod: PodUid,
    pub(super) purpose: OpPurpose,
    /// What it binds, for another attempt.
    pub(super) bind: Option<Box<Bind>>,
    /// Whether another scheduler may have led since the operation was submitted.
    pub(super) spans_leadership_gap: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpPurpose {
    Bind,
    Evict,
    Repair,
    Rollback,
    Nominate,
    RequestVolumes,
}

impl Operations {
    /// Submits a write operation.
    pub(super) fn submit(&mut self, pod: &PodUid, purpose: OpPurpose, kind: OpKind) -> OpId {
        let id = OpId(self.next_id);
        self.next_id += 1;
        let bind = match &kind {
            OpKind::Bind(bind) => Some(Box::new(bind.clone())),
            _ => None,
        };
        let op = InFlightOp { pod: pod.clone(), purpose, bind, spans_leadership_gap: false };
        self.in_flight.insert(id, op);
        self.submitted.push(WriteOp { id, kind });
        id
    }

    /// Number of operations in flight.
    pub(super) fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether an operation of this pod is in flight.
    pub(super) fn is_in_flight_for(&self, pod: &str) -> bool {
        self.in_flight.values().any(|op| *op.pod == *pod)
    }

    /// Pods other than this one whose binds are in flight, or have an unknown outcome.
    pub(super) fn other_binding_pods(&self, pod: &PodUid) -> BTreeSet<PodUid> {
        let in_flight = self.in_flight.values().filter(|op| op.bind.is_some());
        let binding = in_flight.map(|op| &op.pod).chain(self.indeterminate.keys());
        binding.filter(|other| *other != pod).cloned().collect()
    }

    /// The claim of a pod whose rollback is in flight, if any.
    pub(super) fn rollback_in_flight_for(&self, pod: &str) -> Option<&ObjectName> {
        self.rollbacks.in_flight_for(pod)
    }

    /// Whether there are rollbacks in any state.
    #[cfg(test)]
    pub(super) fn has_rollbacks(&self) -> bool {
        !self.rollbacks.is_empty()
    }

    /// Forgets what was to be tried again for a deleted pod. Its operations in flight end.
    pub(super) fn forget(&mut self, pod: &PodUid) {
        self.indeterminate.remove(pod);
        self.rollbacks.forget(pod);
    }

    /// Ends all rollbacks, because another leader sees the leftover claims itself. Returns the pods
    /// for which some were in flight.
    pub(super) fn abandon_rollbacks(&mut self) -> Vec<PodUid> {
        let pods = self.rollbacks.pods_in_flight();
        self.rollbacks.clear();
        pods
    }

    /// Notes when a pod may be evicted again, in milliseconds.
    pub(super) fn retry_eviction_at(&mut self, at: u64, pod: &PodUid) {
        self.eviction_retries.insert((at, pod.clone()));
    }

    /// The next pod that may be evicted again, if it is due. Otherwise the next deadline, if any.
    pub(super) fn next_eviction_retry(&mut self, now: u64) -> Result<PodUid, Option<u64>> {
        match self.eviction_retries.first() {
            Some((at, _)) if *at > now => Err(Some(*at)),
            _ => self.eviction_retries.pop_first().map(|(_, pod)| pod).ok_or(None),
        }
    }

    /// Number of operations ever submitted.
    pub(super) fn submitted_count(&self) -> u64 {
        self.next_id
    }

    /// Write operations since the last call.
    pub(super) fn take(&mut self) -> Vec<WriteOp> {
        std::mem::take(&mut self.submitted)
    }
}
