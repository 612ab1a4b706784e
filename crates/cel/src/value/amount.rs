//! Quantities with the representation that Kubernetes gives them.
//!
//! Kubernetes stores small quantities as a 64-bit number and a power of ten, and others as
//! decimals. Expressions can tell them apart: only the former can be integers. So `1000m` and
//! `9223372036854775807` are not integers, and `1Gi` is one. Also, a computed quantity cannot be
//! the right operand of `==`.

use std::borrow::Cow;

use crate::Quantity;
use crate::quantity::{Notation, ParseQuantityError};

/// A quantity and its representation in Kubernetes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    quantity: Quantity,
    representation: Representation,
    is_sum: bool,
}

/// The representation of a quantity.
#[derive(Clone, Copy, Debug)]
enum Representation {
    /// That of its canonical text.
    Canonical,
    /// As an `int64Amount`, or as a decimal (`None`).
    Explicit(Option<Int64Amount>),
}

/// Kubernetes' `int64Amount`: a number and a power of ten.
#[derive(Clone, Copy, Debug)]
struct Int64Amount {
    value: i64,
    scale: i32,
}

/// Digits that always fit in 64 bits.
const MAX_INT64_DIGITS: i32 = 18;

impl Amount {
    /// The quantity of a device.
    pub(crate) fn of(quantity: Quantity) -> Self {
        Self { quantity, representation: Representation::Canonical, is_sum: false }
    }

    /// An integer.
    pub(crate) fn whole(number: i64) -> Self {
        let int64_amount = Int64Amount { value: number, scale: 0 };
        Self {
            quantity: Quantity::decimal(number),
            representation: Representation::Explicit(Some(int64_amount)),
            is_sum: false,
        }
    }

    /// Parses a quantity.
    pub(crate) fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        let text = &*with_digit(text);
        let mut quantity: Quantity = text.parse()?;
        let int64_amount = Int64Amount::of(text, quantity.notation());
        // Kubernetes caps quantities with a binary suffix.
        let most = Quantity::binary(i64::MAX);
        if int64_amount.is_none() && quantity.notation() == Notation::BinarySi {
            let least = Quantity::from_nanos(-most.nanos(), Notation::BinarySi);
            quantity = quantity.clamp(least, most);
        }
        Ok(Self { quantity, representation: Representation::Explicit(int64_amount), is_sum: false })
    }

    /// The quantity.
    pub(crate) fn quantity(self) -> Quantity {
        self.quantity
    }

    /// Whether it was computed, not parsed.
    pub(crate) fn is_sum(self) -> bool {
        self.is_sum
    }

    fn int64_amount(self) -> Option<Int64Amount> {
        match self.representation {
            Representation::Explicit(int64_amount) => int64_amount,
            Representation::Canonical => {
                Int64Amount::of(&self.quantity.to_string(), self.quantity.notation())
            }
        }
    }

    /// As a 64-bit integer, if it is one in Kubernetes.
    pub(crate) fn integer(self) -> Option<i64> {
        let Int64Amount { value, scale } = self.int64_amount()?;
        value.checked_mul(10_i64.checked_pow(u32::try_from(scale).ok()?)?)
    }

    /// As an approximate floating-point number.
    #[allow(clippy::cast_precision_loss, reason = "approximate by name")]
    pub(crate) fn float(self) -> f64 {
        let (base, exponent) = match self.int64_amount() {
            Some(Int64Amount { value, scale }) => (value as f64, scale),
            None => (self.quantity.nanos() as f64, -9),
        };
        // Exact, unlike a computed power.
        let power: f64 = format!("1e{exponent}").parse().unwrap_or(1.0);
        base * power
    }

    /// The sum with another amount; `None` beyond 128 bits.
    pub(crate) fn add(self, other: Self) -> Option<Self> {
        let quantity = self.quantity.checked_add(other.quantity)?;
        let int64_amount =
            self.int64_amount().zip(other.int64_amount()).and_then(|(a, b)| a.add(b));
        Some(Self {
            quantity,
            representation: Representation::Explicit(int64_amount),
            is_sum: true,
        })
    }

    /// The difference from another amount; `None` beyond 128 bits.
    pub(crate) fn sub(self, other: Self) -> Option<Self> {
        let quantity = self.quantity.checked_sub(other.quantity)?;
        let int64_amount = self.int64_amount().zip(other.int64_amount()).and_then(|(a, b)| {
            let negative = Int64Amount { value: b.value.checked_neg()?, scale: b.scale };
            a.add(negative)
        });
        Some(Self {
            quantity,
            representation: Representation::Explicit(int64_amount),
            is_sum: true,
        })
    }
}

impl Int64Amount {
    /// The `int64Amount` of a quantity's text, if it has one.
    fn of(text: &str, notation: Notation) -> Option<Self> {
        let is_negative = text.starts_with('-');
        let bare = text.trim_start_matches(['+', '-']);
        let end = bare.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(bare.len());
        let (number, suffix) = bare.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole = match whole.trim_start_matches('0') {
            "" => "0",
            whole => whole,
        };
        let whole_digits = i32::try_from(whole.len()).ok()?;
        let fraction_digits = i32::try_from(fraction.len()).ok()?;
        let (scale, factor, has_room) = match notation {
            Notation::BinarySi => {
                let bits = power_of_two(suffix)?;
                // Kubernetes' estimate of the digits that the suffix adds.
                let taken = bits * 3 / 10 + 1;
                (0, 1_i64 << bits, fraction.is_empty() && 15 - whole_digits - taken >= 0)
            }
            Notation::DecimalSi | Notation::DecimalExponent => {
                (power_of_ten(suffix)?, 1, MAX_INT64_DIGITS - whole_digits - fraction_digits >= 0)
            }
        };
        let scale = scale.checked_sub(fraction_digits)?;
        if !has_room || scale < -9 {
            return None;
        }
        let digits: i64 = format!("{whole}{fraction}").parse().ok()?;
        let value = digits.checked_mul(factor)?;
        Some(Self { value: if is_negative { -value } else { value }, scale })
    }

    fn add(self, other: Self) -> Option<Self> {
        if other.value == 0 {
            return Some(self);
        }
        if self.value == 0 {
            return Some(other);
        }
        let scale = self.scale.min(other.scale);
        let scaled = |of: Self| {
            let power = u32::try_from(of.scale.checked_sub(scale)?).ok()?;
            of.value.checked_mul(10_i64.checked_pow(power)?)
        };
        Some(Self { value: scaled(self)?.checked_add(scaled(other)?)?, scale })
    }
}

/// Adds a zero to a text without digits: Kubernetes parses `G`, `.` and `-` as zero.
fn with_digit(text: &str) -> Cow<'_, str> {
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    let suffix = bare.strip_prefix('.').unwrap_or(bare);
    if text.is_empty() || suffix.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("0{suffix}"))
}

/// The exponent of a binary suffix.
fn power_of_two(suffix: &str) -> Option<i32> {
    let place = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|known| *known == suffix);
    match place {
        Some(place) => i32::try_from((place + 1) * 10).ok(),
        // A canonical text below 1024 has no suffix.
        None if suffix.is_empty() => Some(0),
        None => None,
    }
}

/// The exponent of a decimal suffix.
fn power_of_ten(suffix: &str) -> Option<i32> {
    Some(match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
    })
}
