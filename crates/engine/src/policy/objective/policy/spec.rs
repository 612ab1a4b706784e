//! A policy as it is written, and how it is checked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::decimal::{WrittenDecimal, micro};
use super::error::{PolicyError, nearest};
use super::{Classes, PlacementPolicy, Step};
use crate::objective::CostTerm;

/// A policy as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicySpec {
    /// Name.
    pub name: String,
    /// The steps: the first one in which two decisions differ decides.
    pub order: Vec<StepSpec>,
    /// Hard constraints, whatever they cost.
    #[serde(default, skip_serializing_if = "Constraints::is_empty")]
    pub constraints: Constraints,
    /// Whether running pods may be moved or evicted for a new one. Default: true, unless
    /// [`Constraints::max_pods_disturbed`] is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<bool>,
}

/// One step: a cost term, or a weighted sum of terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepSpec {
    /// Name of the cost term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Terms with their weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sum: Vec<TermSpec>,
    /// Tolerance; only for a single term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<ToleranceSpec>,
}

/// A term of a sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TermSpec {
    /// Name of the cost term.
    pub unit: String,
    /// Weight: a decimal number such as `"1.5"`.
    pub weight: WrittenDecimal,
}

/// The tolerance of a step: one of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToleranceSpec {
    /// Costs that differ by more than this percentage of the lower one never count as equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<i64>,
    /// Costs that differ by more than this never count as equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absolute: Option<i64>,
}

/// Hard constraints. A constraint that is already violated does not count against a decision that
/// does not make it worse.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Constraints {
    /// Most power of the whole cluster in watts ([`crate::objective::energy`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_watts: Option<i64>,
    /// Maximum spend for the allocations of the whole cluster, in cents per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cents_per_hour: Option<i64>,
    /// Most running pods that one decision may move or evict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pods_disturbed: Option<i64>,
    /// Nodes that are to be left free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<Spares>,
}

/// Nodes to leave free: open nodes with GPUs, all of them idle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spares {
    /// In each domain of this level; absent: in the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// How many.
    pub nodes: SpareCount,
    /// Seconds until a failed node is replaced, for [`SpareCount::Auto`]; absent: a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refill_seconds: Option<u64>,
    /// Preemptible workloads of a lower priority may use the nodes meanwhile; absent: none may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lend_below_priority: Option<i32>,
}

/// A number of spare nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SpareCount {
    /// This many.
    Nodes(i64),
    /// As many as are expected to fail before they are replaced, with a probability of 99%
    /// ([`octavo_health::spares`]).
    Auto(AutoWord),
}

/// The word `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AutoWord {
    /// Computed.
    #[serde(rename = "auto")]
    Auto,
}

impl Constraints {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl TryFrom<PolicySpec> for PlacementPolicy {
    type Error = PolicyError;

