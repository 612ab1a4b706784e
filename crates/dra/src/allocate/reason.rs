//! Why a request cannot have a device, in words.

use std::collections::BTreeSet;
use std::fmt;

use super::Allocator;
use super::capacity::CapacityMiss;
use super::obstacle::Obstacle;
use super::plan::ClaimPlan;
use super::refusal::{ClaimRef, agreement, of_class};
use super::scene::{Candidate, Scene};
use super::tentative::Tentative;
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
pub enum Reason {
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
    /// The device's slice selects nodes in an unsound way.
    NodeSelector {
        /// What is wrong.
        error: String,
    },
    /// The device needs a feature that is off in the cluster.
    FeatureOff(Feature),
    /// Other claims have it.
    InUse {
        /// The claims, by name.
        by: Vec<ClaimRef>,
    },
    /// The same pod has it for another request.
    TakenTogether {
        /// Its claim.
        claim: ClaimRef,
        /// `<request>` or `<request>/<alternative>`.
        request: String,
    },
    /// It has no capacity of this name.
    CapacityUnknown {
        /// The name that was asked for.
        name: String,
    },
    /// The policy of a capacity does not allow the amount.
    CapacityOutsidePolicy {
        /// Name of the capacity.
        name: String,
        /// What would be taken.
        wanted: Quantity,
    },
    /// Too little is left of a capacity.
    CapacityShort {
        /// Name of the capacity.
        name: String,
        /// What would be taken.
        wanted: Quantity,
        /// What is left.
        left: Quantity,
        /// The claims that have parts, by name.
        by: Vec<ClaimRef>,
    },
    /// Too little is left in a counter of the pool.
    CountersExhausted {
        /// Name of the counter set.
        set: String,
        /// Name of the counter.
        counter: String,
        /// What would be drawn.
        wanted: Quantity,
        /// What is left.
        left: Quantity,
        /// The claims whose devices draw from it, by name.
        by: Vec<ClaimRef>,
    },
    /// A taint that is not tolerated.
    Taint(DeviceTaint),
    /// A constraint does not hold: the attribute is not there, or not as the devices chosen before
    /// need it.
    Constraint(Rule),
    /// Slices of its pool are missing.
    PoolIncomplete,
    /// Its pool contradicts itself.
    PoolInvalid(PoolDefect),
}

impl Reason {
    /// Puts an obstacle into words that stand by themselves.
    pub(super) fn new<'s, 'a: 's>(
        obstacle: Obstacle<'s>,
        scene: &Scene<'s, 'a>,
        claims: &[ClaimPlan<'s>],
        state: &Tentative<'s, 'a>,
        at: Candidate,
    ) -> Self {
        let holders = || {
            let holding = scene.allocator.holdings.of(at.id);
            names(holding.into_iter().flat_map(|holding| holding.claims.iter().copied()))
        };
        match obstacle {
            Obstacle::Selector { class: Some(class), expression } => {
                Self::ClassSelector { class: class.to_owned(), expression: expression.to_owned() }
            }
            Obstacle::Selector { class: None, expression } => {
                Self::RequestSelector { expression: expression.to_owned() }
            }
            Obstacle::Cel { class, error } => {
                Self::CelError { class: class.map(str::to_owned), error }
            }
            Obstacle::OtherNode => Self::OtherNode,
            Obstacle::NodeSelector(_, error) => Self::NodeSelector { error: error.to_string() },
            Obstacle::FeatureOff(feature) => Self::FeatureOff(feature),
            Obstacle::InUse => Self::InUse { by: holders() },
            // What is taken has a taker.
            Obstacle::Together => match state.taker(at.id).map(|pick| pick.place) {
                Some(place) => Self::TakenTogether {
                    claim: ClaimRef::of(claims[place.claim].claim),
                    request: place.name(),
                },
                None => Self::InUse { by: holders() },
            },
            Obstacle::Capacity(CapacityMiss::Unknown(name)) => {
                Self::CapacityUnknown { name: name.to_owned() }
            }
            Obstacle::Capacity(CapacityMiss::OutsidePolicy { name, wanted }) => {
                Self::CapacityOutsidePolicy { name: name.to_owned(), wanted }
            }
            Obstacle::Capacity(CapacityMiss::Short { name, wanted, left }) => {
                Self::CapacityShort { name: name.to_owned(), wanted, left, by: holders() }
            }
            Obstacle::Counters(miss) => {
                let Allocator { inventory, holdings, .. } = scene.allocator;
                let supply = scene.allocator.supply(at.edition);
                let (set, counter) = &supply.meter.names[miss.counter];
                let notation = notation(scene, at, set, counter);
                Self::CountersExhausted {
                    set: set.to_owned(),
                    counter: counter.to_owned(),
                    wanted: Quantity::from_nanos(miss.wanted, notation),
                    left: Quantity::from_nanos(miss.left, notation),
                    by: names(supply.drawers(miss.counter, inventory, holdings).iter().copied()),
                }
            }
            Obstacle::Taint(taint) => Self::Taint(taint.clone()),
            Obstacle::Rule(rule) => Self::Constraint(rule.clone()),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClassSelector { class, expression } => {
                write!(f, "class {class} does not want it: {expression}")
            }
            Self::RequestSelector { expression } => {
                write!(f, "the request does not want it: {expression}")
            }
            Self::CelError { class, error } => {
                write!(f, "{}{error}", of_class(class.as_deref()))
            }
            Self::OtherNode => f.write_str("it is for other nodes"),
            Self::NodeSelector { error } => f.write_str(error),
            Self::FeatureOff(feature) => write!(f, "it needs {feature:?}, which is off"),
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

/// How a device writes what it draws from a counter.
fn notation(scene: &Scene<'_, '_>, at: Candidate, set: &str, counter: &str) -> Notation {
    let mut consumes = scene.published(at.device).device.consumes.iter();
    let drawn = consumes.find(|consumed| consumed.counter_set == set);
    let drawn = drawn.and_then(|consumed| consumed.counters.get(counter).copied());
    drawn.map_or(Notation::DecimalSi, Quantity::notation)
}

/// Names of claims in order, each once.
fn names<'c>(claims: impl Iterator<Item = &'c Claim>) -> Vec<ClaimRef> {
    claims.map(ClaimRef::of).collect::<BTreeSet<_>>().into_iter().collect()
}

fn list(claims: &[ClaimRef]) -> String {
    claims.iter().map(ClaimRef::to_string).collect::<Vec<_>>().join(", ")
}

fn held(by: &[ClaimRef]) -> String {
    if by.is_empty() { String::new() } else { format!(" beside {}", list(by)) }
}
