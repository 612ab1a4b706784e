//! Rates of failures, and the probabilities that follow from them.

use serde::{Deserialize, Serialize};

use crate::fixed::{decayed, ln, scaled};
use crate::{DAY, HOUR, ONE};

/// Failures of a unit, in billionths a day.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Rate(pub u64);

/// Age at which a new unit has the rate of an old one, in seconds.
const INFANCY: u64 = 30 * DAY;

/// By how much the exponent of a Weibull law of infant failures is below 1, in thousandths: the shape is 0.7.
const INFANT_EXPONENT: u64 = 300;

impl Rate {
    /// Failures of hardware of one GPU: 2.93 per 1,000 days of a node with eight (Llama 3, arXiv 2407.21783).
    pub const GPU: Self = Self(366_250);

    /// The rate of a unit of an age. In its first 30 days a unit fails more often, by a Weibull law of shape 0.7. No
    /// measurement of GPUs stands behind that shape. Ages below an hour count as an hour.
    #[must_use]
    pub fn at_age(self, seconds: u64) -> Self {
        let age = seconds.max(HOUR);
        if age >= INFANCY {
            return self;
        }
        // (INFANCY / age)^0.3 = 1 / e^(-0.3 ln(INFANCY / age)).
        let exponent = scaled(ln(INFANCY, age).unsigned_abs(), INFANT_EXPONENT, 1_000);
        Self(scaled(self.0, ONE, decayed(ONE, exponent, ONE)))
    }

    /// Probability of a failure within some seconds, in billionths: `1 - e^(-rate * time)`.
    pub fn probability_within(self, seconds: u64) -> u64 {
        // In billionths of a failure.
        let expected = scaled(self.0, seconds, DAY);
        ONE - decayed(ONE, expected, ONE)
    }

    /// In millionths an hour, as the engine has the hazard of a node.
    pub fn millionths_an_hour(self) -> u64 {
        scaled(self.0, 1, 24_000)
    }

    /// Several times the rate, in thousandths.
    #[must_use]
    pub fn times(self, thousandths: u64) -> Self {
        Self(scaled(self.0, thousandths, 1_000))
    }
}
