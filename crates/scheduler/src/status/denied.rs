//! Status writes that the authorizer denies. They are retried for a while, then dropped.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use tokio::time::Instant;

use super::status_queue::StatusWrite;

/// How long a denial is retried: a starting server needs a second or two.
const DENIAL_RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Kinds of updates that are denied, with the time of the first denial. After
/// [`DENIAL_RETRY_TIMEOUT`] an update is not retried, and each further one of its kind is tried
/// once. So updates that are allowed are not delayed.
#[derive(Debug, Default)]
pub(super) struct DeniedStatuses(HashMap<Discriminant<StatusWrite>, Instant>);

impl DeniedStatuses {
    /// Records a denial. Returns whether a retry is worthwhile.
    pub(super) fn should_retry(&mut self, job: &StatusWrite) -> bool {
        let since = *self.0.entry(discriminant(job)).or_insert_with(Instant::now);
        since.elapsed() < DENIAL_RETRY_TIMEOUT
    }

    /// Records that an update of this kind was written.
    pub(super) fn record_written(&mut self, job: &StatusWrite) {
        if !self.0.is_empty() {
            self.0.remove(&discriminant(job));
        }
    }
}
