//! Claims that operations in flight are allocating. Operations that only reserve such a claim wait
//! for them.
//!
//! A pod that shares a claim may be decided while the claim's allocation is still being written.
//! Its reservation would be rejected if it came first. Operations wait only for earlier ones, so
//! they never deadlock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octavo_dra::Allocation;
use octavo_kube_io::objects::ClaimUid;
use tokio_util::sync::CancellationToken;

/// Allocations in flight, by claim.
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimSequencer(Arc<Mutex<HashMap<ClaimUid, InFlightAllocation>>>);

/// An allocation in flight.
#[derive(Clone, Debug)]
struct InFlightAllocation {
    done: CancellationToken,
    allocation: Arc<Allocation>,
    /// Number of the operation, so that a later one is not removed.
    number: u64,
}

/// Held while an operation allocates a claim.
#[derive(Debug)]
pub(super) struct AllocationGuard {
    sequencer: ClaimSequencer,
    claim: ClaimUid,
    number: u64,
    done: CancellationToken,
}

/// The allocation that an earlier operation is writing.
#[derive(Clone, Debug)]
pub(super) struct PendingAllocation {
    done: CancellationToken,
    /// The claim's allocation, if that operation succeeds.
    pub(super) allocation: Arc<Allocation>,
}

impl ClaimSequencer {
    /// Registers that operation `number` will allocate a claim.
    pub(super) fn begin(
        &self,
        claim: ClaimUid,
        allocation: &Allocation,
        number: u64,
    ) -> AllocationGuard {
        let done = CancellationToken::new();
        let in_flight = InFlightAllocation {
            done: done.clone(),
            allocation: Arc::new(allocation.clone()),
            number,
        };
        self.lock().insert(claim.clone(), in_flight);
        AllocationGuard { sequencer: self.clone(), claim, number, done }
    }

    /// The allocation that an earlier operation is writing to a claim, if any.
    pub(super) fn pending(&self, claim: &str) -> Option<PendingAllocation> {
        let sequencer = self.lock();
        let in_flight = sequencer.get(claim)?;
        Some(PendingAllocation {
            done: in_flight.done.clone(),
            allocation: Arc::clone(&in_flight.allocation),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClaimUid, InFlightAllocation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingAllocation {
    /// Waits until it is written or has failed.
    pub(super) async fn wait(&self) {
        self.done.cancelled().await;
    }
}

impl AllocationGuard {
    /// UID of the claim.
    pub(super) fn claim(&self) -> &str {
        &self.claim
    }
}

impl Drop for AllocationGuard {
    fn drop(&mut self) {
        let mut sequencer = self.sequencer.lock();
        if sequencer.get(&self.claim).is_some_and(|in_flight| in_flight.number == self.number) {
            sequencer.remove(&self.claim);
        }
        drop(sequencer);
        self.done.cancel();
    }
}
