//! The gate: work on claims goes through it, so that it can be waited for when the node passes to another agent.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, RwLock};

/// Lets work in until it is shut.
#[derive(Debug, Default)]
pub(super) struct DrainGate {
    is_closed: Arc<RwLock<bool>>,
}

/// Leave to work on claims and their files; it ends when this is dropped. Whoever has one must not ask for
/// another: between the two the gate may be waiting to be shut.
#[derive(Debug)]
pub(super) struct WorkPermit {
    _guard: OwnedRwLockReadGuard<bool>,
}

impl DrainGate {
    /// Goes in; `None` once the gate is shut.
    pub(super) async fn enter(&self) -> Option<WorkPermit> {
        let guard = Arc::clone(&self.is_closed).read_owned().await;
        (!*guard).then_some(WorkPermit { _guard: guard })
    }

    /// Lets nobody in any more and waits until everybody is out.
    pub(super) async fn close(&self) {
        *self.is_closed.write().await = true;
    }
}