    fn try_from(spec: PolicySpec) -> Result<Self, PolicyError> {
        if spec.name.trim().is_empty() {
            return Err(PolicyError::NoName);
        }
        let steps = steps(&spec.order)?;
        check_constraints(&spec.constraints)?;
        let is_still = spec.constraints.max_pods_disturbed == Some(0);
        match spec.preemption {
            Some(true) if is_still => {
                let why = "with 0 pods disturbed nothing can be preempted; raise the limit or turn \
                           preemption off";
                let field = "constraints.maxPodsDisturbed, preemption";
                return Err(PolicyError::Contradiction { field, why });
            }
            Some(false) if spec.constraints.max_pods_disturbed > Some(0) => {
                let why = "without preemption no pod is disturbed; leave the limit out or turn \
                           preemption on";
                let field = "constraints.maxPodsDisturbed, preemption";
                return Err(PolicyError::Contradiction { field, why });
            }
            _ => {}
        }
        Ok(Self { spec, steps })
    }
}

fn steps(order: &[StepSpec]) -> Result<Vec<Step>, PolicyError> {
    if order.is_empty() {
        return Err(PolicyError::EmptyOrder);
    }
    let mut seen = BTreeMap::new();
    let mut steps = Vec::new();
    for (number, step) in order.iter().enumerate() {
        let field = format!("order[{number}]");
        let found = match (&step.unit, step.sum.as_slice()) {
            (None, []) => Some("neither"),
            (Some(_), [_, ..]) => Some("both"),
            _ => None,
        };
        if let Some(found) = found {
            return Err(PolicyError::StepForm { field, found });
        }
        if let Some(written) = &step.unit {
            let unit = unit(written, format!("{field}.unit"), &mut seen)?;
            steps.push(Step::Term { unit, classes: tolerance(step.tolerance, &field)? });
            continue;
        }
        if step.tolerance.is_some() {
            let field = format!("{field}.tolerance");
            let why = "a tolerance is in one unit, so a sum cannot have one; put the unit that may \
                       differ into a step of its own";
            return Err(PolicyError::Tolerance { field, why });
        }
        let mut terms = Vec::new();
        for (number, term) in step.sum.iter().enumerate() {
            let field = format!("{field}.sum[{number}]");
            let unit = unit(&term.unit, format!("{field}.unit"), &mut seen)?;
            let (field, found) = (format!("{field}.weight"), &term.weight.0);
            match micro(found) {
                Ok(0) => return Err(PolicyError::ZeroWeight { field, unit }),
                Ok(weight) => terms.push((unit, weight)),
                Err(why) => {
                    return Err(PolicyError::Weight { field, found: found.clone(), why });
                }
            }
        }
        steps.push(Step::Sum(terms));
    }
    Ok(steps)
}

fn unit(
    written: &str,
    field: String,
    seen: &mut BTreeMap<CostTerm, String>,
) -> Result<CostTerm, PolicyError> {
    let Some(unit) = CostTerm::named(written) else {
        let (found, nearest) = (written.to_owned(), nearest(written));
        return Err(PolicyError::UnknownUnit { field, found, nearest });
    };
    if let Some(first) = seen.get(&unit) {
        return Err(PolicyError::DuplicateUnit { field, unit, first: first.clone() });
    }
    seen.insert(unit, field);
    Ok(unit)
}

fn tolerance(written: Option<ToleranceSpec>, field: &str) -> Result<Classes, PolicyError> {
    let Some(written) = written else { return Ok(Classes::Wide(1)) };
    let error = |name: &str, why| {
        let field = format!("{field}.tolerance{name}");
        Err(PolicyError::Tolerance { field, why })
    };
    match (written.percent, written.absolute) {
        (None, None) => error("", "it is empty; set percent or absolute, or leave it out"),
        (Some(_), Some(_)) => error("", "set either percent or absolute, not both"),
        (Some(percent), None) => match u8::try_from(percent) {
            Ok(percent @ 1..=100) => Ok(Classes::percent(percent)),
            _ => error(".percent", "it must be a whole number from 1 to 100"),
        },
        (None, Some(slack @ 1..)) => Ok(Classes::absolute(slack)),
        (None, Some(_)) => error(".absolute", "it must be 1 or more"),
    }
}

fn check_constraints(constraints: &Constraints) -> Result<(), PolicyError> {
    let limits = [
        ("maxWatts", constraints.max_watts, 1, "leave it out for no limit"),
        ("maxCentsPerHour", constraints.max_cents_per_hour, 1, "leave it out for no limit"),
        ("maxPodsDisturbed", constraints.max_pods_disturbed, 0, "leave it out for no limit"),
    ];
    for (name, limit, least, hint) in limits {
        if let Some(found) = limit.filter(|limit| *limit < least) {
            let field = format!("constraints.{name}");
            return Err(PolicyError::TooLow { field, found, least, hint });
        }
    }
    let mut seen = BTreeMap::new();
    for (number, spares) in constraints.spares.iter().enumerate() {
        let field = format!("constraints.spares[{number}]");
        if let SpareCount::Nodes(found @ ..1) = spares.nodes {
            let (field, hint) =
                (format!("{field}.nodes"), "leave the entry out for no spare nodes");
            return Err(PolicyError::TooLow { field, found, least: 1, hint });
        }
        let level = spares.level.as_deref().unwrap_or("cluster");
        if let Some(first) = seen.insert(level, field.clone()) {
            return Err(PolicyError::DuplicateSpares { field, level: level.to_owned(), first });
        }
    }
    Ok(())
}
