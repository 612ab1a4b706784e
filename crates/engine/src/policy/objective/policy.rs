//! Placement policies as data: priorities, tolerances and constraints.
//!
//! ```yaml
//! name: train
//! order:                                 # the first step in which two decisions differ decides
//! - unit: podsDisturbed
//! - unit: hops
//!   tolerance: { percent: 10 }           # equal within 10 %
//! - sum:                                 # weighted sum
//!   - { unit: gpuMilliStranded, weight: "1.5" }
//!   - { unit: watts, weight: 2 }
//! constraints:
//!   maxWatts: 500000
//!   spares: [{ level: rack, nodes: 1 }]
//! ```

mod cluster_check;
mod decimal;
mod error;
mod spec;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

pub(super) use cluster_check::domain_words;
pub use decimal::{DecimalError, WrittenDecimal};
pub use error::PolicyError;
pub use spec::{
    AutoWord, Constraints, PolicySpec, SpareCount, Spares, StepSpec, TermSpec, ToleranceSpec,
};

use super::{CostTerm, CostVector};

/// A valid policy. [`PlacementPolicy::check`] checks it against a cluster. It is read and written
/// as a [`PolicySpec`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PolicySpec", into = "PolicySpec")]
pub struct PlacementPolicy {
    spec: PolicySpec,
    steps: Vec<Step>,
}

/// One step of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A single cost term.
    Term {
        /// The cost term.
        unit: CostTerm,
        /// Classes of equal costs.
        classes: Classes,
    },
    /// A weighted sum of cost terms; weights in millionths.
    Sum(Vec<(CostTerm, i64)>),
}

/// Classes of costs that count as equal.
///
/// "Within 10 %" is not transitive: 100 is near 109 and 109 near 118, but 100 is not near 118. A
/// cyclic order has no best element. Costs are therefore divided into classes, and costs of one
/// class count as equal. Two costs of one class never differ by more than the tolerance. Two near
/// costs may lie in different classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Classes {
    /// Classes of this width; 1: each cost by itself.
    Wide(i64),
    /// The first cost of each class of positive costs; negative costs mirror them.
    Starts(Vec<i64>),
}

impl Default for PlacementPolicy {
    /// Pods disturbed, then hops, then preferences, then the risk of the GPUs, then the packing price. A disrupted pod certainly
    /// loses work, and its owner did not ask for it, so it counts first. Distance between members
    /// slows a gang as long as it runs. Both it and what a pod prefers come before possible failures
    /// and possible later demand. GPUs that may fail come last: while others are free, avoiding them
    /// costs little. The packing price decides the rest, and alone for a single pod without preferences
    /// and disruption among GPUs of equal risk.
    fn default() -> Self {
        let order = [
            CostTerm::PodsDisturbed,
            CostTerm::Hops,
            CostTerm::PreferencesMissed,
            CostTerm::GpuRisk,
            CostTerm::PackingPrice,
        ];
        let spec = PolicySpec {
            name: "default".to_owned(),
            order: order
                .iter()
                .map(|unit| StepSpec { unit: Some(unit.to_string()), ..StepSpec::default() })
                .collect(),
            constraints: Constraints::default(),
            preemption: None,
        };
        let steps = order.iter().map(|unit| Step::exact(*unit)).collect();
        Self { spec, steps }
    }
}

impl From<PlacementPolicy> for PolicySpec {
    fn from(policy: PlacementPolicy) -> Self {
        policy.spec
    }
}

