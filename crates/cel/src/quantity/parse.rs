//! Parses quantities.

use std::str::FromStr;

use super::{Notation, Quantity};

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// The text is empty.
    #[error("quantity is empty")]
    Empty,
    /// The part before the suffix is not a number.
    #[error("quantity {0:?} does not begin with a decimal number")]
    Number(String),
    /// The part after the number is not a known suffix.
    #[error(
        "quantity {text:?} has unknown suffix {suffix:?}; known are n u m k M G T P E Ki Mi Gi Ti Pi Ei and exponents"
    )]
    Suffix {
        /// The whole text.
        text: String,
        /// The unknown suffix.
        suffix: String,
    },
    /// The value exceeds 128 bits.
    #[error("quantity {0:?} is out of range")]
    Range(String),
}

/// The multiplier of a suffix.
enum Multiplier {
    /// Ten to a power.
    Ten(i32),
    /// Two to a power.
    Two(u32),
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(ParseQuantityError::Empty);
        }
        let number_error = || ParseQuantityError::Number(text.to_owned());
        let (negative, rest) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(number_error());
        }
        let (multiplier, notation) = multiplier(suffix).ok_or_else(|| {
            ParseQuantityError::Suffix { text: text.to_owned(), suffix: suffix.to_owned() }
        })?;
        let nanos = nanos(whole, fraction, &multiplier)
            .ok_or_else(|| ParseQuantityError::Range(text.to_owned()))?;
        Ok(Self { nanos: if negative { -nanos } else { nanos }, notation })
    }
}

/// Parses a suffix.
fn multiplier(suffix: &str) -> Option<(Multiplier, Notation)> {
    use Multiplier::{Ten, Two};
    let decimal = |exponent| Some((Ten(exponent), Notation::DecimalSi));
    let binary = |exponent| Some((Two(exponent), Notation::BinarySi));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some((Ten(exponent), Notation::DecimalExponent))
        }
    }
}

/// The value in billionths, rounded away from zero; `None` beyond 128 bits.
fn nanos(whole: &str, fraction: &str, multiplier: &Multiplier) -> Option<i128> {
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    if value == 0 {
        return Some(0);
    }
    // A fraction with more digits than this has overflowed above.
    let digits = i32::try_from(fraction.len()).ok()?;
    let exponent = match *multiplier {
        Multiplier::Ten(exponent) => exponent,
        Multiplier::Two(exponent) => {
            value = value.checked_mul(1 << exponent)?;
            0
        }
    };
    let shift = exponent.checked_sub(digits)?.checked_add(9)?;
    if shift >= 0 {
        value.checked_mul(10_i128.checked_pow(shift.unsigned_abs())?)
    } else {
        // A divisor above all values leaves a remainder, which is rounded up to one billionth.
        Some(10_i128.checked_pow(shift.unsigned_abs()).map_or(1, |by| super::round_up(value, by)))
    }
}
