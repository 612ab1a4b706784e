//! Kubernetes' `resource.Quantity`, exact.
//!
//! A quantity is a number of billionths (nano), kept with the notation in which it was written: the
//! notation decides only how it prints, never how it compares. Finer digits than nano are rounded
//! away from zero, as Kubernetes does; what does not fit in 128 bits is an error and never a cap.

mod format;
mod parse;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

pub use parse::ParseQuantityError;

/// Billionths in one unit.
const NANOS: i128 = 1_000_000_000;

/// An exact amount of a resource; equal, ordered and hashed by its value alone.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    notation: Notation,
}

/// How a quantity prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notation {
    /// Powers of 1000 with suffixes `n u m k M G T P E`.
    DecimalSi,
    /// Powers of 1024 with suffixes `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// Powers of 1000 as exponents: `e3`, `e6`.
    DecimalExponent,
}

impl Quantity {
    /// The quantity zero.
    pub const ZERO: Self = Self { nanos: 0, notation: Notation::DecimalSi };

    /// A whole number that prints with decimal suffixes.
    pub fn decimal(value: i64) -> Self {
        Self { nanos: i128::from(value) * NANOS, notation: Notation::DecimalSi }
    }

    /// A whole number that prints with binary suffixes: bytes, as a rule.
    pub fn binary(value: i64) -> Self {
        Self { nanos: i128::from(value) * NANOS, notation: Notation::BinarySi }
    }

    /// Billionths in a chosen notation.
    pub fn from_nanos(nanos: i128, notation: Notation) -> Self {
        Self { nanos, notation }
    }

    /// The value in billionths: exact.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// How it prints.
    pub fn notation(self) -> Notation {
        self.notation
    }

    /// The value as a whole number, fractions rounded away from zero as Kubernetes' `Value()` does.
    pub fn value(self) -> i128 {
        round_up(self.nanos, NANOS)
    }

    /// The value in thousandths, rounded away from zero as Kubernetes' `MilliValue()` does.
    pub fn milli_value(self) -> i128 {
        round_up(self.nanos, NANOS / 1000)
    }

    /// Whether it is a whole number.
    pub fn is_whole(self) -> bool {
        self.nanos % NANOS == 0
    }

    /// The sum in this quantity's notation; `None` beyond 128 bits.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self { nanos: self.nanos.checked_add(other.nanos)?, ..self })
    }

    /// The difference in this quantity's notation; `None` beyond 128 bits.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        Some(Self { nanos: self.nanos.checked_sub(other.nanos)?, ..self })
    }

    /// The product with a whole number; `None` beyond 128 bits.
    pub fn checked_mul(self, factor: i64) -> Option<Self> {
        Some(Self { nanos: self.nanos.checked_mul(i128::from(factor))?, ..self })
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::ZERO
    }
}

/// Divides and rounds away from zero.
fn round_up(value: i128, by: i128) -> i128 {
    value / by + (value % by).signum()
}
