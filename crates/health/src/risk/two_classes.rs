//! Good and bad units: Bayes' rule for a mixture of two rates.

use serde::{Deserialize, Serialize};

use super::{Blame, Rate, Score};
use crate::fixed::{decayed, ln, scaled};
use crate::{DAY, ONE};

/// Probability of being bad from which on the lower bound of the rate is that of bad units, in billionths.
const SURE: u64 = 900_000_000;

/// A share of the units is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TwoClasses {
    /// Share of bad units before any evidence, in billionths.
    pub share_bad: u64,
    /// How many times as often as a good unit a bad one fails, in thousandths.
    pub times: u64,
}

impl Default for TwoClasses {
    /// 5% of the units fail 20 times as often, as a fleet of 504 B200 suggests (arXiv 2605.09370).
    fn default() -> Self {
        Self { share_bad: 50_000_000, times: 20_000 }
    }
}

impl TwoClasses {
    /// Log odds of being bad before any evidence, in billionths of a nat.
    pub(super) fn prior_log_odds(self) -> i64 {
        ln(self.share_bad, ONE.saturating_sub(self.share_bad))
    }

    /// What a failure adds to the log odds: `blame ln(times)`.
    pub(super) fn evidence_of_failure(self, blame: Blame) -> i64 {
        let evidence = ln(self.times, 1_000);
        let size = to_i64(scaled(evidence.unsigned_abs(), blame.billionths(), ONE));
        if evidence < 0 { -size } else { size }
    }

    /// What seconds at work without a failure take from the log odds: `(times - 1) base seconds`.
    pub(super) fn evidence_of_work(self, base: Rate, seconds: u64) -> i64 {
        let surplus = base.times(self.times.saturating_sub(1_000));
        to_i64(scaled(surplus.0, seconds, DAY))
    }

    /// The score at some log odds of being bad.
    pub(super) fn score(self, base: Rate, log_odds: i64) -> Score {
        let probability = probability(log_odds);
        let bad = base.times(self.times);
        let surplus = bad.0.saturating_sub(base.0);
        let rate = Rate(base.0.saturating_add(scaled(surplus, probability, ONE)));
        Score { rate, at_least: if probability >= SURE { bad } else { base } }
    }
}

/// Log odds after a repair that multiplies the probability of being bad by `in_vain`, in billionths.
pub(super) fn after_repair(log_odds: i64, in_vain: u64) -> i64 {
    let Some(success @ 1..) = ONE.checked_sub(in_vain) else { return log_odds };
    // With the odds o and success s: p q / (1 - p q) = o q / (1 + o s).
    if log_odds <= 0 {
        let odds = decayed(ONE, log_odds.unsigned_abs(), ONE);
        log_odds.saturating_add(ln(in_vain, ONE + scaled(odds, success, ONE)))
    } else {
        // The same, divided by o.
        ln(in_vain, decayed(ONE, log_odds.unsigned_abs(), ONE) + success)
    }
}

/// The probability of log odds in billionths of a nat, in billionths.
fn probability(log_odds: i64) -> u64 {
    let smaller = decayed(ONE, log_odds.unsigned_abs(), ONE);
    let larger = if log_odds <= 0 { smaller } else { ONE };
    scaled(larger, ONE, ONE + smaller)
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
