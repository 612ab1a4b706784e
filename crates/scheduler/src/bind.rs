//! What is written: claims, bindings, evictions; many at once, each by the protocol.
//!
//! A pod's order is carried out in steps, each of which may fail or be the last before a crash:
//!
//! 1. for its extended resources: create the claim, with the finalizer, owned by the pod;
//! 2. each claim: the finalizer, then `status.allocation` and `status.reservedFor` in one update;
//! 3. `status.extendedResourceClaimStatus` of the pod;
//! 4. the binding.
//!
//! What fails is undone in reverse, so that another pod can have it.

mod aimd_limit;
mod binder;
mod call;
mod claim_sequencer;
mod claims;
mod evict;
mod extended;
mod leadership;
mod patches;
mod pod;
mod rbac_denials;
mod responses;
mod settle;

use std::sync::Arc;

use octavo_dra::{Allocation, ExtendedClaim};
use octavo_kube_io::objects::{Claim, ObjectName};

pub use binder::{Binder, BinderOptions, Load};
pub(crate) use call::{Api, ApiError, ApiWrite, BodyFormat};
pub use leadership::{FencingGate, Leadership, TermRemaining};

/// Number of an order; not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// A pod by name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// Namespace and name.
    pub name: ObjectName,
    /// UID: who has the name later is another pod.
    pub uid: Arc<str>,
}

/// Something to write.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteOp {
    /// Its number; the outcome has it too.
    pub id: OpId,
    /// What.
    pub kind: OpKind,
}

/// What to write.
#[derive(Clone, Debug, PartialEq)]
pub enum OpKind {
    /// Allocate a pod's claims and bind it.
    Bind(Bind),
    /// Delete a pod so that others have its place, with the grace of its own.
    Evict(Evict),
    /// Say on which node a pod will run once others have left (`status.nominatedNodeName`); `None`
    /// takes it back.
    Nominate {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: Option<Arc<str>>,
    },
    /// Take back what an earlier scheduler allocated for a pod that is not bound: its reservation and, if
    /// nobody else is reserved, the allocation.
    Rollback {
        /// The pod that is reserved.
        pod: PodRef,
        /// The claim as it was seen.
        claim: Arc<Claim>,
    },
}

/// Allocate a pod's claims and bind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bind {
    /// The pod.
    pub pod: PodRef,
    /// The node.
    pub node: Arc<str>,
    /// Claims of the pod, in its order, with what they get; `None`: it is allocated already and only
    /// the reservation is written.
    pub claims: Vec<ClaimWrite>,
    /// The claim for extended resources, which is made by the order.
    pub extended: Option<ExtendedWrite>,
    /// Whether what was seen may be older than what this scheduler did, as where it was sent before and nobody
    /// knows what that left: the pod may be bound, and any of the claims written or taken back.
    pub is_retry: bool,
}

/// A claim and what it gets.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimWrite {
    /// The claim as it was seen: its version guards the write.
    pub claim: Arc<Claim>,
    /// What it gets; `None`: it is allocated already.
    pub allocation: Option<WrittenAllocation>,
}

/// The claim for extended resources and what it gets.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtendedWrite {
    /// Its requests and who uses them.
    pub claim: ExtendedClaim,
    /// What it gets.
    pub allocation: WrittenAllocation,
}

/// An allocation as it is written: with the configs of classes and claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WrittenAllocation {
    /// Devices and nodes.
    pub allocation: Allocation,
    /// `devices.config`, as it stands in the API: classes' first, in the order of requests.
    pub config: Vec<serde_json::Value>,
    /// By result: tolerations of the request, as they stand in the API
    /// (`DeviceRequestAllocationResult.tolerations`), and binding conditions of the device.
    pub extras: Vec<serde_json::Value>,
}

/// Delete a pod so that others have its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    /// The pod.
    pub pod: PodRef,
    /// Why, for the pod's condition `DisruptionTarget` and its event.
    pub message: String,
    /// Reason: `PreemptionByScheduler` or another of the API's.
    pub reason: &'static str,
    /// Whether disruption budgets decide (the Eviction API) or not (a plain delete).
    pub is_bound_by_budgets: bool,
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpResult {
    /// The order.
    pub id: OpId,
    /// What became of it.
    pub result: Result<(), Failure>,
}

/// Why an order was not carried out. What it had written is undone unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {message}")]
pub struct Failure {
    /// What was being done, in words.
    pub step: &'static str,
    /// What the API said.
    pub message: String,
    /// What it means for the next try.
    pub kind: FailureKind,
    /// Names of claims that could not be undone: they may be allocated although their pod is not bound,
    /// until the claim is seen otherwise. Where there are any, no write of the order is under way any more.
    pub unreleased: Vec<ObjectName>,
}

/// What a failure means for the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// The pod is gone, or another of its name is there.
    PodGone,
    /// The pod is bound already, by whomever.
    AlreadyBound,
    /// An object has changed since it was seen: look anew.
    Conflict,
    /// The API server refuses it and would again: malformed, forbidden by admission or rights.
    Rejected,
    /// A disruption budget does not allow it now.
    Budget,
    /// The API server could not be reached or was too busy, also after patience.
    Unreachable,
    /// The pod may be bound: the binding was sent, and nobody could be asked what became of it. Nothing
    /// was undone.
    Indeterminate,
    /// This scheduler is no longer the leader: nothing more was written. What was before, and could not be
    /// taken back, is in [`Failure::left`].
    NotLeader,
}

#[cfg(test)]
pub(crate) mod tests;
