//! The clock of the scheduler's state: the time for which the event loop has watched, in milliseconds.
//!
//! A process may be stopped for hours, for example with its virtual machine. Then the state is as old as
//! the pause, and the watches have yet to deliver what has changed. A node that was lost just before
//! may be ready again, and victims may have left. So no deadline passes during a pause: it counts as
//! [`MAX_STEP`].

use std::time::Duration;

use tokio::time::Instant;

/// Longest time between two readings that counts whole. A decision takes less.
const MAX_STEP: Duration = Duration::from_secs(10);

/// The clock.
#[derive(Debug)]
pub(super) struct ObservedClock {
    /// Its zero, moved by all pauses.
    zero: Instant,
    read_at: Instant,
}

impl ObservedClock {
    /// A clock that starts at zero.
    pub(super) fn start(now: Instant) -> Self {
        Self { zero: now, read_at: now }
    }

    /// Advances the clock, and returns its time.
    pub(super) fn advance(&mut self, now: Instant) -> u64 {
        self.zero += now.saturating_duration_since(self.read_at).saturating_sub(MAX_STEP);
        self.read_at = now;
        self.time_of(now)
    }

    /// The time of an instant. One from before a pause gets too early a time.
    pub(super) fn time_of(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.zero).as_millis()).unwrap_or(u64::MAX)
    }

    /// The instant of a time. One from before a pause gets too late an instant.
    pub(super) fn instant_of(&self, time: u64) -> Option<Instant> {
        self.zero.checked_add(Duration::from_millis(time))
    }
}
