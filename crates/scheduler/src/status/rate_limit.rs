//! How fast statuses are written: never so fast that bindings notice.

use std::time::Duration;

use tokio::time::Instant;

/// Writes that may follow one another at once after a pause.
const MAX_BURST: u32 = 10;

/// Grants turns, so many a second.
#[derive(Debug)]
pub(super) struct RateLimit {
    idle_gap: Duration,
    busy_gap: Duration,
    /// When the bucket is full again.
    full_at: Instant,
}

impl RateLimit {
    /// So many turns a second, and so many while others have more urgent things to write.
    pub(super) fn new(per_second: u32, while_busy: u32) -> Self {
        let every = |count: u32| Duration::from_secs(1) / count.max(1);
        Self { idle_gap: every(per_second), busy_gap: every(while_busy), full_at: Instant::now() }
    }

    /// Takes a turn: when it is.
    pub(super) fn reserve(&mut self, is_busy: bool) -> Instant {
        let now = Instant::now();
        let (gap, burst) = if is_busy { (self.busy_gap, 1) } else { (self.idle_gap, MAX_BURST) };
        // The bucket is full when nothing was taken for `burst` gaps.
        let slot = now.max(self.full_at.checked_sub(gap * (burst - 1)).unwrap_or(now));
        self.full_at = self.full_at.max(now) + gap;
        slot
    }
}
