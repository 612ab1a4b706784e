//! What running an expression costs, in the units of Kubernetes.
//!
//! Kubernetes bounds each evaluation of a selector by [`COST_LIMIT`] units: one for a name, a field or
//! a call, ten for a list and thirty for a map that is made, and for functions over text and lists a
//! share of their sizes. The same prices are charged here. What Kubernetes prices too low to bound
//! the machine (adding lists, replacing text, compiling patterns) is bounded by *work* besides:
//! bytes and elements that are copied or compared. No real selector comes near it.

use crate::fault::Fault;

/// Units that one evaluation may cost: `CELSelectorExpressionMaxCost` of `resource.k8s.io`.
pub const COST_LIMIT: u64 = 1_000_000;

/// Bytes and elements that one evaluation may copy or compare.
const MAX_WORK: usize = 10_000_000;
/// Bytes and elements that count as one unit where both are added.
const WORK_PER_UNIT: u64 = 10;

/// What an evaluation has cost so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    cost: u64,
    work: usize,
}

impl Budget {
    /// Charges units.
    pub(crate) fn charge(&mut self, units: u64) -> Result<(), Fault> {
        self.cost = self.cost.saturating_add(units);
        if self.cost > COST_LIMIT { Err(Fault::TooCostly) } else { Ok(()) }
    }

    /// Takes a unit back.
    pub(crate) fn refund(&mut self) {
        self.cost = self.cost.saturating_sub(1);
    }

    /// Accounts for bytes or elements that are copied or compared.
    pub(crate) fn work(&mut self, amount: usize) -> Result<(), Fault> {
        self.work = self.work.saturating_add(amount);
        if self.work > MAX_WORK { Err(Fault::TooCostly) } else { Ok(()) }
    }

    /// Units charged so far.
    #[cfg(test)]
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// What it took so far: units, and what was copied or compared in the measure of its own limit.
    pub(crate) fn spent(&self) -> u64 {
        let work = u64::try_from(self.work).unwrap_or(u64::MAX);
        self.cost.saturating_add(work / WORK_PER_UNIT)
    }
}
