//! What a signal changes.

use std::collections::BTreeSet;

use super::{Domain, Facts};
use crate::policy::Policy;
use crate::reason::Reason;
use crate::remedy::Remedy;
use crate::risk::Blame;
use crate::signal::{Observation, Report, Signal};
use crate::state::{Event, step};
use crate::unit::{DeviceId, Place, Unit};
use crate::verdict::{self, Reach, Verdict};

impl Domain {
    /// Takes one signal.
    pub(super) fn take(&mut self, policy: &Policy, facts: Facts<'_>, signal: &Signal) {
        // The clock of a node may be ahead.
        let at = signal.at.min(facts.now);
        let devices = facts.topology.devices(signal.unit);
        match &signal.report {
            Report::Word(word) => self.step_all(policy, facts, devices, Event::Word(*word), at),
            Report::RemediedByOthers => {
                self.step_all(policy, facts, devices, Event::RemediedByOthers, at);
            }
            Report::Outcome { attempt, outcome } => {
                let event = Event::Ended { attempt: *attempt, outcome: *outcome };
                self.step_all(policy, facts, devices, event, at);
            }
            Report::Observation(observation) => {
                self.note_readiness(signal.unit, observation);
                if let Observation::JobFailed { suspects } = observation {
                    let blame = Blame::one_of(u32::try_from(suspects.len()).unwrap_or(u32::MAX));
                    for device in suspects {
                        self.blame(policy, facts, *device, blame, at);
                    }
                }
                let verdict = verdict::of(observation, &policy.xid_classes);
                self.judge(policy, facts, signal.unit, observation, verdict, at);
            }
        }
    }

    /// Applies what an observation calls for.
    fn judge(
        &mut self,
        policy: &Policy,
        facts: Facts<'_>,
        unit: Unit,
        observation: &Observation,
        verdict: Verdict,
        at: u64,
    ) {
        let devices = facts.topology.devices(unit);
        let is_own = matches!(unit, Unit::Instance(_) | Unit::Device(_));
        match verdict {
            Verdict::Nothing => {}
            Verdict::Application { number } => {
                let Observation::Xid { job, .. } = observation else { return };
                for device in devices {
                    if self.jobs.note(*job, *device, at, policy.rules.repeat) {
                        let reason = Reason::RepeatedXid(number);
                        let event = Event::Suspected { reason, needs: Remedy::Test, is_own };
                        self.step(policy, facts, *device, event, at);
                    }
                }
            }
            Verdict::Watch { reason, is_failure } => {
                self.step_all(policy, facts, devices, Event::Warned(reason), at);
                if is_failure && is_own {
                    for device in devices {
                        self.blame(policy, facts, *device, Blame::WHOLE, at);
                    }
                }
            }
            Verdict::Suspect { reason, needs } => {
                let event = Event::Suspected { reason, needs, is_own };
                self.step_all(policy, facts, devices, event, at);
            }
            Verdict::Fence { reason, needs, reach } => {
                for device in devices {
                    let event = Event::Failed { reason, needs, is_own };
                    let is_new = self.step(policy, facts, *device, event, at);
                    if is_own && is_new {
                        self.blame(policy, facts, *device, Blame::WHOLE, at);
                    }
                }
                let others = match reach {
                    Reach::Island => others(facts, devices, |place| Unit::Island(place.island)),
                    // The rest of the node makes room once the remedy may begin, apart from clients.
                    Reach::Device | Reach::Node => return,
                };
                let event = Event::Failed { reason, needs, is_own: false };
                for device in others {
                    self.step(policy, facts, device, event, at);
                }
            }
        }
    }

    /// Steps a device. Returns whether it has just gone out of service.
    fn step(
        &mut self,
        policy: &Policy,
        facts: Facts<'_>,
        device: DeviceId,
        event: Event,
        at: u64,
    ) -> bool {
        let Some(known) = self.devices.get_mut(&device) else { return false };
        let before = known.track.state;
        known.track = step(&known.track, &policy.rules, event, at);
        let after = known.track.state;
        let is_new = before.may_run() && !after.may_run();
        let has_left = before.is_in_service() && !after.is_in_service();
        // Words and drains for a peer's remedy are no faults.
        let is_sign = match event {
            Event::Suspected { reason, .. } => reason != Reason::PeerRemedy,
            Event::Failed { .. } => true,
            _ => false,
        };
        if is_sign
            && (is_new || has_left)
            && let Some(place) = facts.topology.place(device)
        {
            self.breaker.note(place.node, at);
        }
        is_new
    }

    fn step_all(
        &mut self,
        policy: &Policy,
        facts: Facts<'_>,
        devices: &[DeviceId],
        event: Event,
        at: u64,
    ) {
        for device in devices {
            self.step(policy, facts, *device, event, at);
        }
    }

    /// Attributes a failure to a device. One in service is suspect once a move away from it pays. Only a new failure makes it so:
    /// time alone would send it to its test again and again.
    fn blame(
        &mut self,
        policy: &Policy,
        facts: Facts<'_>,
        device: DeviceId,
        blame: Blame,
        at: u64,
    ) {
        let Some(known) = self.devices.get_mut(&device) else { return };
        known.history.fail(&policy.risk, at, blame);
        let Some(drain) = policy.preventive_drain else { return };
        let score = known.history.score(&policy.risk, policy.watch.base, at);
        let probability = score.at_least.probability_within(drain.horizon);
        if known.track.state.is_in_service() && probability > drain.probability {
            let reason = Reason::HighRisk;
            let event = Event::Suspected { reason, needs: Remedy::Test, is_own: true };
            self.step(policy, facts, device, event, at);
        }
    }

    fn note_readiness(&mut self, unit: Unit, observation: &Observation) {
        match (unit, observation) {
            (Unit::Node(node), Observation::NodeReady(true)) => {
                self.not_ready.remove(&node);
            }
            (Unit::Node(node), Observation::NodeReady(false)) => {
                self.not_ready.insert(node);
            }
            _ => {}
        }
    }
}

/// The devices of the parts around some devices, without these.
fn others(
    facts: Facts<'_>,
    devices: &[DeviceId],
    around: impl Fn(&Place) -> Unit,
) -> BTreeSet<DeviceId> {
    let units: BTreeSet<Unit> =
        devices.iter().filter_map(|device| facts.topology.place(*device)).map(around).collect();
    let all = units.iter().flat_map(|unit| facts.topology.devices(*unit));
    all.filter(|device| !devices.contains(device)).copied().collect()
}
