//! The cost of an evaluation, in the units of Kubernetes.
//!
//! Kubernetes limits each evaluation of a selector to [`COST_LIMIT`] units. A name, a field or a
//! call costs one unit, a new list ten, a new map thirty. Functions on text and lists cost a
//! fraction of the sizes. The same prices are charged here.
//!
//! Some of these prices are too low to limit the machine: concatenating lists, replacing text,
//! compiling patterns. A second limit therefore counts *work*: bytes and elements that are copied
//! or compared. No practical selector comes near it.

use crate::fault::Fault;

/// Limit of units for one evaluation: `CELSelectorExpressionMaxCost` of `resource.k8s.io`.
pub const COST_LIMIT: u64 = 1_000_000;

/// Limit of bytes and elements that one evaluation may copy or compare.
const MAX_WORK: usize = 10_000_000;
/// Bytes and elements that count as one unit in the sum of both.
const WORK_PER_UNIT: u64 = 10;

/// The cost of an evaluation so far.
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

    /// Refunds a unit.
    pub(crate) fn refund(&mut self) {
        self.cost = self.cost.saturating_sub(1);
    }

    /// Counts bytes or elements that are copied or compared.
    pub(crate) fn work(&mut self, amount: usize) -> Result<(), Fault> {
        self.work = self.work.saturating_add(amount);
        if self.work > MAX_WORK { Err(Fault::TooCostly) } else { Ok(()) }
    }

    /// Units charged so far.
    #[cfg(test)]
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// The total so far: units plus work, converted by [`WORK_PER_UNIT`].
    pub(crate) fn spent(&self) -> u64 {
        let work = u64::try_from(self.work).unwrap_or(u64::MAX);
        self.cost.saturating_add(work / WORK_PER_UNIT)
    }
}
