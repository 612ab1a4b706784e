//! Statuses that the authorizer refuses: for a while that may pass, then it is believed.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use tokio::time::Instant;

use super::status_queue::StatusWrite;

/// How long a refusal may pass by itself: a server that starts takes a second or two.
const DENIAL_RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Kinds of statuses that were refused, since when. One that is still refused after [`DENIAL_RETRY_TIMEOUT`] is not tried
/// again, nor is another of its kind more than once, so that those which are allowed are not held up.
#[derive(Debug, Default)]
pub(super) struct DeniedStatuses(HashMap<Discriminant<StatusWrite>, Instant>);

impl DeniedStatuses {
    /// One was refused: whether it is worth another try.
    pub(super) fn should_retry(&mut self, job: &StatusWrite) -> bool {
        let since = *self.0.entry(discriminant(job)).or_insert_with(Instant::now);
        since.elapsed() < DENIAL_RETRY_TIMEOUT
    }

    /// One of its kind was written.
    pub(super) fn record_written(&mut self, job: &StatusWrite) {
        if !self.0.is_empty() {
            self.0.remove(&discriminant(job));
        }
    }
}
