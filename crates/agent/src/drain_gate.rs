//! Gate for work on claims. Closing it waits for running work, so that the node can pass to another agent.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, RwLock};

/// Lets work in until it is shut.
#[derive(Debug, Default)]
pub(crate) struct DrainGate {
    is_closed: Arc<RwLock<bool>>,
}

/// Permission to work on claims and their files, until it is dropped. Its holder must not request another: the gate may
/// be waiting to close in between.
#[derive(Debug)]
pub(crate) struct WorkPermit {
    _guard: OwnedRwLockReadGuard<bool>,
}

impl DrainGate {
    /// Goes in; `None` once the gate is shut.
    pub(crate) async fn enter(&self) -> Option<WorkPermit> {
        let guard = Arc::clone(&self.is_closed).read_owned().await;
        (!*guard).then_some(WorkPermit { _guard: guard })
    }

    /// Closes the gate and waits for all permits to be dropped.
    pub(crate) async fn close(&self) {
        *self.is_closed.write().await = true;
    }
}
