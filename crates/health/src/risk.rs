//! How likely a unit fails, from what happened to it.
//!
//! A [`History`] holds the evidence: time at work, failures with their blame, repairs. [`Settings`] hold two models of it.
//! Each gives a [`Score`]: a rate of failures, and a lower bound of it.
//!
//! | model | idea | rate |
//! |---|---|---|
//! | [`Model::Decayed`] | every unit has a rate of its own, drawn from a gamma distribution; evidence fades | `h0 (a + n) / (a + h0 T)` |
//! | [`Model::TwoClasses`] | a share of the units is bad and fails `times` as often; evidence stays | `h0 (1 + P(bad) (times - 1))` |
//!
//! `n` is the blame and `T` the time at work, each weighted by `e^(-age / memory)`. `h0` is the [`Rate`] before any evidence:
//! in the first model the mean of all units, in the second that of the good ones.

mod class;
mod decayed;
mod rate;
mod two_classes;

use serde::{Deserialize, Serialize};

pub use class::RiskClass;
pub use rate::Rate;
pub use two_classes::TwoClasses;

use crate::fixed::{decayed, scaled};
use crate::{DAY, ONE};

/// How much of a failure is attributed to a unit, in billionths of one failure.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Blame(u32);

/// Which model of the evidence decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Model {
    /// Every unit has its own rate, and evidence fades.
    #[default]
    Decayed,
    /// Units are good or bad, and evidence stays.
    TwoClasses,
}

/// Parameters of both models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Which model decides.
    pub model: Model,
    /// Seconds in which evidence fades to 1/e in [`Model::Decayed`]; `None` if it does not fade.
    pub memory_seconds: Option<u64>,
    /// Shape `a` of the gamma distribution of rates, in billionths: `mean^2 / (variance - mean)` of the units' numbers of
    /// failures. The lower, the more units differ, and the more one failure counts.
    pub shape: u64,
    /// Parameters of [`Model::TwoClasses`].
    pub two_classes: TwoClasses,
}

/// What happened to a unit so far. A new one has no evidence.
///
/// Times may come in any order: evidence of the past counts as if it were of the latest time known, so a clock that goes
/// backwards fades nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct History {
    /// Until when `blame` and `exposure` have faded.
    as_of: u64,
    /// Faded blame, in billionths of a failure.
    blame: u64,
    /// Faded time at work, in billionths of a day.
    exposure: u64,
    /// Evidence of being bad from failures and repairs, in billionths of a nat above the prior log odds.
    log_odds: i64,
    /// Seconds at work since the last repair. They are evidence of being good.
    unfaded: u64,
}

/// The risk of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// Expected rate of failures.
    pub rate: Rate,
    /// With a probability of 90% the rate is at least this. Remedies act only upon this bound.
    pub at_least: Rate,
}

impl Blame {
    /// The unit did not cause it: an error of an application.
    pub const NONE: Self = Self(0);
    /// The unit caused it: its own XID.
    pub const WHOLE: Self = Self(1_000_000_000);

    /// One of several units caused it: a gang that failed without a sign of where.
    pub fn one_of(suspects: u32) -> Self {
        Self(Self::WHOLE.0 / suspects.max(1))
    }

    /// In billionths of a failure.
    pub fn billionths(self) -> u64 {
        self.0.into()
    }
}

impl Default for Settings {
    /// Evidence fades within 14 days. The shape is that of a fleet of which 5% fail 20 times as often.
    fn default() -> Self {
        Self {
            model: Model::Decayed,
            memory_seconds: Some(14 * DAY),
            shape: 220_000_000,
            two_classes: TwoClasses::default(),
        }
    }
}

impl History {
    /// Adds time at work that ended at `now`.
    pub fn expose(&mut self, settings: &Settings, now: u64, seconds: u64) {
        self.fade(settings, now);
        let days = scaled(seconds, ONE, DAY);
        let added = match settings.memory_seconds {
            None => days,
            // The integral of e^(-age / memory) over the time: memory (1 - e^(-seconds / memory)).
            Some(memory) => scaled(memory, ONE - decayed(ONE, seconds, memory), DAY).min(days),
        };
        self.exposure = self.exposure.saturating_add(added);
        self.unfaded = self.unfaded.saturating_add(seconds);
    }

    /// Adds a failure at `now`.
    pub fn fail(&mut self, settings: &Settings, now: u64, blame: Blame) {
        self.fade(settings, now);
        self.blame = self.blame.saturating_add(blame.billionths());
        let evidence = settings.two_classes.evidence_of_failure(blame);
        self.log_odds = self.log_odds.saturating_add(evidence);
    }

    /// Adds a repair. `in_vain` is the probability, in billionths, that a bad unit is bad after it. [`Model::Decayed`] learns
    /// nothing of it, since a repair is no evidence until the unit works again.
    ///
    /// `base` is the rate as in [`History::score`].
    pub fn repaired(&mut self, settings: &Settings, base: Rate, in_vain: u64) {
        let prior = settings.two_classes.prior_log_odds();
        let before = self.log_odds_of_bad(settings, base);
        let after = two_classes::after_repair(before, in_vain);
        self.log_odds = after.saturating_sub(prior);
        self.unfaded = 0;
    }

    /// The risk at `now`. `base` is the rate `h0` before any evidence, of the unit's model and age.
    pub fn score(&self, settings: &Settings, base: Rate, now: u64) -> Score {
        match settings.model {
            Model::Decayed => {
                let mut faded = *self;
                faded.fade(settings, now);
                decayed::score(settings.shape, base, faded.blame, faded.exposure)
            }
            Model::TwoClasses => {
                settings.two_classes.score(base, self.log_odds_of_bad(settings, base))
            }
        }
    }

    /// Log odds of being bad in [`Model::TwoClasses`], in billionths of a nat. It orders units more finely than rates do.
    ///
    /// `base` is the rate as in [`History::score`].
    pub fn log_odds_of_bad(&self, settings: &Settings, base: Rate) -> i64 {
        let model = settings.two_classes;
        let evidence = self.log_odds.saturating_sub(model.evidence_of_work(base, self.unfaded));
        model.prior_log_odds().saturating_add(evidence)
    }

    /// Lets evidence fade until `now`.
    fn fade(&mut self, settings: &Settings, now: u64) {
        let passed = now.saturating_sub(self.as_of);
        if let Some(memory) = settings.memory_seconds {
            self.blame = decayed(self.blame, passed, memory);
            self.exposure = decayed(self.exposure, passed, memory);
        }
        self.as_of = self.as_of.max(now);
    }
}

#[cfg(test)]
mod tests;
