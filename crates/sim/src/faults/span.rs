//! Lengths of time in a document: whole milliseconds, written `90s`, `30m`, `2h`, `14d` or `1h30m`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

/// Why a text is no length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a length of time; expected one such as 90s, 30m, 2h, 14d or 1h30m")]
pub struct SpanError(String);

/// Units with their milliseconds, largest first.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// The longest time: ten thousand years. Sums of several fit into 64 bits.
const LONGEST: u64 = 10_000 * 366 * 86_400_000;

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// Of seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds * 1000)
    }

    /// Of minutes.
    pub const fn minutes(minutes: u64) -> Self {
        Self::seconds(minutes * 60)
    }

    /// Of hours.
    pub const fn hours(hours: u64) -> Self {
        Self::minutes(hours * 60)
    }

    /// Of days.
    pub const fn days(days: u64) -> Self {
        Self::hours(days * 24)
    }

    /// In milliseconds.
    pub const fn millis(self) -> u64 {
        self.0
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let wrong = || SpanError(text.to_owned());
        let mut rest = text;
        let mut sum = 0_u64;
        // Each unit once, from the largest to the smallest.
        for (unit, millis) in UNITS {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, after) = rest.split_at(digits);
            let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
            if number.is_empty() || after.get(..letters) != Some(unit) {
                continue;
            }
            let number: u64 = number.parse().map_err(|_| wrong())?;
            let part = number.checked_mul(millis).ok_or_else(wrong)?;
            sum = sum.checked_add(part).ok_or_else(wrong)?;
            rest = &after[letters..];
        }
        if rest.is_empty() && !text.is_empty() && sum <= LONGEST {
            Ok(Self(sum))
        } else {
            Err(wrong())
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        for (unit, millis) in UNITS {
            if rest >= millis {
                write!(out, "{}{unit}", rest / millis)?;
                rest %= millis;
            }
        }
        if self.0 == 0 { out.write_str("0s") } else { Ok(()) }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_written() {
        for (text, span) in [
            ("0s", Span::ZERO),
            ("90s", Span::seconds(90)),
            ("1h30m", Span::minutes(90)),
            ("14d", Span::days(14)),
            ("250ms", Span(250)),
            ("2d12h", Span::hours(60)),
        ] {
            assert_eq!(text.parse(), Ok(span), "{text}");
        }
        assert_eq!(Span::seconds(90).to_string(), "1m30s");
        assert_eq!(Span::ZERO.to_string(), "0s");
        assert_eq!(Span(86_400_001).to_string(), "1d1ms");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "5", "m", "-1s", "1.5h", "5m2h", "1s1s", "1 h", "9999999d", "1w"] {
            let error = text.parse::<Span>().unwrap_err();
            assert!(error.to_string().contains("expected one such as 90s"), "{text}");
        }
    }
}
