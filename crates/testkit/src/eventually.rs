//! Waits for a condition with a deadline.

use std::time::{Duration, Instant};

/// The longest wait; test machines are slow and busy.
const DEADLINE: Duration = Duration::from_mins(1);

/// The longest wait on tokio's clock, which is ahead of real time where a test pauses it.
const PAUSED_DEADLINE: Duration = Duration::from_mins(10);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits for a condition; panics if it does not hold within a minute.
///
/// If the test paused tokio's clock, the wait may also take at most ten minutes on that clock.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let (start, paused_start) = (Instant::now(), tokio::time::Instant::now());
    while !condition() {
        let is_late = start.elapsed() > DEADLINE || paused_start.elapsed() > PAUSED_DEADLINE;
        assert!(!is_late, "not in time: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn condition_that_holds_later_is_met() {
        let start = tokio::time::Instant::now();
        eventually("half a minute", || start.elapsed() >= Duration::from_secs(30)).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "not in time: never")]
    async fn condition_that_never_holds_panics() {
        eventually("never", || false).await;
    }
}
