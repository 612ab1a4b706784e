//! Decides what to do with the devices of a domain: states, taints, remedies, tests, evictions.
//!
//! ```text
//! signals --intake--> states, histories, breaker --schedule--> remedies and tests that begin --> Decisions
//! ```
//!
//! [`Domain`] is all that is remembered. [`Decisions`] are what should be now, not what changed: a caller compares them with
//! what is, and may repeat them.

mod decisions;
mod idle;
mod intake;
mod jobs;
mod restored;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use decisions::{Applied, Decisions, Fence, Running, Wait};

use crate::budget::Breaker;
use crate::policy::Policy;
use crate::reason::Reason;
use crate::risk::History;
use crate::signal::Signal;
use crate::state::{Event, State, Track, step};
use crate::unit::{DeviceId, Topology};
use jobs::Jobs;

/// What is remembered of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device {
    /// Its state.
    pub track: Track,
    /// Its history, for its risk. The caller adds time at work ([`History::expose`]) and repairs of hardware
    /// ([`History::repaired`]): a reset repairs none.
    pub history: History,
    /// Since when its pods are being evicted, in seconds; `None` if they are not.
    pub evicts_since: Option<u64>,
}

/// What is remembered of a domain: the devices that share a budget and a circuit breaker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Domain {
    /// Its devices. A device that leaves the topology stays, since its fence must not be lost.
    pub devices: BTreeMap<DeviceId, Device>,
    /// Errors of applications.
    jobs: Jobs,
    /// How many remedies and tests began.
    attempts: u64,
    /// The circuit breaker.
    breaker: Breaker,
    /// Nodes that are not ready.
    not_ready: BTreeSet<u32>,
    /// Nodes that lose pods for other reasons than their devices' health. They use the budget of evictions, too.
    #[serde(skip)]
    disturbed: BTreeSet<u32>,
    /// Whether no permit comes now.
    #[serde(skip)]
    are_permits_stopped: bool,
}

/// What is so at the moment.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The time, in seconds. It may go backwards; nothing ends early then.
    pub now: u64,
    /// The devices and the parts around them.
    pub topology: &'a Topology,
    /// Devices that have clients: processes, monitors among them.
    pub occupied: &'a BTreeSet<DeviceId>,
    /// Devices whose remedy may begin, as another decided that keeps the budget of all nodes; `None` if this domain keeps it.
    pub permitted: Option<&'a BTreeSet<DeviceId>>,
    /// Devices whose test cannot be tried now; `None` if there are none.
    pub untestable: Option<&'a BTreeSet<DeviceId>>,
    /// Devices on nodes where a pod saves its work, and has time for it: their clients are not stuck; `None` if there are none.
    pub saving: Option<&'a BTreeSet<DeviceId>>,
}

impl Device {
    /// Lets time pass. A healthy device whose history makes a failure likely is watched.
    fn pass(&mut self, policy: &Policy, now: u64) {
        self.track = step(&self.track, &policy.rules, Event::Time, now);
        if self.track.state != State::Healthy {
            return;
        }
        let score = self.history.score(&policy.risk, policy.watch.base, now);
        let probability = score.at_least.probability_within(policy.watch.horizon);
        if probability >= policy.watch.probability {
            let event = Event::Warned(Reason::HighRisk);
            self.track = step(&self.track, &policy.rules, event, now);
        }
    }
}

impl Domain {
    /// Takes what was reported since the last call, in order, and decides. Signals of unknown parts change nothing.
    pub fn decide(&mut self, policy: &Policy, facts: Facts<'_>, signals: &[Signal]) -> Decisions {
        for (device, _) in facts.topology.places() {
            self.devices.entry(device).or_default();
        }
        for signal in signals {
            self.take(policy, facts, signal);
        }
        for device in self.devices.values_mut() {
            device.pass(policy, facts.now);
        }
        self.breaker.update(&policy.breaker, facts.topology.nodes(), facts.now);
        let waits = self.begin(policy, facts);
        self.evict(policy, facts);
        self.decisions(policy, facts, waits)
    }

    /// Whether the circuit breaker stops remedies.
    pub fn is_storm(&self, now: u64) -> bool {
        self.breaker.is_open(now)
    }

    /// Sets whether permits of another program do not come now, as in a storm. Then no peer makes room for a remedy that waits for one.
    pub fn stop_permits(&mut self, are_stopped: bool) {
        self.are_permits_stopped = are_stopped;
    }

    /// Forgets a device that does not exist any more.
    pub fn forget(&mut self, device: DeviceId) {
        self.devices.remove(&device);
    }
}

#[cfg(test)]
mod tests;
