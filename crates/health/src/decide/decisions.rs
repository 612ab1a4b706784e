//! What should be, as a view of the states.

use std::collections::BTreeMap;

use super::{Domain, Facts};
use crate::policy::{Mode, Policy};
use crate::reason::Reason;
use crate::remedy::Remedy;
use crate::signal::Attempt;
use crate::state::{Effect, State};
use crate::unit::{DeviceId, Unit};

/// What should be now. All lists are in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Taints. A device that is not here has none of health's.
    pub fences: BTreeMap<DeviceId, Fence>,
    /// Devices whose pods should leave at their next checkpoint or end.
    pub drains: Vec<DeviceId>,
    /// Devices whose pods are to be evicted. Kubernetes does so for pods with claims, by the taint. Pods that have the device as
    /// an extended resource are the caller's to evict.
    pub evictions: Vec<DeviceId>,
    /// Remedies that run or are to begin.
    pub remedies: Vec<Applied>,
    /// Tests that run or are to begin.
    pub tests: Vec<Running>,
    /// Why devices wait for their remedy or test.
    pub waits: BTreeMap<DeviceId, Wait>,
}

/// The taint of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The state behind it.
    pub state: State,
    /// Its effect.
    pub effect: Effect,
    /// Why; `None` on probation.
    pub reason: Option<Reason>,
}

/// A remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its number, which its outcome repeats.
    pub attempt: Attempt,
    /// Which.
    pub remedy: Remedy,
    /// The part that it is applied to.
    pub unit: Unit,
    /// The devices that it is to bring back. No device of the part has clients, but for a remedy from outside the node: clients that
    /// eviction did not end in time are ended by it.
    pub devices: Vec<DeviceId>,
}

/// A test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its number, which its outcome repeats.
    pub attempt: Attempt,
    /// Of which device.
    pub device: DeviceId,
    /// Its length, in seconds.
    pub seconds: u64,
}

/// Why a device waits for its remedy or test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// The policy only observes.
    Observe,
    /// The policy leaves remedies to a person.
    Person,
    /// The controller, which keeps the budget of all nodes, has not permitted the remedy yet.
    Permit,
    /// An operator fenced it, or a device that the remedy reaches.
    Operator,
    /// Many nodes failed at once.
    Storm,
    /// A device that the remedy reaches, or one that reaches this, needs a harsher one.
    HarsherRemedy,
    /// Its node is not ready.
    NodeNotReady,
    /// A remedy or test runs in its island.
    Island,
    /// As many remedies run as the budget allows.
    Budget,
    /// It, or a device that the remedy reaches, has clients.
    Clients,
    /// Its test could not be tried of late, or cannot be.
    TestNotPossible,
}

impl Wait {
    /// Name in conditions and labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Observe => "ObserveOnly",
            Self::Person => "RemedyByPerson",
            Self::Permit => "Permit",
            Self::Operator => "Operator",
            Self::Storm => "Storm",
            Self::HarsherRemedy => "HarsherRemedy",
            Self::NodeNotReady => "NodeNotReady",
            Self::Island => "IslandBusy",
            Self::Budget => "Budget",
            Self::Clients => "Clients",
            Self::TestNotPossible => "TestNotPossible",
        }
    }
}

impl Domain {
    /// What should be, given why devices wait.
    pub(super) fn decisions(
        &self,
        policy: &Policy,
        facts: Facts<'_>,
        waits: BTreeMap<DeviceId, Wait>,
    ) -> Decisions {
        let mut decisions = Decisions { waits, ..Decisions::default() };
        for (device, known) in &self.devices {
            let state = known.track.state;
            let Some(effect) = state.effect(known.evicts_since.is_some()) else { continue };
            let effect = if policy.mode == Mode::Observe { Effect::None } else { effect };
            let fence = Fence { state, effect, reason: state.reason() };
            decisions.fences.insert(*device, fence);
            if policy.mode == Mode::Observe {
                continue;
            }
            let is_occupied = facts.occupied.contains(device);
            if is_occupied && known.evicts_since.is_some() {
                decisions.evictions.push(*device);
            } else if is_occupied && !state.is_in_service() {
                decisions.drains.push(*device);
            }
            if let State::Verifying { .. } = state {
                let seconds = known.track.test_length(&policy.rules);
                decisions.tests.push(Running {
                    attempt: known.track.attempt,
                    device: *device,
                    seconds,
                });
            }
        }
        if policy.mode == Mode::Act {
            let remedies = self.remedies(facts).into_iter();
            decisions.remedies.extend(remedies.map(|((unit, remedy, attempt), devices)| Applied {
                attempt,
                remedy,
                unit,
                devices,
            }));
        }
        decisions
    }
}
