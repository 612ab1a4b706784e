//! Claims that operations in flight are allocating. Operations that only reserve such a claim wait
//! for them.
//!
//! A pod that shares a claim may be decided while the claim's allocation is still being written.
//! Its reservation would be rejected if it came first. Operations wait only for earlier ones, so
//! they never deadlock.

use std::collections::HashMap;
use std::sync::Arc;

use octavo_dra::Allocation;
use octavo_kube_io::objects::ClaimUid;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::OpId;

/// The last allocations in flight, by claim, with their operations.
#[derive(Debug, Default)]
pub(super) struct ClaimSequencer(HashMap<ClaimUid, (OpId, PendingAllocation)>);

/// Held while an operation allocates a claim. Its end releases waiting operations.
#[derive(Debug)]
pub(super) struct AllocationGuard {
    pub(super) claim: ClaimUid,
    _done: DropGuard,
}

/// The allocation that an earlier operation is writing.
#[derive(Clone, Debug)]
pub(super) struct PendingAllocation {
    done: CancellationToken,
    /// The claim's allocation, if that operation succeeds.
    pub(super) allocation: Arc<Allocation>,
}

impl ClaimSequencer {
    /// Registers that an operation will allocate a claim.
    pub(super) fn begin(
        &mut self,
        claim: ClaimUid,
        allocation: &Allocation,
        op: OpId,
    ) -> AllocationGuard {
        let done = CancellationToken::new();
        let allocation = Arc::new(allocation.clone());
        let pending = PendingAllocation { done: done.clone(), allocation };
        self.0.insert(claim.clone(), (op, pending));
        AllocationGuard { claim, _done: done.drop_guard() }
    }

    /// The allocation that an earlier operation is writing to a claim, if any.
    pub(super) fn pending(&self, claim: &str) -> Option<PendingAllocation> {
        let (_, pending) = self.0.get(claim)?;
        (!pending.done.is_cancelled()).then(|| pending.clone())
    }

    /// Forgets an operation that has ended.
    pub(super) fn end(&mut self, op: OpId) {
        self.0.retain(|_, (other, _)| *other != op);
    }
}

impl PendingAllocation {
    /// Waits until it is written or has failed.
    pub(super) async fn wait(&self) {
        self.done.cancelled().await;
    }
}
