//! When the writes of an operation have settled at the server, including those with lost responses.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// When the last write with a lost response has taken effect, or never will.
#[derive(Debug, Default)]
pub(super) struct SettleBarrier(Mutex<Option<Instant>>);

impl SettleBarrier {
    /// Records a lost response.
    pub(super) fn record(&self, settles_at: Instant) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last).max(Some(settles_at));
    }

    /// Waits until no write of the operation can take effect any more.
    pub(super) async fn wait(&self) {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last {
            tokio::time::sleep_until(last).await;
        }
    }
}
