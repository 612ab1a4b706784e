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
pub(super) struct Turns(Arc<Mutex<HashMap<Arc<str>, Turn>>>);

/// An allocation in flight.
#[derive(Clone, Debug)]
struct Turn {
    done: CancellationToken,
    allocation: Arc<Allocation>,
    /// Which one, so that a later order's is not taken out.
    number: u64,
}

/// An order allocates a claim; until this goes.
#[derive(Debug)]
pub(super) struct Allocating {
    turns: Turns,
    claim: Arc<str>,
    number: u64,
    done: CancellationToken,
}

/// What an earlier order writes to a claim.
#[derive(Clone, Debug)]
pub(super) struct Awaited {
    done: CancellationToken,
    /// What the claim has afterwards, if that succeeds.
    pub(super) allocation: Arc<Allocation>,
}

impl Turns {
    /// An order (by its number) will allocate a claim.
    pub(super) fn allocate(
        &self,
        claim: &Arc<str>,
        allocation: &Allocation,
        number: u64,
    ) -> Allocating {
        let done = CancellationToken::new();
        let turn = Turn { done: done.clone(), allocation: Arc::new(allocation.clone()), number };
        self.lock().insert(Arc::clone(claim), turn);
        Allocating { turns: self.clone(), claim: Arc::clone(claim), number, done }
    }

    /// What an earlier order writes to a claim now, if one does.
    pub(super) fn awaited(&self, claim: &str) -> Option<Awaited> {
        let turns = self.lock();
        let turn = turns.get(claim)?;
        Some(Awaited { done: turn.done.clone(), allocation: Arc::clone(&turn.allocation) })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Turn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Awaited {
    /// Waits until it was written, or failed.
    pub(super) async fn wait(&self) {
        self.done.cancelled().await;
    }
}

impl Allocating {
    /// UID of the claim.
    pub(super) fn claim(&self) -> &str {
        &self.claim
    }
}

impl Drop for Allocating {
    fn drop(&mut self) {
        let mut turns = self.turns.lock();
        if turns.get(&self.claim).is_some_and(|turn| turn.number == self.number) {
            turns.remove(&self.claim);
        }
        drop(turns);
        self.done.cancel();
    }
}
