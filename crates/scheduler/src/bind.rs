//! Writes to the API server: claims, bindings, evictions. Many operations run at once.
//!
//! A bind operation runs in steps. Each step may fail, and the scheduler may crash after any of
//! them:
//!
//! 1. for extended resources, create the claim with the finalizer, owned by the pod;
//! 2. for each claim, add the finalizer, then `status.allocation` and `status.reservedFor` in one
//!    update;
//! 3. set the pod's `status.extendedResourceClaimStatus`;
//! 4. create the binding.
//!
//! A failed operation is rolled back in reverse order, so that another pod can use the devices.

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

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_dra::{Allocation, ExtendedClaim};
use octavo_kube_io::objects::{Claim, ClaimUid, NodeName, ObjectName, PodUid};

pub use binder::{Binder, BinderOptions, Load};
pub(crate) use call::{Api, ApiError, ApiRequest, BodyFormat, unreadable};
pub use leadership::{FencingGate, Leadership, TermRemaining};

/// Number of a write operation. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// A pod by name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// Namespace and name.
    pub name: ObjectName,
    /// The pod's UID. A later pod of the same name has another UID.
    pub uid: PodUid,
}

/// A write operation.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteOp {
    /// Its number, repeated in the result.
    pub id: OpId,
    /// What to write.
    pub kind: OpKind,
}

/// What to write.
#[derive(Clone, Debug, PartialEq)]
pub enum OpKind {
    /// Allocate a pod's claims and bind it.
    Bind(Bind),
    /// Delete a pod to free its place, with the pod's own grace period.
    Evict(Evict),
    /// Set `status.nominatedNodeName`, the node of a pod that waits for victims to leave. `None`
    /// clears it.
    Nominate {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: Option<NodeName>,
    },
    /// Request the volumes of a pod's claims for its node. The pod is bound once they are.
    RequestVolumes {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: NodeName,
        /// The requests.
        writes: Vec<VolumeWrite>,
    },
    /// Roll back what a previous leader allocated for a pod that is not bound. The reservation is
    /// removed, and the allocation too if the claim has no other consumer.
    Rollback {
        /// The pod that holds the reservation.
        pod: PodRef,
        /// The claim as the watch has it.
        claim: Arc<Claim>,
    },
}

/// A request for the volume of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeWrite {
    /// Have a volume provisioned for the node: the claim gets an annotation.
    Provision {
        /// The `PersistentVolumeClaim`.
        claim: ObjectName,
        /// Its UID.
        uid: Arc<str>,
    },
    /// Reserve an existing volume for the claim: the volume gets a `claimRef`. The controller of
    /// volumes does the rest.
    Bind {
        /// The `PersistentVolume`.
        volume: Arc<str>,
        /// Its resource version, which guards the write.
        version: Arc<str>,
        /// The `PersistentVolumeClaim`.
        claim: ObjectName,
        /// Its UID.
        claim_uid: Arc<str>,
    },
}

/// Allocate a pod's claims and bind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bind {
    /// The pod.
    pub pod: PodRef,
    /// The node.
    pub node: NodeName,
    /// The pod's claims with their allocations, in the order of the pod's spec. Without an
    /// allocation the claim is allocated already, and only the reservation is written.
    pub claims: Vec<ClaimWrite>,
    /// The claim for extended resources. This operation creates it.
    pub extended: Option<ExtendedWrite>,
    /// Value of the pod's annotation [`octavo_api::names::GANG_PLACED`], which the binding writes.
    /// `None`: the pod is in no gang, or its gang has places for fewer pods than its minimum.
    pub gang_placed: Option<Arc<str>>,
    /// Whether this repeats an operation of unknown outcome. The cluster state it was planned on
    /// may then be older than its own writes. The pod may be bound, and each claim may be written
    /// or rolled back.
    pub is_retry: bool,
}

/// A claim and its allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimWrite {
    /// The claim as the watch has it. Its resource version guards the write.
    pub claim: Arc<Claim>,
    /// The allocation to write; `None` if the claim is allocated already.
    pub allocation: Option<WrittenAllocation>,
}

/// The claim for extended resources and its allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtendedWrite {
    /// Its requests, and the containers that use them.
    pub claim: ExtendedClaim,
    /// What it gets.
    pub allocation: WrittenAllocation,
}

/// An allocation as it is written, with the configs of classes and claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WrittenAllocation {
    /// Devices and nodes.
    pub allocation: Allocation,
    /// `devices.config` in its API form: those of classes first, in the order of requests.
    pub config: Vec<serde_json::Value>,
    /// Per result, in API form: the request's tolerations
    /// (`DeviceRequestAllocationResult.tolerations`) and the device's binding conditions.
    pub extras: Vec<serde_json::Value>,
}

/// Delete a pod to free its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    /// The pod.
    pub pod: PodRef,
    /// Message of the pod's `DisruptionTarget` condition and of its event.
    pub message: String,
    /// Reason: `PreemptionByScheduler` or another one that the API defines.
    pub reason: &'static str,
    /// Whether disruption budgets apply: true for the Eviction API, false for a plain delete.
    pub is_bound_by_budgets: bool,
}

/// `resourceVersion` of claims after the last write of an operation, by UID.
pub type ClaimVersions = BTreeMap<ClaimUid, u64>;

/// The result of a write operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpResult {
    /// The operation.
    pub id: OpId,
    /// The claims of a bind with their versions, or why it failed. A repeated bind that finds the
    /// pod bound does not read the claims.
    pub result: Result<ClaimVersions, Failure>,
}

/// Why an operation failed. Its writes are rolled back, except where the fields below say
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {message}")]
pub struct Failure {
    /// The step that failed, in words.
    pub step: &'static str,
    /// The API server's message.
    pub message: String,
    /// How the failure affects the next attempt.
    pub kind: FailureKind,
    /// Names of claims that could not be rolled back. They may stay allocated although the pod is
    /// not bound, until a watch shows otherwise. No write of the operation is still in progress.
    pub unreleased: Vec<ObjectName>,
}

/// How a failure affects the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// The pod is gone, or another pod has its name.
    PodGone,
    /// The pod is bound already, by this scheduler or another client.
    AlreadyBound,
    /// An object has changed since it was read. Re-read it and decide again.
    Conflict,
    /// The API server rejects the request and would reject it again: it is malformed, or admission
    /// or RBAC forbids it.
    Rejected,
    /// A disruption budget does not allow it now.
    Budget,
    /// The API server was unreachable or overloaded until the retry timeout.
    Unreachable,
    /// The outcome is unknown and the pod may be bound: the binding was sent, and the pod could not
    /// be read back. Nothing was rolled back.
    Indeterminate,
    /// This scheduler lost the lease and stopped writing. Earlier writes that it could not roll
    /// back are in [`Failure::unreleased`].
    NotLeader,
}

impl Failure {
    /// The failure of a step that left nothing unreleased.
    pub fn new(step: &'static str, kind: FailureKind, message: impl Into<String>) -> Self {
        Self { step, message: message.into(), kind, unreleased: Vec::new() }
    }

    /// The failure of a step with an API error, without further information.
    fn of(step: &'static str, error: &ApiError) -> Self {
        let kind = match error {
            ApiError::NotLeader => FailureKind::NotLeader,
            ApiError::Indeterminate { .. } => FailureKind::Unreachable,
            ApiError::Rejected(rejection) => match rejection.code {
                409 | 404 => FailureKind::Conflict,
                429 => FailureKind::Unreachable,
                _ => FailureKind::Rejected,
            },
        };
        Self::new(step, kind, error.to_string())
    }
}

#[cfg(test)]
pub(crate) mod tests;
