//! What agents report of their nodes, and what they were ordered.

use std::sync::Arc;

use octavo_api::NodeHealth;
use octavo_api::checkpoint::{CheckpointReport, CheckpointRequest};
use octavo_api::node_health::{DeviceHealth, DeviceOrders, Permit};
use octavo_health::decide::Device as Record;
use octavo_health::state::State;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Fact, Version, seconds, version};
use crate::health::plan::{Eviction, Urgency};
use crate::seen::{Seen, each};

/// What an agent reports of its node, and what it was ordered.
#[derive(Clone, Debug, Default)]
pub struct HealthFacts {
    /// The version of the object.
    pub version: Version,
    /// Devices.
    pub devices: Vec<DeviceFacts>,
    /// Orders of the controller.
    pub orders: Vec<OrderFacts>,
    /// Pods that the controller asks to save their work.
    pub requests: Vec<CheckpointRequest>,
    /// What became of these.
    pub reports: Vec<CheckpointReport>,
}

/// A device as its agent reports it.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    /// UUID of the GPU. Its orders have the same allocation.
    pub uuid: Arc<str>,
    /// Its name in slices.
    pub name: String,
    /// All that is remembered of it, or why that cannot be read.
    pub record: Result<Record, String>,
    /// Its NVLink island, within the node.
    pub island: i64,
    /// Whether it can be reset while others of its island run.
    pub resets_alone: bool,
    /// Whether it has clients.
    pub is_occupied: bool,
}

/// What the controller ordered for a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrderFacts {
    /// UUID of the GPU.
    pub uuid: Arc<str>,
    /// The remedy that is allowed.
    pub permit: Option<Permit>,
    /// Since when its pods are evicted, in seconds since 1970.
    pub evicts_since: Option<u64>,
    /// The copy of its record.
    pub copy: Option<Record>,
}

/// The health of a node, without the parts that matter to people.
pub type SeenHealth = Seen<NodeHealth, SeenOrders, SeenReport>;

/// What was ordered. A device that this version cannot read is no obstacle to the others.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SeenOrders {
    #[serde(default, deserialize_with = "all_orders")]
    devices: Vec<OrderFacts>,
    #[serde(default, deserialize_with = "readable")]
    checkpoints: Vec<CheckpointRequest>,
}

/// What the agent reports. A device that this version cannot read is no obstacle to the others.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SeenReport {
    #[serde(default, deserialize_with = "all_devices")]
    devices: Vec<DeviceFacts>,
    #[serde(default, deserialize_with = "readable")]
    checkpoints: Vec<CheckpointReport>,
}

fn all_orders<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<OrderFacts>, D::Error> {
    each(deserializer, orders)
}

fn all_devices<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<DeviceFacts>, D::Error> {
    each(deserializer, device)
}

fn readable<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    each(deserializer, |item| T::deserialize(item).ok())
}

/// The health of a node.
pub fn health(object: SeenHealth) -> Fact {
    Fact::Health(HealthFacts::of(object))
}

impl HealthFacts {
    /// What matters of an object.
    pub fn of(object: SeenHealth) -> Self {
        let SeenHealth { metadata, spec, status, .. } = object;
        let mut facts = Self {
            version: version(&metadata),
            devices: status.devices,
            orders: spec.devices,
            requests: spec.checkpoints,
            reports: status.checkpoints,
        };
        for orders in &mut facts.orders {
            let device = facts.devices.iter().find(|device| device.uuid == orders.uuid);
            if let Some(device) = device {
                orders.uuid = Arc::clone(&device.uuid);
            }
        }
        facts
    }

    /// Whether pods still leave a device: that is ordered, and its record says that they are to.
    pub fn evicts(&self, eviction: &Eviction) -> bool {
        self.left(eviction).any(|known| {
            let orders = self.orders.iter().find(|orders| orders.uuid == known.uuid);
            orders.is_some_and(|orders| orders.evicts_since.is_some())
        })
    }

    /// Whether pods still are to leave a device by its record, also before that is ordered.
    pub fn is_to_be_left(&self, eviction: &Eviction) -> bool {
        self.left(eviction).next().is_some()
    }

    /// Since when a device is in its state, by its record.
    pub fn since(&self, device: &str) -> Option<u64> {
        let known = self.devices.iter().find(|known| known.name == device)?;
        Some(known.record.as_ref().ok()?.track.since)
    }

    /// The device of an eviction, if pods are to leave it by its record.
    fn left<'a>(&'a self, eviction: &'a Eviction) -> impl Iterator<Item = &'a DeviceFacts> {
        let is_left = move |state: State| match eviction.urgency {
            Urgency::AtCheckpoint => !state.is_in_service(),
            Urgency::Evicted | Urgency::Deleted => !state.may_run(),
        };
        self.devices.iter().filter(move |known| {
            let record = known.record.as_ref();
            known.name == eviction.device && record.is_ok_and(|it| is_left(it.track.state))
        })
    }
}

fn device(value: &Value) -> Option<DeviceFacts> {
    let text = |name: &str| value.get(name)?.as_str().map(str::to_owned);
    let record = match value.get("record") {
        Some(record) => Record::deserialize(record).map_err(|error| error.to_string()),
        // Of a device that always was well there is nothing to remember.
        None if text("state").as_deref() == Some(State::Healthy.name()) => Ok(Record::default()),
        None => Err("there is none".to_owned()),
    };
    let read = DeviceHealth::deserialize(value);
    let problem = read.as_ref().err().map(ToString::to_string);
    let read = read.unwrap_or_default();
    Some(DeviceFacts {
        uuid: text("uuid")?.into(),
        name: text("name").unwrap_or_default(),
        record: match problem {
            Some(problem) => Err(problem),
            None => record,
        },
        island: read.island,
        resets_alone: read.resets_alone,
        is_occupied: read.occupied,
    })
}

fn orders(value: &Value) -> Option<OrderFacts> {
    // Of what cannot be read nothing was ordered.
    let orders = DeviceOrders::deserialize(value).ok()?;
    Some(OrderFacts {
        uuid: orders.uuid.into(),
        permit: orders.permit,
        evicts_since: orders.evicts_since.as_deref().and_then(seconds),
        copy: orders.history.and_then(|record| serde_json::from_value(record).ok()),
    })
}
