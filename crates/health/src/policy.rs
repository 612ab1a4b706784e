//! The settings of all decisions, as an administrator writes them and as checked values.
//!
//! [`PolicySpec`] has the form of a custom resource's spec: camelCase names, whole numbers, unknown fields refused.
//! [`PolicySpec::check`] gives the [`Policy`] by which [`crate::decide`] decides, or an error with field and reason.

mod error;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use error::PolicyError;

use crate::budget::{BreakerRules, Budget};
use crate::remedy::{Ladder, Remedy};
use crate::risk::{Model, Rate, Settings, TwoClasses};
use crate::state::Rules;
use crate::xid::{self, XidClass};
use crate::{DAY, ONE};

/// Whether decisions are acted upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// States are kept and shown. Taints are for information; nothing is evicted, reset or tested.
    Observe,
    /// Devices go out of service and are tested before they return. Nothing is evicted, and remedies are a person's.
    #[default]
    Fence,
    /// All decisions are acted upon.
    Act,
}

/// A policy as written. Every field but the selector has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PolicySpec {
    /// Labels of the nodes to which the policy applies.
    pub node_selector: BTreeMap<String, String>,
    /// Whether decisions are acted upon.
    pub mode: Mode,
    /// Whether pods on fenced devices are evicted. If not, they may run on, and new ones do not come.
    pub evict: bool,
    /// Automatic remedies, mildest first.
    pub remedies: Vec<Remedy>,
    /// Classes of XIDs that go before those of NVIDIA's catalogue.
    pub xid_classes: BTreeMap<u32, XidClass>,
    /// How much may be disturbed at once.
    pub budget: BudgetSpec,
    /// When remedies stop.
    pub breaker: BreakerSpec,
    /// Times of states.
    pub times: TimesSpec,
    /// Risk.
    pub risk: RiskSpec,
}

/// How much may be disturbed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BudgetSpec {
    /// Remedies at once, in percent of the nodes; 0 for none.
    pub remedies_percent: i64,
    /// Remedies at once in a rack.
    pub remedies_per_rack: i64,
    /// Nodes from which pods are evicted at once, in percent of the nodes; 0 for none.
    pub evictions_percent: i64,
}

/// When remedies stop: more than a percentage of the nodes, and at least a number, had a new fence within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BreakerSpec {
    /// The percentage.
    pub percent: i64,
    /// The number.
    pub nodes: i64,
    /// The time.
    pub window_seconds: i64,
    /// How long remedies stay stopped.
    pub hold_seconds: i64,
}

/// Times of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TimesSpec {
    /// Time without a warning after which a device is no longer watched.
    pub watch_seconds: i64,
    /// Time of probation.
    pub probation_seconds: i64,
    /// A fence within this time after a return is a relapse.
    pub relapse_seconds: i64,
    /// The relapse that retires a device.
    pub relapses: i64,
    /// Time in which application XIDs of several jobs on one device alone make it suspect.
    pub repeat_seconds: i64,
    /// Time after which a remedy counts as failed.
    pub remedy_limit_seconds: i64,
    /// Time after which clients that do not leave hold up neither evictions elsewhere nor a reboot of their node.
    pub stuck_clients_seconds: i64,
    /// Length of a test after a reset.
    pub short_test_seconds: i64,
    /// Length of a test after a reboot.
    pub node_test_seconds: i64,
    /// Length of a test of a replaced device.
    pub burn_in_seconds: i64,
}

/// Risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RiskSpec {
    /// Which model of a device's history decides.
    pub model: Model,
    /// Time in which evidence fades to 1/e; 0 if it does not fade.
    pub memory_seconds: i64,
    /// How alike the rates of devices are, in thousandths ([`Settings::shape`]).
    pub shape_milli: i64,
    /// Devices that are bad before any evidence, in thousandths.
    pub share_bad_milli: i64,
    /// How many times as often as a good device a bad one fails.
    pub times: i64,
    /// Failures of a device in a billion days, before any evidence.
    pub failures_per_billion_days: i64,
    /// A device is watched if it fails within the horizon with this probability at least, in thousandths.
    pub watch_milli: i64,
    /// The horizon.
    pub horizon_seconds: i64,
}

