//! Why a request cannot have a device, with the names that people need.

use std::collections::BTreeSet;
use std::fmt;

use super::Allocator;
use super::capacity::CapacityMismatch;
use super::error::{ClaimRef, agreement, of_class};
use super::mismatch::Mismatch;
use super::node_context::{Candidate, NodeContext};
use super::partial_allocation::PartialAllocation;
use super::plan::ClaimPlan;
use crate::Quantity;
use crate::claim::{Claim, Rule};
use crate::features::Feature;
use crate::pools::PoolDefect;
use crate::quantity::Notation;
use crate::slice::{DeviceTaint, TaintEffect};
use octavo_cel::CelError;

/// Why a request cannot have a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceMismatch {
    /// A selector of the class does not match.
    ClassSelector {
        /// Name of the class.
        class: String,
        /// The selector.
        expression: String,
    },
    /// A selector of the request does not match.
    RequestSelector {
        /// The selector.
        expression: String,
    },
    /// A selector fails.
    CelError {
        /// The class whose selector it is; `None`: the request's own.
        class: Option<String>,
        /// What is wrong.
        error: CelError,
    },
    /// The device is for other nodes.
    OtherNode,
    /// The node selector of the device's slice is malformed.
    NodeSelector {
        /// What is wrong.
        error: String,
    },
    /// The device needs a feature that is off in the cluster.
    FeatureOff(Feature),
    /// Other claims hold the device.
    InUse {
        /// The claims, by name.
        by: Vec<ClaimRef>,
    },
    /// Another request of the same pod holds the device.
    TakenTogether {
        /// Claim of that request.
        claim: ClaimRef,
        /// `<request>` or `<request>/<alternative>`.
        request: String,
    },
    /// The device has no capacity of this name.
    CapacityUnknown {
        /// The requested name.
        name: String,
    },
    /// The policy of a capacity does not allow the amount.
    CapacityOutsidePolicy {
        /// Name of the capacity.
        name: String,
        /// The amount that the request would take.
        wanted: Quantity,
    },
    /// A capacity has too little left.
    CapacityShort {
        /// Name of the capacity.
        name: String,
        /// The amount that the request would take.
        wanted: Quantity,
        /// The amount left.
        left: Quantity,
        /// The claims that hold shares, by name.
        by: Vec<ClaimRef>,
    },
    /// A counter of the pool has too little left.
    CountersExhausted {
        /// Name of the counter set.
        set: String,
        /// Name of the counter.
        counter: String,
        /// The amount that the device would draw.
        wanted: Quantity,
        /// The amount left.
        left: Quantity,
        /// The claims whose devices draw from it, by name.
        by: Vec<ClaimRef>,
    },
    /// The request does not tolerate this taint.
    Taint(DeviceTaint),
    /// A constraint does not hold: the device lacks the attribute, or its value conflicts with the
    /// devices chosen before.
    Constraint(Rule),
    /// The pool lacks slices.
    PoolIncomplete,
    /// The pool contradicts itself.
    PoolInvalid(PoolDefect),
}

