//! Throttles repeated events of a share: the first is immediate, and the interval grows with repetition.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Range of the interval between two events of a key. It doubles each time.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
const MAX_INTERVAL: Duration = Duration::from_mins(10);
/// Quiet time after which an event counts as new.
const RESET_AFTER: Duration = Duration::from_mins(30);

/// Claim UID, share id and reason.
pub(in crate::watchdog) type EventKey = (String, String, &'static str);

/// Recent events.
#[derive(Debug, Default)]
pub(in crate::watchdog) struct EventThrottle(BTreeMap<EventKey, LastEvent>);

#[derive(Debug)]
struct LastEvent {
    reported: Instant,
    pause: Duration,
    missed: u32,
}

impl EventThrottle {
    /// Decides whether an event is sent now. Returns the number of events suppressed since the last one.
    pub(in crate::watchdog) fn admit(&mut self, kind: EventKey, now: Instant) -> Option<u32> {
        self.0.retain(|_, last| now.saturating_duration_since(last.reported) < RESET_AFTER);
        let Some(last) = self.0.get_mut(&kind) else {
            self.0.insert(kind, LastEvent { reported: now, pause: MIN_INTERVAL, missed: 0 });
            return Some(0);
        };
        if now.saturating_duration_since(last.reported) < last.pause {
            last.missed = last.missed.saturating_add(1);
            return None;
        }
        (last.reported, last.pause) = (now, MAX_INTERVAL.min(last.pause * 2));
        Some(std::mem::take(&mut last.missed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_events_are_throttled_with_growing_intervals() {
        let (mut throttle, start) = (EventThrottle::default(), Instant::now());
        let kind = |reason| ("uid".to_owned(), "s".to_owned(), reason);
        let mut reported = Vec::new();
        // Every second for an hour.
        for second in 0..3600 {
            let now = start + Duration::from_secs(second);
            if let Some(missed) = throttle.admit(kind("MemoryOverflow"), now) {
                reported.push((second, missed));
            }
        }
        assert_eq!(reported[..4], [(0, 0), (10, 9), (30, 19), (70, 39)]);
        assert!(reported.len() < 16, "{reported:?}");
        let now = start + Duration::from_hours(1);
        assert_eq!(throttle.admit(kind("StateTampered"), now), Some(0), "something else is news");
        let later = now + RESET_AFTER;
        assert_eq!(throttle.admit(kind("MemoryOverflow"), later), Some(0), "it is news again");
        assert_eq!(throttle.0.len(), 1);
    }
}
