//! Units with rates of their own, and evidence that fades: a gamma prior with Poisson failures.

use super::{Rate, Score};
use crate::ONE;
use crate::fixed::{scaled, square_root};

/// The 90th percentile of the standard normal distribution, in billionths.
const Z_90: u64 = 1_281_551_566;

/// The score from faded blame (billionths of a failure) and faded time at work (billionths of a day).
pub(super) fn score(shape: u64, base: Rate, blame: u64, exposure: u64) -> Score {
    // In billionths of a failure.
    let expected = scaled(base.0, exposure, ONE);
    let events = shape.saturating_add(blame);
    let rate = Rate(scaled(base.0, events, shape.saturating_add(expected)));
    Score { rate, at_least: lower_bound(rate, events) }
}

/// The 10th percentile of a gamma distribution with a mean and a shape in billionths, by Wilson and Hilferty (1931):
/// `mean (1 - 1/(9 shape) - z/(3 sqrt(shape)))^3`, at least 0. It is at most 0.1% of the mean too high, and at most 1.2% too low.
fn lower_bound(mean: Rate, shape: u64) -> Rate {
    let spread = scaled(ONE, ONE, shape.saturating_mul(9)).saturating_add(scaled(
        Z_90,
        ONE,
        square_root(shape).saturating_mul(3),
    ));
    let root = ONE.saturating_sub(spread);
    let cube = scaled(scaled(root, root, ONE), root, ONE);
    Rate(scaled(mean.0, cube, ONE))
}
