//! Delays between retries.

use std::time::Duration;

use octavo_kube_io::Backoff;

/// Delays between retries of what may never be given up.
pub(super) fn retry_delays() -> Backoff {
    Backoff::new(Duration::from_millis(500), Duration::from_secs(30))
}
