//! Exponential backoff with jitter.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Delays that double from `first` to `max`. Each is drawn from the upper half of its range, so
/// that agents that failed together do not retry together.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// A backoff without failures.
    pub fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, failures: 0 }
    }

    /// Counts a failure and returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let full = self.first.saturating_mul(1 << self.failures.min(20)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        full / 2 + (full / 2).mul_f64(random_fraction())
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Forgets all failures.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A number from 0 to 1. The standard library seeds every `RandomState` differently, which is
/// random enough to spread retries.
pub(crate) fn random_fraction() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 32;
    f64::from(u32::try_from(bits).unwrap_or_default()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_most_and_start_again_after_a_success() {
        let (first, max) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(first, max);
        for full in [100, 200, 400, 800, 1000, 1000].map(Duration::from_millis) {
            let delay = backoff.next_delay();
            assert!(delay >= full / 2 && delay <= full, "{delay:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= first);
    }

    #[test]
    fn a_long_outage_does_not_overflow() {
        let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_secs(30));
        for _ in 0..10_000 {
            assert!(backoff.next_delay() <= Duration::from_secs(30));
        }
    }
}
