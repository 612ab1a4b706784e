//! Weights as exact decimals: whole numbers of millionths inside, never floating point.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Millionths in one.
const ONE: i64 = 1_000_000;
/// Digits after the point.
const DIGITS: usize = 6;
/// The maximum whole part. Beyond it one term outweighs everything; a separate step is clearer.
const MAX_WHOLE: i64 = 1_000_000_000;

/// A decimal number that is not negative, with up to six digits after the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal(i64);

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

impl Decimal {
    /// One.
    pub const ONE: Self = Self(ONE);

    /// A whole number; none if it is above a thousand million.
    pub fn whole(number: u32) -> Option<Self> {
        let number = i64::from(number);
        (number <= MAX_WHOLE).then_some(Self(number * ONE))
    }

    /// In millionths.
    pub fn micro(self) -> i64 {
        self.0
    }

    /// Whether it is zero.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
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
        Ok(Self(whole * ONE + micro))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, micro) = (self.0 / ONE, self.0 % ONE);
        if micro == 0 {
            return write!(f, "{whole}");
        }
        let part = format!("{micro:0>DIGITS$}");
        write!(f, "{whole}.{}", part.trim_end_matches('0'))
    }
}

/// A weight as written: a string or a whole number. It is parsed with its policy, so that the error
/// can name the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenDecimal(pub String);

impl Serialize for WrittenDecimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for WrittenDecimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;

        impl Visitor<'_> for Written {
            type Value = WrittenDecimal;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or a decimal number in quotes such as \"1.5\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<WrittenDecimal, E> {
                Ok(WrittenDecimal(text.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<WrittenDecimal, E> {
                Ok(WrittenDecimal(number.to_string()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<WrittenDecimal, E> {
                Ok(WrittenDecimal(number.to_string()))
            }
        }

        deserializer.deserialize_any(Written)
    }
}
