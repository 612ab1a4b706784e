//! When an order's writes are over at the server, also those whose answers were lost.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// When the last write of an order whose answer was lost has been done or never will be.
#[derive(Debug, Default)]
pub(super) struct SettleBarrier(Mutex<Option<Instant>>);

impl SettleBarrier {
    /// An answer was lost.
    pub(super) fn record(&self, settles_at: Instant) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last).max(Some(settles_at));
    }

    /// Waits until nothing of the order can land any more.
    pub(super) async fn wait(&self) {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last {
            tokio::time::sleep_until(last).await;
        }
    }
}
