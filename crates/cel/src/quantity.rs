//! Kubernetes' `resource.Quantity`, exact.
//!
//! A quantity is a number of billionths (nano) and the notation in which it was written. The
//! notation affects only how it prints, not how it compares. As in Kubernetes, finer digits than
//! nano are rounded away from zero. A value beyond 128 bits is an error and never capped.

mod format;
mod parse;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

pub use parse::ParseQuantityError;

/// Billionths in one unit.
const NANOS: i128 = 1_000_000_000;

/// An exact amount of a resource. Equality, order and hash depend only on its value.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    notation: Notation,
}

/// The notation in which a quantity prints.
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

    /// An integer in decimal notation.
    pub fn decimal(value: i64) -> Self {
        Self { nanos: i128::from(value) * NANOS, notation: Notation::DecimalSi }
    }

    /// An integer in binary notation, typically bytes.
    pub fn binary(value: i64) -> Self {
        Self { nanos: i128::from(value) * NANOS, notation: Notation::BinarySi }
    }

    /// A number of billionths in a given notation.
    pub fn from_nanos(nanos: i128, notation: Notation) -> Self {
        Self { nanos, notation }
    }

    /// The exact value in billionths.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Its notation.
    pub fn notation(self) -> Notation {
        self.notation
    }

    /// The value as an integer, rounded away from zero like Kubernetes' `Value()`.
    pub fn value(self) -> i128 {
        round_up(self.nanos, NANOS)
    }

    /// The value in thousandths, rounded away from zero like Kubernetes' `MilliValue()`.
    pub fn milli_value(self) -> i128 {
        round_up(self.nanos, NANOS / 1000)
    }

    /// Whether it is an integer.
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

    /// The product with an integer; `None` beyond 128 bits.
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