impl PlacementPolicy {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The policy as it is written.
    pub fn spec(&self) -> &PolicySpec {
        &self.spec
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The constraints.
    pub fn constraints(&self) -> &Constraints {
        &self.spec.constraints
    }

    /// Whether running pods may be moved or evicted for a new one.
    pub fn is_preempting(&self) -> bool {
        self.spec.preemption.unwrap_or(self.constraints().max_pods_disturbed != Some(0))
    }

    /// Whether a term influences the order.
    pub fn has(&self, unit: CostTerm) -> bool {
        self.steps().iter().any(|step| step.units().any(|own| own == unit))
    }

    /// Whether only the packing price decides for a single pod that disrupts nothing, has no ring
    /// and misses no preference; after the risk of its GPUs, if [`Self::avoids_risk`].
    pub fn is_packing_alone(&self) -> bool {
        use CostTerm::{Hops, PodsDisturbed};
        let is_zero =
            |step: &&Step| is_zero_for_a_pod(step) || **step == Step::exact(CostTerm::GpuRisk);
        // Preferences after the price matter, because prices may be equal.
        let mut steps = self
            .steps()
            .iter()
            .skip_while(is_zero)
            .filter(|step| !step.units().all(|unit| matches!(unit, PodsDisturbed | Hops)));
        let price = Step::exact(CostTerm::PackingPrice);
        steps.next() == Some(&price) && steps.next().is_none() && !self.has_limits()
    }

    /// Whether GPUs of less risk come before a lower packing price.
    pub fn avoids_risk(&self) -> bool {
        let mut steps = self.steps().iter().skip_while(|step| is_zero_for_a_pod(step));
        steps.next() == Some(&Step::exact(CostTerm::GpuRisk))
    }

    /// Whether it limits what the whole cluster uses or keeps free.
    pub fn has_limits(&self) -> bool {
        !Constraints { max_pods_disturbed: None, ..self.constraints().clone() }.is_empty()
    }

    /// The policy without the spare nodes that are kept for repairs of a priority. Those that are lent
    /// to workloads of such a priority are kept for others.
    #[must_use]
    pub fn for_repair(&self, priority: i32) -> Self {
        let mut policy = self.clone();
        let is_lent = |spares: &Spares| spares.lend_below_priority.is_some_and(|it| priority < it);
        policy.spec.constraints.spares.retain(is_lent);
        policy
    }

    /// Compares two costs; [`Ordering::Less`] means `a` is better. Costs are totally ordered except
    /// for ties. A tolerance yields to every later step, and exact values break the remaining ties.
    pub fn compare(&self, a: &CostVector, b: &CostVector) -> Ordering {
        self.parting(a, b).map_or(Ordering::Equal, |(_, ordering)| ordering)
    }

    /// The term in which `other` loses against `best`; none if it does not lose. For a sum it is
    /// the term that weighs most against `other`.
    pub fn worse_in(&self, best: &CostVector, other: &CostVector) -> Option<CostTerm> {
        let (step, ordering) = self.parting(best, other)?;
        if ordering != Ordering::Less {
            return None;
        }
        let against = |unit: CostTerm, weight: i64| {
            i128::from(weight) * (i128::from(other.of(unit)) - i128::from(best.of(unit)))
        };
        match step {
            Step::Term { unit, .. } => Some(*unit),
            // The first of equals: max_by_key would give the last.
            Step::Sum(terms) => terms
                .iter()
                .rev()
                .max_by_key(|(unit, weight)| against(*unit, *weight))
                .map(|(unit, _)| *unit),
        }
    }

    /// The first step in which two costs differ, and how.
    fn parting(&self, a: &CostVector, b: &CostVector) -> Option<(&Step, Ordering)> {
        let with_tolerance = self.steps().iter().map(|step| (step, step.compare(a, b)));
        let exact = self.steps().iter().map(|step| (step, step.compare_exactly(a, b)));
        with_tolerance.chain(exact).find(|(_, ordering)| ordering.is_ne())
    }
}

/// Whether a step is zero for a single pod that disrupts nothing, has no ring and misses no preference.
fn is_zero_for_a_pod(step: &Step) -> bool {
    use CostTerm::{Hops, PodsDisturbed, PreferencesMissed};
    step.units().all(|unit| matches!(unit, PodsDisturbed | Hops | PreferencesMissed))
}

impl Step {
    fn exact(unit: CostTerm) -> Self {
        Self::Term { unit, classes: Classes::Wide(1) }
    }

    /// Its cost terms.
    pub fn units(&self) -> impl Iterator<Item = CostTerm> + '_ {
        let (single, sum) = match self {
            Self::Term { unit, .. } => (Some(*unit), &[][..]),
            Self::Sum(terms) => (None, &terms[..]),
        };
        single.into_iter().chain(sum.iter().map(|(unit, _)| *unit))
    }

    fn compare(&self, a: &CostVector, b: &CostVector) -> Ordering {
        match self {
            Self::Term { unit, classes } => {
                classes.class(a.of(*unit)).cmp(&classes.class(b.of(*unit)))
            }
            Self::Sum(_) => self.compare_exactly(a, b),
        }
    }

    fn compare_exactly(&self, a: &CostVector, b: &CostVector) -> Ordering {
        match self {
            Self::Term { unit, .. } => a.of(*unit).cmp(&b.of(*unit)),
            Self::Sum(terms) => sum(terms, a).cmp(&sum(terms, b)),
        }
    }
}

/// In millionths. Ten products of 2^63 and 2^50 are far below 2^127.
fn sum(terms: &[(CostTerm, i64)], cost: &CostVector) -> i128 {
    let term = |(unit, weight): &(CostTerm, i64)| i128::from(*weight) * i128::from(cost.of(*unit));
    terms.iter().map(term).sum()
}

impl Classes {
    /// Costs that differ by up to `slack` may count as equal.
    fn absolute(slack: i64) -> Self {
        Self::Wide(slack.saturating_add(1))
    }

    /// Costs that differ by up to this percentage of the lower one may count as equal.
    fn percent(percent: u8) -> Self {
        let mut starts = vec![1];
        let mut start = 1_i128;
        loop {
            start += start * i128::from(percent) / 100 + 1;
            match i64::try_from(start) {
                Ok(start) => starts.push(start),
                Err(_) => break Self::Starts(starts),
            }
        }
    }

    /// The class of a cost; classes are in the order of their costs.
    fn class(&self, cost: i64) -> i64 {
        match self {
            Self::Wide(width) => cost.div_euclid(*width),
            Self::Starts(starts) => {
                let size = i64::try_from(cost.unsigned_abs()).unwrap_or(i64::MAX);
                let below = starts.partition_point(|start| *start <= size);
                i64::try_from(below).unwrap_or(i64::MAX) * cost.signum()
            }
        }
    }
}