impl DeviceMismatch {
    /// Adds the names that the borrowed form lacks.
    pub(super) fn new<'s, 'a: 's>(
        mismatch: Mismatch<'s>,
        context: &NodeContext<'s, 'a>,
        claims: &[ClaimPlan<'s>],
        state: &PartialAllocation<'s, 'a>,
        at: Candidate,
    ) -> Self {
        let holders = || {
            let usage = context.allocator.allocated.of(at.id);
            names(usage.into_iter().flat_map(|usage| usage.claims.iter().copied()))
        };
        match mismatch {
            Mismatch::Selector { class: Some(class), expression } => {
                Self::ClassSelector { class: class.to_owned(), expression: expression.to_owned() }
            }
            Mismatch::Selector { class: None, expression } => {
                Self::RequestSelector { expression: expression.to_owned() }
            }
            Mismatch::Cel { class, error } => {
                Self::CelError { class: class.map(str::to_owned), error }
            }
            Mismatch::OtherNode => Self::OtherNode,
            Mismatch::NodeSelector(_, error) => Self::NodeSelector { error: error.to_string() },
            Mismatch::FeatureOff(feature) => Self::FeatureOff(feature),
            Mismatch::InUse => Self::InUse { by: holders() },
            // A taken device has a pick.
            Mismatch::Together => match state.pick_of(at.id).map(|pick| pick.target) {
                Some(target) => Self::TakenTogether {
                    claim: ClaimRef::of(claims[target.claim].claim),
                    request: target.name(),
                },
                None => Self::InUse { by: holders() },
            },
            Mismatch::Capacity(CapacityMismatch::Unknown(name)) => {
                Self::CapacityUnknown { name: name.to_owned() }
            }
            Mismatch::Capacity(CapacityMismatch::OutsidePolicy { name, wanted }) => {
                Self::CapacityOutsidePolicy { name: name.to_owned(), wanted }
            }
            Mismatch::Capacity(CapacityMismatch::Short { name, wanted, left }) => {
                Self::CapacityShort { name: name.to_owned(), wanted, left, by: holders() }
            }
            Mismatch::Counters(shortage) => {
                let Allocator { inventory, allocated, .. } = context.allocator;
                let remaining = context.allocator.remaining(at.generation);
                let (set, counter) = &remaining.pool_counters.names[shortage.counter];
                let notation = notation(context, at, set, counter);
                Self::CountersExhausted {
                    set: set.to_owned(),
                    counter: counter.to_owned(),
                    wanted: Quantity::from_nanos(shortage.wanted, notation),
                    left: Quantity::from_nanos(shortage.left, notation),
                    by: names(
                        remaining.consumers(shortage.counter, inventory, allocated).iter().copied(),
                    ),
                }
            }
            Mismatch::Taint(taint) => Self::Taint(taint.clone()),
            Mismatch::Rule(rule) => Self::Constraint(rule.clone()),
        }
    }
}

impl fmt::Display for DeviceMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClassSelector { class, expression } => {
                write!(f, "class {class} excludes it: {expression}")
            }
            Self::RequestSelector { expression } => {
                write!(f, "the request excludes it: {expression}")
            }
            Self::CelError { class, error } => {
                write!(f, "{}{error}", of_class(class.as_deref()))
            }
            Self::OtherNode => f.write_str("it is for other nodes"),
            Self::NodeSelector { error } => f.write_str(error),
            Self::FeatureOff(feature) => {
                write!(f, "it needs the feature {feature:?}, which is off")
            }
            Self::InUse { by } => write!(f, "in use by {}", list(by)),
            Self::TakenTogether { claim, request } => {
                write!(f, "the same pod has it for request {request} of {claim}")
            }
            Self::CapacityUnknown { name } => write!(f, "it has no capacity {name}"),
            Self::CapacityOutsidePolicy { name, wanted } => {
                write!(f, "its policy does not allow {wanted} of {name}")
            }
            Self::CapacityShort { name, wanted, left, by } => {
                write!(f, "{wanted} of {name} wanted, {left} left{}", held(by))
            }
            Self::CountersExhausted { set, counter, wanted, left, by } => {
                write!(f, "{wanted} of {counter} in {set} wanted, {left} left{}", held(by))
            }
            Self::Taint(taint) => {
                let effect = match taint.effect {
                    TaintEffect::None => "None",
                    TaintEffect::NoSchedule => "NoSchedule",
                    TaintEffect::NoExecute => "NoExecute",
                };
                let value = if taint.value.is_empty() { "" } else { "=" };
                write!(f, "tainted {}{value}{}:{effect}", taint.key, taint.value)
            }
            Self::Constraint(rule) => write!(f, "devices must {}", agreement(rule)),
            Self::PoolIncomplete => f.write_str("its pool is being updated"),
            Self::PoolInvalid(defect) => write!(f, "its pool is invalid: {defect}"),
        }
    }
}

/// The notation in which a device writes its draw from a counter.
fn notation(context: &NodeContext<'_, '_>, at: Candidate, set: &str, counter: &str) -> Notation {
    let mut consumes = context.published(at.device).device.consumes.iter();
    let drawn = consumes.find(|consumed| consumed.counter_set == set);
    let drawn = drawn.and_then(|consumed| consumed.counters.get(counter).copied());
    drawn.map_or(Notation::DecimalSi, Quantity::notation)
}

/// Names of claims, sorted, each once.
fn names<'c>(claims: impl Iterator<Item = &'c Claim>) -> Vec<ClaimRef> {
    claims.map(ClaimRef::of).collect::<BTreeSet<_>>().into_iter().collect()
}

fn list(claims: &[ClaimRef]) -> String {
    claims.iter().map(ClaimRef::to_string).collect::<Vec<_>>().join(", ")
}

fn held(by: &[ClaimRef]) -> String {
    if by.is_empty() { String::new() } else { format!(" beside {}", list(by)) }
}
