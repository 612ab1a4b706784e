use std::ops::RangeInclusive;
use std::str::FromStr;

/// Maximum number of seeds in one request.
const MAX_SEEDS: u64 = 10_000;

/// A seed or a range of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(RangeInclusive<i64>);

/// Why a text names no seeds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeedError {
    /// Neither a number nor a range.
    #[error("`{0}` is not a whole number; expected a seed such as 42, or a range such as 42..51")]
    Number(String),
    /// The range runs backwards.
    #[error("the range {first}..{last} runs backwards; write {last}..{first}")]
    Backwards {
        /// Its beginning.
        first: i64,
        /// Its end.
        last: i64,
    },
    /// Too long a range.
    #[error("the range {first}..{last} has more than {MAX_SEEDS} seeds")]
    TooMany {
        /// Its beginning.
        first: i64,
        /// Its end.
        last: i64,
    },
}

impl Seeds {
    /// The seeds of all these, each once, in order of mention.
    pub fn all(seeds: &[Self]) -> Vec<i64> {
        let mut seen = std::collections::BTreeSet::new();
        seeds.iter().flat_map(|seeds| seeds.0.clone()).filter(|seed| seen.insert(*seed)).collect()
    }
}

impl FromStr for Seeds {
    type Err = SeedError;

    fn from_str(text: &str) -> Result<Self, SeedError> {
        let number =
            |part: &str| part.trim().parse::<i64>().map_err(|_| SeedError::Number(text.to_owned()));
        let Some((first, last)) = text.split_once("..") else {
            let seed = number(text)?;
            return Ok(Self(seed..=seed));
        };
        // Rust writes a range with both ends as `..=`.
        let (first, last) = (number(first)?, number(last.strip_prefix('=').unwrap_or(last))?);
        if last < first {
            return Err(SeedError::Backwards { first, last });
        }
        if first.abs_diff(last) >= MAX_SEEDS {
            return Err(SeedError::TooMany { first, last });
        }
        Ok(Self(first..=last))
    }
}
