//! A policy as written becomes one by which to decide.

use std::collections::BTreeSet;

use octavo_health::ONE;
use octavo_health::budget::{BreakerRules, Budget};
use octavo_health::moves::Move;
use octavo_health::policy::{Policy, PreventiveDrain, RiskWatch};
use octavo_health::remedy::{Ladder, Remedy};
use octavo_health::risk::{Rate, Settings, TwoClasses};
use octavo_health::state::Rules;
use octavo_health::xid;

use super::{
    BreakerSpec, BudgetSpec, HealthPolicySpec, PolicyError, PreventiveDrainSpec, RebootBy,
    RiskSpec, TemplateSpec, TimesSpec,
};

impl HealthPolicySpec {
    /// The policy, if all values are valid.
    pub fn check(&self) -> Result<Policy, PolicyError> {
        if self.node_selector.is_empty() {
            return Err(PolicyError::NoSelector);
        }
        if let Some(number) = self.xid_classes.keys().find(|number| xid::is_unused(**number)) {
            return Err(PolicyError::UnusedXid { number: *number });
        }
        let by_template = self.template.as_ref().map(TemplateSpec::check).transpose()?;
        let by_template = by_template.unwrap_or_default();
        if self.reboot_by == RebootBy::Agent && by_template.contains(&Remedy::Reboot) {
            return Err(PolicyError::TwoReboot);
        }
        let rules =
            self.times.check(Ladder::new(self.remedies.clone()).ok_or(PolicyError::Ladder)?)?;
        let drain = self.preventive_drain;
        let preventive_drain = drain.map(|drain| drain.check(rules.short_test)).transpose()?;
        Ok(Policy {
            node_selector: self.node_selector.clone(),
            mode: self.mode,
            evict: self.evict,
            rules,
            by_person: &self.by_person() - &by_template,
            by_template,
            test: self.test,
            network_cards: self.network_cards,
            xid_classes: self.xid_classes.clone(),
            budget: self.budget.check()?,
            breaker: self.breaker.check()?,
            risk: self.risk.settings()?,
            watch: self.risk.watch()?,
            preventive_drain,
        })
    }
}

impl HealthPolicySpec {
    /// The remedies that wait for a person. The agent resets GPUs, reloads the driver, and reboots the node if it may. Nothing switches
    /// power.
    fn by_person(&self) -> BTreeSet<Remedy> {
        let mut remedies = BTreeSet::from([Remedy::PowerCycle]);
        if self.reboot_by == RebootBy::Person {
            remedies.insert(Remedy::Reboot);
        }
        remedies
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

impl PreventiveDrainSpec {
    /// The risk at which a move pays. The job is taken to be of one GPU, which alone pays for the test: it lasts `test` seconds. For a
    /// larger job the move pays a little earlier.
    fn check(&self, test: u64) -> Result<PreventiveDrain, PolicyError> {
        let field = "preventiveDrain.checkpointIntervalSeconds";
        let interval = within(field, self.checkpoint_interval_seconds, 0, YEAR)?;
        let field = "preventiveDrain.plannedRestartSeconds";
        let planned_restart = within(field, self.planned_restart_seconds, 0, YEAR)?;
        let field = "preventiveDrain.riskRemovedPercent";
        let percent = within(field, self.risk_removed_percent, 1, 100)?;
        let candidate = Move {
            gang: 1,
            risk_removed: percent * (ONE / 100),
            detection: within("preventiveDrain.detectionSeconds", self.detection_seconds, 0, YEAR)?,
            restart: within("preventiveDrain.restartSeconds", self.restart_seconds, 0, YEAR)?,
            wait: within("preventiveDrain.queueSeconds", self.queue_seconds, 0, YEAR)?,
            interval,
            write: within("preventiveDrain.checkpointSeconds", self.checkpoint_seconds, 0, YEAR)?,
            planned_restart,
            test,
            fenced: 1,
            pushed_off: 0,
        };
        let price = candidate.price();
        let probability = candidate.threshold().ok_or(PolicyError::DearMove { price })?;
        let horizon = within("preventiveDrain.horizonSeconds", self.horizon_seconds, 1, YEAR)?;
        Ok(PreventiveDrain { probability, horizon })
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