/// A policy whose values were checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Labels of the nodes to which it applies.
    pub node_selector: BTreeMap<String, String>,
    /// Whether decisions are acted upon.
    pub mode: Mode,
    /// Whether pods on fenced devices are evicted.
    pub evict: bool,
    /// Times of states, and the ladder of remedies.
    pub rules: Rules,
    /// Classes of XIDs that go before those of the catalogue.
    pub xid_classes: BTreeMap<u32, XidClass>,
    /// How much may be disturbed at once.
    pub budget: Budget,
    /// When remedies stop.
    pub breaker: BreakerRules,
    /// How the history of a device is read.
    pub risk: Settings,
    /// From which risk on a device is watched.
    pub watch: RiskWatch,
}

/// From which risk on a device is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RiskWatch {
    /// Rate of failures before any evidence.
    pub base: Rate,
    /// The lower bound of the probability to fail, in billionths.
    pub probability: u64,
    /// Within this time, in seconds.
    pub horizon: u64,
}

impl Default for RiskWatch {
    /// A probability of 0.2% within a day is 5.5 times that of a usual GPU.
    fn default() -> Self {
        Self { base: Rate::GPU, probability: ONE / 500, horizon: DAY }
    }
}

impl Default for PolicySpec {
    fn default() -> Self {
        Self {
            node_selector: BTreeMap::new(),
            mode: Mode::default(),
            evict: false,
            remedies: Ladder::default().remedies().to_vec(),
            xid_classes: BTreeMap::new(),
            budget: BudgetSpec::default(),
            breaker: BreakerSpec::default(),
            times: TimesSpec::default(),
            risk: RiskSpec::default(),
        }
    }
}

impl Default for BudgetSpec {
    fn default() -> Self {
        Self { remedies_percent: 5, remedies_per_rack: 1, evictions_percent: 5 }
    }
}

impl Default for BreakerSpec {
    fn default() -> Self {
        Self { percent: 10, nodes: 3, window_seconds: 300, hold_seconds: 1_800 }
    }
}

impl Default for TimesSpec {
    fn default() -> Self {
        Self {
            watch_seconds: 86_400,
            probation_seconds: 86_400,
            relapse_seconds: 604_800,
            relapses: 3,
            repeat_seconds: 86_400,
            remedy_limit_seconds: 1_800,
            stuck_clients_seconds: 600,
            short_test_seconds: 60,
            node_test_seconds: 120,
            burn_in_seconds: 7_200,
        }
    }
}

impl Default for RiskSpec {
    fn default() -> Self {
        Self {
            model: Model::Decayed,
            memory_seconds: 1_209_600,
            shape_milli: 220,
            share_bad_milli: 50,
            times: 20,
            failures_per_billion_days: 366_250,
            watch_milli: 2,
            horizon_seconds: 86_400,
        }
    }
}

impl PolicySpec {
    /// The policy, if all values are valid.
    pub fn check(&self) -> Result<Policy, PolicyError> {
        if self.node_selector.is_empty() {
            return Err(PolicyError::NoSelector);
        }
        if let Some(number) = self.xid_classes.keys().find(|number| xid::is_unused(**number)) {
            return Err(PolicyError::UnusedXid { number: *number });
        }
        let ladder = Ladder::new(self.remedies.clone()).ok_or(PolicyError::Ladder)?;
        Ok(Policy {
            node_selector: self.node_selector.clone(),
            mode: self.mode,
            evict: self.evict,
            rules: self.times.check(ladder)?,
            xid_classes: self.xid_classes.clone(),
            budget: self.budget.check()?,
            breaker: self.breaker.check()?,
            risk: self.risk.settings()?,
            watch: self.risk.watch()?,
        })
    }
}

