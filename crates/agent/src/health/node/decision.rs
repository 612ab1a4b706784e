//! A decision upon what came since the last one.

use std::collections::BTreeSet;

use octavo_health::decide::Facts;
use octavo_health::policy::Mode;
use octavo_health::reason::Reason;
use octavo_health::remedy::Remedy;
use octavo_health::signal::Signal;
use octavo_health::state::State;
use octavo_health::unit::DeviceId;

use super::NodeHealth;
use super::ends::Runs;
use crate::health::record::Known;

/// Most rounds of one decision: a test that ends at once lets the next begin.
const ROUNDS: usize = 4;

impl NodeHealth {
    /// Decides upon what came since the last decision. `is_used` says whether processes use a GPU, and is asked where that matters.
    pub(crate) fn decide(&mut self, now: u64, is_used: impl Fn(&str) -> bool) {
        self.resume_tests(now);
        self.find_nic_faults(now);
        // Claims without processes hinder what uses a GPU. A test by what the driver says disturbs none.
        let holds = |uuid: &String| self.needs_idle_gpus() && self.orders.held.contains(uuid);
        // The process on a GPU under test is the test.
        let is_used = |uuid: &String, known: &Known| !self.is_under_test(known.id) && is_used(uuid);
        let concerned = self.concerned();
        let is_occupied = |(uuid, known): &(&String, &Known)| {
            concerned.contains(&known.id) && (holds(uuid) || is_used(uuid, known))
        };
        let occupied = self.record.gpus.iter().filter(is_occupied).map(|(_, known)| known.id);
        self.occupied = occupied.collect();
        self.record.domain.stop_permits(self.orders.stops.is_stopped(now));
        for _ in 0..ROUNDS {
            let signals = std::mem::take(&mut self.signals);
            let permitted = self.permitted(now);
            let untestable = self.untestable(now);
            let facts = Facts {
                now,
                topology: &self.topology,
                occupied: &self.occupied,
                permitted: Some(&permitted),
                untestable: Some(&untestable),
                // The controller permits nothing meanwhile.
                saving: None,
            };
            let before = Runs::of(&self.record.domain);
            self.decisions = self.record.domain.decide(&self.orders.policy, facts, &signals);
            self.note_ends(&before, &signals, now);
            self.end_tests(now);
            if self.signals.is_empty() {
                break;
            }
        }
        if let Some(note) = self.read_to.take() {
            self.record.kernel_log = Some(note);
        }
    }

    /// Devices of which it matters if processes use them: something is to be done once they are idle, or may be after this decision.
    fn concerned(&self) -> BTreeSet<DeviceId> {
        // A driver is asked for processes no more often than needed: of a GPU on watch only before a reset for a row remap.
        let waits = |device: DeviceId| {
            let known = self.record.domain.devices.get(&device);
            known.is_some_and(|known| match known.track.state {
                State::Watch { reason } => {
                    reason == Reason::RemapPending && self.orders.policy.mode == Mode::Act
                }
                State::Healthy | State::Probation | State::Retired { .. } => false,
                _ => true,
            })
        };
        let is_reported = |device| {
            let reaches = |signal: &Signal| self.topology.devices(signal.unit).contains(&device);
            self.signals.iter().any(reaches)
        };
        let concerned = self
            .topology
            .places()
            .filter(|(device, _)| waits(*device) || is_reported(*device))
            // A reset may reach the island, and a reboot reaches the node.
            .flat_map(|(device, place)| {
                let known = self.record.domain.devices.get(&device);
                let needs = known.and_then(|known| known.track.state.needs());
                let remedy = needs.unwrap_or(Remedy::Test).max(Remedy::ResetFunction);
                self.topology.devices(remedy.reach(device, place))
            });
        concerned.copied().collect()
    }
}
