//! How often people are told the same of a share: at once, and then the more seldom the oftener it happens.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The least time between two of a kind, which doubles each time up to the longest.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_mins(10);
/// What did not happen for so long is news again.
const QUIET: Duration = Duration::from_mins(30);

/// A claim's UID, the id of its share, and the reason.
pub(super) type Kind = (String, String, &'static str);

/// What was told lately.
#[derive(Debug, Default)]
pub(super) struct Brake(BTreeMap<Kind, Last>);

#[derive(Debug)]
struct Last {
    told: Instant,
    pause: Duration,
    missed: u32,
}

impl Brake {
    /// Whether something is to be told now; if so, how often it was not since it was told last.
    pub(super) fn pass(&mut self, kind: Kind, now: Instant) -> Option<u32> {
        self.0.retain(|_, last| now.saturating_duration_since(last.told) < QUIET);
        let Some(last) = self.0.get_mut(&kind) else {
            self.0.insert(kind, Last { told: now, pause: FIRST, missed: 0 });
            return Some(0);
        };
        if now.saturating_duration_since(last.told) < last.pause {
            last.missed = last.missed.saturating_add(1);
            return None;
        }
        (last.told, last.pause) = (now, LONGEST.min(last.pause * 2));
        Some(std::mem::take(&mut last.missed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_again_and_again_is_told_more_and_more_seldom() {
        let (mut brake, start) = (Brake::default(), Instant::now());
        let kind = |reason| ("uid".to_owned(), "s".to_owned(), reason);
        let mut told = Vec::new();
        // Every second for an hour.
        for second in 0..3600 {
            let now = start + Duration::from_secs(second);
            if let Some(missed) = brake.pass(kind("MemoryOverflow"), now) {
                told.push((second, missed));
            }
        }
        assert_eq!(told[..4], [(0, 0), (10, 9), (30, 19), (70, 39)]);
        assert!(told.len() < 16, "{told:?}");
        let now = start + Duration::from_hours(1);
        assert_eq!(brake.pass(kind("StateTampered"), now), Some(0), "something else is news");
        let later = now + QUIET;
        assert_eq!(brake.pass(kind("MemoryOverflow"), later), Some(0), "it is news again");
        assert_eq!(brake.0.len(), 1);
    }
}
