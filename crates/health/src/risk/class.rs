//! A few classes of risk, so that placement distinguishes few kinds of nodes.

use serde::{Deserialize, Serialize};

use super::{Rate, Score};

/// The expected rate of a unit, as a multiple of the rate before any evidence. Placement treats units of one class alike.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum RiskClass {
    /// Below 3 times.
    #[default]
    Usual,
    /// From 3 times on.
    Raised,
    /// From 10 times on.
    High,
    /// From 30 times on.
    Extreme,
}

impl RiskClass {
    /// All classes, least risk first.
    pub const ALL: [Self; 4] = [Self::Usual, Self::Raised, Self::High, Self::Extreme];

    /// The class of a score.
    pub fn of(score: Score, base: Rate) -> Self {
        let is_from =
            |class: &&Self| score.rate >= base.times(class.least_thousandths()) && score.rate.0 > 0;
        Self::ALL.iter().rev().find(is_from).copied().unwrap_or(Self::Usual)
    }

    /// A rate for the class: the geometric mean of its bounds, for [`Self::Usual`] the rate before any evidence.
    pub fn rate(self, base: Rate) -> Rate {
        base.times(match self {
            Self::Usual => 1_000,
            Self::Raised => 5_477,
            Self::High => 17_321,
            Self::Extreme => 54_772,
        })
    }

    /// By how much the rate of the class is above that of a usual unit.
    #[must_use]
    pub fn excess(self, base: Rate) -> Rate {
        Rate(self.rate(base).0.saturating_sub(Self::Usual.rate(base).0))
    }

    /// The class of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// Name in labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::Raised => "raised",
            Self::High => "high",
            Self::Extreme => "extreme",
        }
    }

    /// The lower bound of the class, in thousandths of the rate before any evidence.
    fn least_thousandths(self) -> u64 {
        match self {
            Self::Usual => 0,
            Self::Raised => 3_000,
            Self::High => 10_000,
            Self::Extreme => 30_000,
        }
    }
}
