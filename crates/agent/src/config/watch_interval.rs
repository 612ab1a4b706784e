//! How often shares are looked at.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// Shorter intervals would cost noticeable time; longer ones would detect nothing in time.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// Interval between polls of the memory of shares' processes: `200ms`, `1s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct WatchInterval(pub(crate) Duration);

/// Why a text is no such interval.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no time between {MIN_INTERVAL:?} and {MAX_INTERVAL:?}: write it with its unit, as in 200ms or 1s"
)]
pub struct WatchIntervalError(String);

impl Default for WatchInterval {
    /// An allocation that bypasses the guard is found, confirmed by a second poll, and stopped within a second.
    fn default() -> Self {
        Self(Duration::from_millis(200))
    }
}

impl FromStr for WatchInterval {
    type Err = WatchIntervalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |digits: &str| digits.parse::<u64>().ok();
        let interval = match text.strip_suffix("ms") {
            Some(digits) => number(digits).map(Duration::from_millis),
            None => text.strip_suffix('s').and_then(number).map(Duration::from_secs),
        };
        let interval = interval.filter(|interval| (MIN_INTERVAL..=MAX_INTERVAL).contains(interval));
        interval.map(Self).ok_or_else(|| WatchIntervalError(text.to_owned()))
    }
}

impl TryFrom<String> for WatchInterval {
    type Error = WatchIntervalError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for WatchInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_a_unit_and_is_neither_too_short_nor_too_long() {
        assert_eq!("250ms".parse(), Ok(WatchInterval(Duration::from_millis(250))));
        assert_eq!("2s".parse(), Ok(WatchInterval(Duration::from_secs(2))));
        for text in ["200", "", "ms", "1ms", "11s", "-1s", "0.2s", "1m"] {
            assert!(text.parse::<WatchInterval>().is_err(), "{text}");
        }
        let default = WatchInterval::default();
        assert_eq!(default.to_string().parse(), Ok(default));
    }
}
