//! Policies of placement as data: what counts more, what counts as equal, and what must hold.
//!
//! ```yaml
//! name: train
//! order:                                 # the first step that tells two decisions apart decides
//! - unit: podsDisturbed
//! - unit: hops
//!   tolerance: { percent: 10 }           # counts as equal within 10 %
//! - sum:                                 # what one of each unit is worth
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
pub use decimal::{Decimal, DecimalError, WrittenDecimal};
pub use error::PolicyError;
pub use spec::{Constraints, PolicySpec, Spares, StepSpec, TermSpec, Tolerance, ToleranceSpec};

use super::{CostTerm, CostVector};

/// A policy that makes sense by itself; [`PlacementPolicy::check`] says whether it does in a
/// cluster. It is read and written as a [`PolicySpec`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PolicySpec", into = "PolicySpec")]
pub struct PlacementPolicy {
    spec: PolicySpec,
    steps: Steps,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Steps(Vec<Step>);

/// One step of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A unit.
    Term {
        /// The unit.
        unit: CostTerm,
        /// What counts as equal.
        classes: Classes,
    },
    /// A sum of units, each with what one of it is worth.
    Sum(Vec<(CostTerm, Decimal)>),
}

/// Classes of costs that count as equal.
///
/// "Within 10 %" of one another is no equality: 100 is near 109 and 109 near 118, but 100 is not
/// near 118, and an order that runs in circles has no best. So the numbers are cut into classes,
/// and costs of one class count as equal: two of them never differ by more than the tolerance, but
/// two that are near may lie in different classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Classes {
    /// Each cost by itself.
    Exact,
    /// Of so many costs each.
    Wide(i64),
    /// The first cost of each class of positive costs; those of negative ones mirror them.
    Starts(Vec<i64>),
}

impl Default for PlacementPolicy {
    /// Pods disturbed, then hops, then the packing price. A disturbed pod loses work for certain
    /// and its owner did not ask for it, so it counts first. The distance of its members slows a
    /// gang for as long as it runs, so it comes before what others may perhaps want later. The
    /// packing price decides among the rest, and alone where a single pod disturbs nobody.
    fn default() -> Self {
        let order = [CostTerm::PodsDisturbed, CostTerm::Hops, CostTerm::PackingPrice];
        let spec = PolicySpec {
            name: "default".to_owned(),
            order: order
                .iter()
                .map(|unit| StepSpec { unit: Some(unit.to_string()), ..StepSpec::default() })
                .collect(),
            constraints: Constraints::default(),
            preemption: None,
        };
        let steps = Steps(order.iter().map(|unit| Step::unit(*unit, None)).collect());
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

    /// What is compared, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps.0
    }

    /// What must hold.
    pub fn constraints(&self) -> &Constraints {
        &self.spec.constraints
    }

    /// Whether running pods may be moved or evicted for a new one.
    pub fn is_preempting(&self) -> bool {
        self.spec.preemption.unwrap_or(self.constraints().max_pods_disturbed != Some(0))
    }

    /// Whether a unit has influence on the order.
    pub fn has(&self, unit: CostTerm) -> bool {
        self.steps().iter().any(|step| step.units().any(|own| own == unit))
    }

    /// Whether for a single pod, which disturbs nobody and has no ring, nothing but the packing
    /// price decides.
    pub fn is_packing_alone(&self) -> bool {
        let mut steps = self.steps().iter().filter(|step| {
            !step.units().all(|unit| matches!(unit, CostTerm::PodsDisturbed | CostTerm::Hops))
        });
        let price = Step::unit(CostTerm::PackingPrice, None);
        let limits = Constraints { max_pods_disturbed: None, ..self.constraints().clone() };
        steps.next() == Some(&price) && steps.next().is_none() && limits.is_empty()
    }

    /// Which of two costs is better: [`Ordering::Less`] is the first. All costs are in one order
    /// (ties apart); a tolerance yields to every later step, and then counts no more.
    pub fn compare(&self, a: &CostVector, b: &CostVector) -> Ordering {
        self.parting(a, b).map_or(Ordering::Equal, |(_, ordering)| ordering)
    }

    /// The unit in which `other` loses against `best`; none if it does not lose. Where a sum
    /// decides, it is the unit that weighs most against `other`.
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
                .max_by_key(|(unit, weight)| against(*unit, weight.micro()))
                .map(|(unit, _)| *unit),
        }
    }

    /// The step that tells two costs apart, and how.
    fn parting(&self, a: &CostVector, b: &CostVector) -> Option<(&Step, Ordering)> {
        let with_tolerance = self.steps().iter().map(|step| (step, step.compare(a, b)));
        let exact = self.steps().iter().map(|step| (step, step.compare_exactly(a, b)));
        with_tolerance.chain(exact).find(|(_, ordering)| ordering.is_ne())
    }
}

impl Step {
    fn unit(unit: CostTerm, tolerance: Option<Tolerance>) -> Self {
        Self::Term { unit, classes: Classes::new(tolerance) }
    }

    /// Its units.
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

/// In millionths. Eight products of 2^63 and 2^50 are far below 2^127.
fn sum(terms: &[(CostTerm, Decimal)], cost: &CostVector) -> i128 {
    let term = |(unit, weight): &(CostTerm, Decimal)| {
        i128::from(weight.micro()) * i128::from(cost.of(*unit))
    };
    terms.iter().map(term).sum()
}

impl Classes {
    fn new(tolerance: Option<Tolerance>) -> Self {
        match tolerance {
            None => Self::Exact,
            Some(Tolerance::Absolute(slack)) => Self::Wide(slack.saturating_add(1)),
            Some(Tolerance::Percent(percent)) => {
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
        }
    }

    /// The class of a cost; classes are in the order of their costs.
    fn class(&self, cost: i64) -> i64 {
        match self {
            Self::Exact => cost,
            Self::Wide(width) => cost.div_euclid(*width),
            Self::Starts(starts) => {
                let size = i64::try_from(cost.unsigned_abs()).unwrap_or(i64::MAX);
                let below = starts.partition_point(|start| *start <= size);
                i64::try_from(below).unwrap_or(i64::MAX) * cost.signum()
            }
        }
    }
}
