//! Weights as exact decimals: whole numbers of millionths inside, never floating point.

use serde::{Deserialize, Serialize};

/// Millionths in one.
const ONE: i64 = 1_000_000;
/// Digits after the point.
const DIGITS: usize = 6;
/// The maximum whole part. Beyond it one term outweighs everything; a separate step is clearer.
const MAX_WHOLE: i64 = 1_000_000_000;

/// Why a text is no weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecimalError {
    /// Not a decimal number.
    #[error("it is not a decimal number such as 2 or \"1.5\"")]
    Form,
    /// Below zero.
    #[error("it is negative, but less is better in every unit")]
    Negative,
    /// More digits than are kept.
    #[error("it has more than {DIGITS} digits after the point")]
    TooFine,
    /// Too large.
    #[error("it is above {MAX_WHOLE}; put the unit into a step of its own instead")]
    TooLarge,
}

/// Millionths of a decimal number that is not negative, with up to six digits after the point.
pub(super) fn micro(text: &str) -> Result<i64, DecimalError> {
    let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(part) {
        return Err(DecimalError::Form);
    }
    if is_negative {
        return Err(DecimalError::Negative);
    }
    let part = part.trim_end_matches('0');
    if part.len() > DIGITS {
        return Err(DecimalError::TooFine);
    }
    let whole: i64 = whole.parse().map_err(|_| DecimalError::TooLarge)?;
    let micro: i64 = format!("{part:0<DIGITS$}").parse().map_err(|_| DecimalError::Form)?;
    if whole > MAX_WHOLE || (whole == MAX_WHOLE && micro > 0) {
        return Err(DecimalError::TooLarge);
    }
    Ok(whole * ONE + micro)
}

/// A weight as written: a string or a whole number. It is parsed with its policy, so that the error
/// can name the field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct WrittenDecimal(pub String);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a weight is a whole number, or a decimal number in quotes such as \"1.5\""
)]
enum Written {
    Text(String),
    Whole(i64),
}

impl From<Written> for WrittenDecimal {
    fn from(written: Written) -> Self {
        match written {
            Written::Text(text) => Self(text),
            Written::Whole(number) => Self(number.to_string()),
        }
    }
}
