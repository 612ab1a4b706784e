//! The health of a node's GPUs as its object in the API has it.

use jiff::Timestamp;
use octavo_api::node_health::DeviceHealth;
use octavo_gpu::Gpu;
use octavo_health::decide::{Device, Wait};
use octavo_health::risk::RiskClass;
use octavo_health::state::State;

use super::NodeHealth;
use super::record::Known;

impl NodeHealth {
    /// The GPUs of the node in the order given, and after them those that are missing.
    pub(crate) fn devices(&self, gpus: &[Gpu], now: u64) -> Vec<DeviceHealth> {
        let health = self.health();
        let there = gpus.iter().map(|gpu| &gpu.uuid);
        let is_missing = |(uuid, known): &(&String, &Known)| {
            self.topology.place(known.id).is_some() && gpus.iter().all(|gpu| gpu.uuid != **uuid)
        };
        let missing = self.record.gpus.iter().filter(is_missing).map(|(uuid, _)| uuid);
        let shown = there.chain(missing).filter_map(|uuid| {
            let known = self.record.gpus.get(uuid)?;
            let device = self.record.domain.devices.get(&known.id).cloned().unwrap_or_default();
            let message = health.get(uuid).map(super::GpuState::message);
            Some(DeviceHealth { message, ..self.device(uuid, known, &device, now) })
        });
        shown.collect()
    }

    fn device(&self, uuid: &str, known: &Known, device: &Device, now: u64) -> DeviceHealth {
        let (state, place) = (device.track.state, self.topology.place(known.id));
        let (policy, history) = (&self.orders.policy, &device.history);
        let score = history.score(&policy.risk, policy.watch.base, now);
        let class = RiskClass::of(score, policy.watch.base);
        DeviceHealth {
            uuid: uuid.to_owned(),
            name: known.name.clone(),
            state: state.name().to_owned(),
            reason: state.reason().map(|reason| reason.name().to_owned()),
            message: None,
            since: time(device.track.since),
            needs: state.needs(),
            remedy: match state {
                State::Resetting { remedy, .. } => Some(remedy),
                _ => None,
            },
            waits: self.decisions.waits.get(&known.id).copied().map(Wait::name).map(str::to_owned),
            attempt: i64::try_from(device.track.attempt.0).unwrap_or(i64::MAX),
            order: known.order,
            island: place.map_or(0, |place| place.island.into()),
            resets_alone: place.is_some_and(|place| place.resets_alone),
            occupied: self.occupied.contains(&known.id) || self.orders.held.contains(uuid),
            risk: (class != RiskClass::Usual).then(|| class.name().to_owned()),
            record: (*device != Device::default())
                .then(|| serde_json::to_value(device).unwrap_or_default()),
        }
    }
}

/// A time as the API has it. The origin of all times is that of Unix.
fn time(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}
