//! Whether this process may write, and for how long.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use octavo_kube_io::lease;
use tokio::sync::watch;
use tokio::time::Instant;

/// Least remaining lease to start a write. With less, an answer in time is unlikely.
const MIN_LEASE: Duration = Duration::from_millis(200);
/// Most time of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a write may take; read before every write.
#[derive(Clone)]
pub(super) struct Leadership(Arc<dyn Fn() -> Option<Duration> + Send + Sync>);

impl Leadership {
    /// Leadership without a lease: leader election is off.
    pub(super) fn always() -> Self {
        Self(Arc::new(|| Some(Duration::MAX)))
    }

    /// Leadership by a lease. What begins now must be over when the lease ends.
    pub(super) fn of(state: watch::Receiver<lease::Leadership>) -> Self {
        Self(Arc::new(move || match &*state.borrow() {
            lease::Leadership::Leading(term) => {
                let now = Instant::now();
                let is_over = term.until.has_come(now, SystemTime::now());
                (!is_over).then(|| term.ends.at.saturating_duration_since(now))
            }
            lease::Leadership::Following { .. } => None,
        }))
    }

    /// Time that a write which begins now may take; `None` if it may not begin.
    pub(super) fn time_for_write(&self) -> Option<Duration> {
        let left = (self.0)().filter(|left| *left >= MIN_LEASE)?;
        Some(left.min(WRITE_TIMEOUT))
    }

    /// Whether this process leads.
    pub(super) fn is_leading(&self) -> bool {
        (self.0)().is_some()
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&(self.0)()).finish()
    }
}
