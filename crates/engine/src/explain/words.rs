//! Cost terms, orders and reasons as text.

use crate::World;
use crate::objective::CostTerm;
use crate::objective::policy::{PlacementPolicy, StepSpec};
use crate::plan::{FailedBound, Reason, Scarce};

/// A cost as text, such as `0.460 GPUs stranded` or `12 cents per hour`.
pub fn amount(unit: CostTerm, value: i64) -> String {
    let count = |singular: &str, plural: &str| {
        format!("{value} {}", if value == 1 { singular } else { plural })
    };
    match unit {
        CostTerm::PodsDisturbed => count("pod disturbed", "pods disturbed"),
        CostTerm::Hops => count("hop", "hops"),
        CostTerm::PreferencesMissed => {
            count("point of preferences missed", "points of preferences missed")
        }
        CostTerm::GpuRisk => count(
            "failure more than usual expected in a million hours",
            "failures more than usual expected in a million hours",
        ),
        CostTerm::GpuMilliStranded => format!("{} GPUs stranded", fixed(value, 3)),
        CostTerm::PackingPrice => format!("a packing price of {} GPUs", fixed(value, 6)),
        CostTerm::Watts => format!("{value} W"),
        CostTerm::CentsPerHour => count("cent per hour", "cents per hour"),
        CostTerm::FairnessDeficit => format!("{} GPUs short of fair shares", fixed(value, 3)),
        CostTerm::ExpectedLostGpuSeconds => count(
            "GPU-second expected to be lost per hour",
            "GPU-seconds expected to be lost per hour",
        ),
    }
}

/// A number of thousandths or millionths as a decimal.
fn fixed(value: i64, digits: usize) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let padded = format!("{:0>width$}", value.unsigned_abs(), width = digits + 1);
    let (whole, part) = padded.split_at(padded.len() - digits);
    format!("{sign}{whole}.{part}")
}

/// The terms that a policy compares, such as `podsDisturbed, then hops (equal within 10 %), then
/// 1.5 gpuMilliStranded + 2 watts`.
pub fn order(policy: &PlacementPolicy) -> String {
    let steps: Vec<_> = policy.spec().order.iter().map(step).collect();
    steps.join(", then ")
}

fn step(step: &StepSpec) -> String {
    let terms = step.sum.iter().map(|term| format!("{} {}", term.weight.0, term.unit));
    let mut words = step.unit.clone().into_iter().chain(terms).collect::<Vec<_>>().join(" + ");
    if let Some(tolerance) = step.tolerance {
        let percent = tolerance.percent.map(|percent| format!(" (equal within {percent} %)"));
        let absolute = tolerance.absolute.map(|slack| format!(" (equal within {slack})"));
        words.extend(percent.into_iter().chain(absolute));
    }
    words
}

/// A reason in one word.
pub(super) fn reason_name(reason: &Reason) -> &'static str {
    match reason {
        Reason::Request(_) => "Request",
        Reason::Bound(_) => "Bound",
        Reason::Constraint { .. } => "Constraint",
        Reason::Spares { .. } => "Spares",
        Reason::NoNode(_) => "NoNode",
        Reason::Exhausted { .. } => "Exhausted",
        Reason::EvictionLimits => "EvictionLimits",
        Reason::Steps { .. } => "Steps",
    }
}

/// A reason in a sentence without numbers and names of the cluster. It changes only if the reason
/// does, so it suits the conditions of many pods.
pub(super) fn summary(world: &World, reason: &Reason) -> String {
    match reason {
        Reason::Request(_) => reason.to_string(),
        Reason::Bound(bound) => {
            let what = if bound.wanted == 1 {
                "no place".to_owned()
            } else {
                format!("too few places for group {:?}", bound.group)
            };
            format!("{what}{}: {}", same_domain(world, bound), scarce(bound.scarce))
        }
        Reason::Constraint { unit, .. } => {
            format!("the policy's limit of {unit} would be exceeded")
        }
        Reason::Spares { .. } => "the policy keeps nodes free that would be needed".to_owned(),
        Reason::NoNode(infeasible) => {
            let obstacles: Vec<_> =
                infeasible.counts.keys().map(|obstacle| obstacle.words()).collect();
            format!("the pod fits no node: {}", obstacles.join(", "))
        }
        Reason::Exhausted { level, .. } => {
            format!("no domain of the level {level} fits all members together")
        }
        Reason::EvictionLimits => {
            "no plan was found within disruption budgets of running pods; one may exist".to_owned()
        }
        Reason::Steps { .. } => {
            "no plan was found within the limit of the search; one may exist".to_owned()
        }
    }
}

/// A reason in a sentence.
pub(super) fn reason(world: &World, reason: &Reason) -> String {
    let Reason::Bound(bound) = reason else { return reason.to_string() };
    format!("{bound}{}: {}", same_domain(world, bound), scarce(bound.scarce))
}

/// The level at which all members must lie together.
fn same_domain(world: &World, bound: &FailedBound) -> String {
    match world.topology.levels().get(usize::from(bound.level.0)) {
        Some(level) if bound.level.0 > 0 => format!(" (all in one {level})"),
        _ => String::new(),
    }
}

fn scarce(scarce: Scarce) -> &'static str {
    match scarce {
        Scarce::Capacity => "there would not be enough room even if nothing ran",
        Scarce::Free => "there would be room if nothing else ran",
        Scarce::Evictions => "disruption budgets of running pods keep too many GPUs in use",
        Scarce::Gpus => "free GPUs are too few or in pieces",
        Scarce::PlainResources => "GPUs are free, but not enough CPU or memory beside them",
        Scarce::Constraints => {
            "there is room, but on nodes that they may not have, or on which no more of them may be"
        }
    }
}
