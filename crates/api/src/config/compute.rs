//! Parts of a GPU's time, as people write them.

use std::fmt;
use std::str::FromStr;

/// A part of a GPU's time in thousandths of a percent: 100,000 is all of it. Written as `30`, `30%` or `12.5%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputePart(pub u32);

/// A text that is no part of a GPU's time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no part of a GPU's time: give a percentage up to 100 with at most three decimals, such as 30% or 12.5%"
)]
pub struct ComputePartError(String);

impl ComputePart {
    /// All of a GPU's time.
    pub const WHOLE: Self = Self(100_000);
}

impl fmt::Display for ComputePart {
    /// As a percentage with the decimals that it needs: `12.5 %`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1_000, self.0 % 1_000);
        write!(formatter, "{} %", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl FromStr for ComputePart {
    type Err = ComputePartError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || ComputePartError(text.to_owned());
        let number = text.strip_suffix('%').unwrap_or(text);
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > 3 || whole.len() > 3 {
            return Err(invalid());
        }
        let thousandths = format!("{whole}{decimals:0<3}").parse().map_err(|_| invalid())?;
        let part = Self(thousandths);
        if part > Self::WHOLE { Err(invalid()) } else { Ok(part) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_time_is_a_percentage() {
        for (text, thousandths) in
            [("30", 30_000), ("30%", 30_000), ("12.5%", 12_500), ("0.125", 125), ("100%", 100_000)]
        {
            assert_eq!(text.parse(), Ok(ComputePart(thousandths)), "{text}");
        }
        for (thousandths, text) in [(0, "0 %"), (12_500, "12.5 %"), (100_000, "100 %")] {
            assert_eq!(ComputePart(thousandths).to_string(), text);
        }
        for text in ["", "%", "-1", "101%", "100.001", "1.2345", "1.", ".5", "1e2", "3 %", "+5"] {
            assert!(text.parse::<ComputePart>().is_err(), "{text}");
        }
    }
}
