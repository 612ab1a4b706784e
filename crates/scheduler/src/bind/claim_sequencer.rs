//! Claims that an order in flight allocates, so that orders which only reserve them wait for it.
//!
//! A pod that shares a claim is decided while the claim's allocation is still being written. Its
//! reservation would be refused if it came first. Orders wait for earlier ones only, so they never wait
//! in a circle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octavo_dra::Allocation;
use tokio_util::sync::CancellationToken;

/// Allocations in flight, by UID of the claim.
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimSequencer(Arc<Mutex<HashMap<Arc<str>, InFlightAllocation>>>);

/// An allocation in flight.
#[derive(Clone, Debug)]
struct InFlightAllocation {
    done: CancellationToken,
    allocation: Arc<Allocation>,
    /// Which one, so that a later order's is not taken out.
    number: u64,
}

/// An order allocates a claim; until this goes.
#[derive(Debug)]
pub(super) struct AllocationGuard {
    sequencer: ClaimSequencer,
    claim: Arc<str>,
    number: u64,
    done: CancellationToken,
}

/// What an earlier order writes to a claim.
#[derive(Clone, Debug)]
pub(super) struct PendingAllocation {
    done: CancellationToken,
    /// What the claim has afterwards, if that succeeds.
    pub(super) allocation: Arc<Allocation>,
}

impl ClaimSequencer {
    /// An order (by its number) will allocate a claim.
    pub(super) fn begin(
        &self,
        claim: &Arc<str>,
        allocation: &Allocation,
        number: u64,
    ) -> AllocationGuard {
        let done = CancellationToken::new();
        let in_flight = InFlightAllocation {
            done: done.clone(),
            allocation: Arc::new(allocation.clone()),
            number,
        };
        self.lock().insert(Arc::clone(claim), in_flight);
        AllocationGuard { sequencer: self.clone(), claim: Arc::clone(claim), number, done }
    }

    /// What an earlier order writes to a claim now, if one does.
    pub(super) fn pending(&self, claim: &str) -> Option<PendingAllocation> {
        let sequencer = self.lock();
        let in_flight = sequencer.get(claim)?;
        Some(PendingAllocation {
            done: in_flight.done.clone(),
            allocation: Arc::clone(&in_flight.allocation),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, InFlightAllocation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingAllocation {
    /// Waits until it was written, or failed.
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