impl Policy {
    /// Whether the policy applies to a node with some labels: it has all that the policy names.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.node_selector.iter().all(|(name, value)| labels.get(name) == Some(value))
    }
}

impl BudgetSpec {
    fn check(&self) -> Result<Budget, PolicyError> {
        Ok(Budget {
            remedies_percent: within("budget.remediesPercent", self.remedies_percent, 0, 100)?,
            remedies_per_rack: within("budget.remediesPerRack", self.remedies_per_rack, 1, COUNT)?,
            evictions_percent: within("budget.evictionsPercent", self.evictions_percent, 0, 100)?,
        })
    }
}

impl BreakerSpec {
    fn check(&self) -> Result<BreakerRules, PolicyError> {
        Ok(BreakerRules {
            percent: within("breaker.percent", self.percent, 0, 100)?,
            least: within("breaker.nodes", self.nodes, 1, COUNT)?,
            window: within("breaker.windowSeconds", self.window_seconds, 1, YEAR)?,
            hold: within("breaker.holdSeconds", self.hold_seconds, 1, YEAR)?,
        })
    }
}

impl TimesSpec {
    fn check(&self, ladder: Ladder) -> Result<Rules, PolicyError> {
        let last_relapse = within("times.relapses", self.relapses, 1, 16)?;
        Ok(Rules {
            ladder,
            watch: within("times.watchSeconds", self.watch_seconds, 1, YEAR)?,
            probation: within("times.probationSeconds", self.probation_seconds, 0, YEAR)?,
            relapse: within("times.relapseSeconds", self.relapse_seconds, 0, YEAR)?,
            last_relapse: u32::try_from(last_relapse).unwrap_or(u32::MAX),
            repeat: within("times.repeatSeconds", self.repeat_seconds, 1, YEAR)?,
            limit: within("times.remedyLimitSeconds", self.remedy_limit_seconds, 1, YEAR)?,
            stuck: within("times.stuckClientsSeconds", self.stuck_clients_seconds, 1, YEAR)?,
            short_test: within("times.shortTestSeconds", self.short_test_seconds, 1, YEAR)?,
            node_test: within("times.nodeTestSeconds", self.node_test_seconds, 1, YEAR)?,
            burn_in: within("times.burnInSeconds", self.burn_in_seconds, 1, YEAR)?,
        })
    }
}

impl RiskSpec {
    fn settings(&self) -> Result<Settings, PolicyError> {
        let memory = within("risk.memorySeconds", self.memory_seconds, 0, 10 * YEAR)?;
        let milli = ONE / 1_000;
        Ok(Settings {
            model: self.model,
            memory_seconds: (memory > 0).then_some(memory),
            shape: within("risk.shapeMilli", self.shape_milli, 1, 1_000_000)? * milli,
            two_classes: TwoClasses {
                share_bad: within("risk.shareBadMilli", self.share_bad_milli, 1, 999)? * milli,
                times: within("risk.times", self.times, 2, 100_000)? * 1_000,
            },
        })
    }

    fn watch(&self) -> Result<RiskWatch, PolicyError> {
        let field = "risk.failuresPerBillionDays";
        let base = within(field, self.failures_per_billion_days, 1, 1_000_000_000_000)?;
        Ok(RiskWatch {
            base: Rate(base),
            probability: within("risk.watchMilli", self.watch_milli, 1, 1_000)? * (ONE / 1_000),
            horizon: within("risk.horizonSeconds", self.horizon_seconds, 1, YEAR)?,
        })
    }
}

/// Most of what is counted.
const COUNT: i64 = 1_000_000;

/// A year, in seconds.
const YEAR: i64 = 31_536_000;

fn within(field: &'static str, found: i64, least: i64, most: i64) -> Result<u64, PolicyError> {
    let is_within = (least..=most).contains(&found);
    let number = u64::try_from(found).ok().filter(|_| is_within);
    number.ok_or(PolicyError::OutOfRange { field, found, least, most })
}

#[cfg(test)]
mod tests;
