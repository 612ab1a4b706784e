//! What a container wants of GPUs, in neither scheduler's terms.

/// GPUs for a container, all of the same size and each another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// How many.
    pub(crate) count: usize,
    /// Memory of each.
    pub(crate) memory: Memory,
    /// Time of each in percent; 0 is a fair part of idle time.
    pub(crate) compute: u8,
    /// Whether nothing else may be on them.
    pub(crate) is_exclusive: bool,
    /// Whether its work comes before that of others.
    pub(crate) is_urgent: bool,
}

/// Memory of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// All of it.
    All,
    /// An amount in MiB, at least 1.
    Mib(u64),
    /// A part of it.
    Portion(Portion),
}

/// A number above 0 and below 1, exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    numerator: u64,
    denominator: u64,
}

/// A text that is no portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortionError {
    /// It is no decimal number.
    NotANumber,
    /// It is 0 or less.
    TooSmall,
    /// It is 1 or more.
    TooLarge,
}

impl Portion {
    /// A percentage from 1 to 99.
    pub(crate) fn percent(percent: u8) -> Self {
        Self { numerator: u64::from(percent), denominator: 100 }
    }

    /// Reads a decimal number. Digits beyond those of a 64-bit float are left out, as KAI does.
    pub(crate) fn parse(text: &str) -> Result<Self, PortionError> {
        let number: f64 = text.parse().map_err(|_| PortionError::NotANumber)?;
        if !number.is_finite() {
            return Err(PortionError::NotANumber);
        }
        if number <= 0.0 {
            return Err(PortionError::TooSmall);
        }
        if number >= 1.0 {
            return Err(PortionError::TooLarge);
        }
        // The shortest digits that give this float: those that were written. A float times the memory would lose a MiB.
        let shortest = number.to_string();
        let digits = shortest.strip_prefix("0.").unwrap_or_default();
        let digits = digits.get(..digits.len().min(MAX_DIGITS)).unwrap_or_default();
        let numerator = digits.parse().map_err(|_| PortionError::NotANumber)?;
        let denominator = digits.bytes().fold(1, |power: u64, _| power * 10);
        Ok(Self { numerator, denominator })
    }

    /// The part of an amount, rounded down so that the parts of a whole fit into it, but at least 1.
    pub(crate) fn of(self, amount: u64) -> u64 {
        let part = u128::from(amount) * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(part).unwrap_or(amount).max(1)
    }
}

/// Decimal digits that fit into 64 bits.
const MAX_DIGITS: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_exact_and_rounded_down() {
        let part = |text: &str, amount| Portion::parse(text).map(|portion| portion.of(amount));
        for (text, amount, expected) in [
            ("0.5", 81559, 40779),
            (".5", 40960, 20480),
            ("0.29", 100, 29),
            ("0.1", 30, 3),
            ("1e-1", 30, 3),
            ("0.3333", 81559, 27183),
            ("0.000001", 81559, 1),
            ("1e-300", 81559, 1),
            ("0.99999999999999999", 100, 100),
        ] {
            if text == "0.99999999999999999" {
                // A float reads it as 1, as KAI does.
                assert_eq!(part(text, amount), Err(PortionError::TooLarge));
            } else {
                assert_eq!(part(text, amount), Ok(expected), "{text}");
            }
        }
        assert_eq!(Portion::percent(29).of(81559), 23652);
    }

    #[test]
    fn other_numbers_are_distinguished() {
        for (text, error) in [
            ("0", PortionError::TooSmall),
            ("-0.5", PortionError::TooSmall),
            ("1", PortionError::TooLarge),
            ("1.5", PortionError::TooLarge),
            ("half", PortionError::NotANumber),
            ("", PortionError::NotANumber),
            ("NaN", PortionError::NotANumber),
            ("inf", PortionError::NotANumber),
        ] {
            assert_eq!(Portion::parse(text), Err(error), "{text}");
        }
    }
}
