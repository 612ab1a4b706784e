use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use super::ArrivalError;

/// Demand over capacity in GPUs: the paper's is 1.3. A finite number above 0.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Factor(f64);

impl Factor {
    /// The factor of that value.
    pub fn new(value: f64) -> Result<Self, ArrivalError> {
        if value.is_finite() && value > 0.0 {
            Ok(Self(value))
        } else {
            Err(ArrivalError::Factor(value.to_string()))
        }
    }

    /// Its value.
    pub fn value(self) -> f64 {
        self.0
    }

    /// Whether the demand is below, at or above the target.
    pub(super) fn compare_demand(self, demand: u64, capacity: NonZeroU64) -> Ordering {
        float(demand).total_cmp(&(self.0 * float(capacity.get())))
    }

    /// Whether the demand is above the target.
    pub(super) fn is_passed_by(self, demand: u64, capacity: NonZeroU64) -> bool {
        self.compare_demand(demand, capacity).is_gt()
    }
}

impl FromStr for Factor {
    type Err = ArrivalError;

    fn from_str(text: &str) -> Result<Self, ArrivalError> {
        let value = text.trim().parse().ok().and_then(|value| Self::new(value).ok());
        value.ok_or_else(|| ArrivalError::Factor(text.to_owned()))
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// As the authors' simulator converts, so that sums on the edge fall to the same side.
#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 milli, nine trillion GPUs")]
fn float(milli: u64) -> f64 {
    milli as f64
}
