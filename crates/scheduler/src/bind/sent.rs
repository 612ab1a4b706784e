//! When an order's writes are over at the server, also those whose answers were lost.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// When the last write of an order whose answer was lost has been done or never will be.
#[derive(Debug, Default)]
pub(super) struct Sent(Mutex<Option<Instant>>);

impl Sent {
    /// An answer was lost.
    pub(super) fn note(&self, settled: Instant) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last).max(Some(settled));
    }

    /// Waits until nothing of the order can land any more.
    pub(super) async fn settle(&self) {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last {
            tokio::time::sleep_until(last).await;
        }
    }
}
