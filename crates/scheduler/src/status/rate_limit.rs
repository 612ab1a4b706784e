//! The rate limit of status writes, so that they do not slow bindings down.

use std::time::Duration;

use tokio::time::Instant;

/// Writes that may follow one another without delay after a pause.
const MAX_BURST: u32 = 10;

/// A token bucket.
#[derive(Debug)]
pub(super) struct RateLimit {
    idle_gap: Duration,
    busy_gap: Duration,
    /// When the bucket is full again.
    full_at: Instant,
}

impl RateLimit {
    /// Limits to `per_second` writes, or to `while_busy` while bindings are being written.
    pub(super) fn new(per_second: u32, while_busy: u32) -> Self {
        let every = |count: u32| Duration::from_secs(1) / count.max(1);
        Self { idle_gap: every(per_second), busy_gap: every(while_busy), full_at: Instant::now() }
    }

    /// Reserves a write and returns its time.
    pub(super) fn reserve(&mut self, is_busy: bool) -> Instant {
        let now = Instant::now();
        let (gap, burst) = if is_busy { (self.busy_gap, 1) } else { (self.idle_gap, MAX_BURST) };
        // The bucket is full when nothing was taken for `burst` gaps.
        let slot = now.max(self.full_at.checked_sub(gap * (burst - 1)).unwrap_or(now));
        self.full_at = self.full_at.max(now) + gap;
        slot
    }
}
