//! Remedies of a node's GPUs: which may begin, and what became of them.

use std::collections::BTreeSet;
use std::time::Duration;

use octavo_health::remedy::Remedy;
use octavo_health::signal::{Attempt, Outcome, Report, Signal};
use octavo_health::state::State;
use octavo_health::unit::{DeviceId, Unit};

use super::NodeHealth;
use crate::health::record::Known;

impl NodeHealth {
    /// Ends the remedies that an earlier process or boot began. Whether they were applied is not known, so their tests decide: a remedy
    /// is never repeated blindly. A reboot has ended once the node has another boot. Until then it runs, within its limit.
    pub(super) fn end_interrupted(&mut self, is_new_boot: bool) {
        for (id, device) in &self.record.domain.devices {
            if let State::Resetting { remedy, .. } = device.track.state {
                if remedy.is_from_outside() && !is_new_boot {
                    self.begun.insert(device.track.attempt);
                    continue;
                }
                let (attempt, outcome) = (device.track.attempt, Outcome::Remedied);
                if !remedy.is_from_outside() {
                    self.ends.interrupted(attempt);
                }
                let report = Report::Outcome { attempt, outcome };
                // It counts as ended now: the time of its test runs from then.
                let signal = Signal { at: u64::MAX, unit: Unit::Device(*id), report };
                self.signals.push(signal);
            }
        }
    }

    /// The devices whose permit is of their next attempt, of the remedy that they need, and not older than a remedy may take: an older one
    /// has passed to another device. While the driver is gone a reboot alone may begin.
    pub(super) fn permitted(&self, now: u64) -> BTreeSet<DeviceId> {
        let is_permitted = |(uuid, known): &(&String, &Known)| {
            let Some(permit) = self.orders.permits.get(*uuid) else { return false };
            let device = self.record.domain.devices.get(&known.id);
            let track = device.map(|device| device.track).unwrap_or_default();
            (self.driver.is_none() || permit.remedy == Remedy::Reboot)
                && track.attempt == permit.after
                && now.saturating_sub(permit.since) < self.orders.policy.rules.limit
                && track.state.needs().is_none_or(|needs| needs == permit.remedy)
        };
        self.record.gpus.iter().filter(is_permitted).map(|(_, known)| known.id).collect()
    }

    /// The next remedy that is to begin: its number, what it is, and the UUIDs of the GPUs that it reaches. `None` unless the record
    /// says that it begins, so that a new agent does not begin it a second time.
    pub(crate) fn next_remedy(&mut self) -> Option<(Attempt, Remedy, Vec<String>)> {
        let applied = self
            .decisions
            .remedies
            .iter()
            // Another program applies those of a template. A new boot ends them, or their time limit.
            .filter(|applied| !self.orders.policy.by_template.contains(&applied.remedy))
            .find(|applied| !self.begun.contains(&applied.attempt))?;
        let (attempt, remedy) = (applied.attempt, applied.remedy);
        let reached = self.topology.devices(applied.unit);
        let known = self.record.gpus.iter().filter(|(_, known)| reached.contains(&known.id));
        let uuids = known.map(|(uuid, _)| uuid.clone()).collect();
        if !self.store() {
            return None;
        }
        self.begun.insert(attempt);
        Some((attempt, remedy, uuids))
    }

    /// A remedy that did not begin: the driver could not be closed. It is tried again.
    pub(crate) fn postponed(&mut self, attempt: Attempt) {
        self.begun.remove(&attempt);
    }

    /// Takes what became of a remedy, and how long it took.
    pub(crate) fn ended(&mut self, attempt: Attempt, outcome: Outcome, took: Duration, now: u64) {
        self.ends.timed(attempt, took);
        let report = || Report::Outcome { attempt, outcome };
        let ended =
            self.record.domain.devices.iter().filter(|(_, device)| device.track.attempt == attempt);
        let signals =
            ended.map(|(id, _)| Signal { at: now, unit: Unit::Device(*id), report: report() });
        self.signals.extend(signals);
    }
}
