//! The word of a person about GPUs of a node: written to the spec of its `NodeHealth`, carried out by its agent.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use octavo_api::NodeHealth;
use octavo_api::names::HEALTH_ORDERS;
use octavo_api::node_health::{DeviceHealth, DeviceOrders, Order, OrderWord};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use super::facts::{dynamic, node};
use super::select::{devices, listed};
use super::{HealthError, words};
use crate::connect::Timeout;
use crate::error::ViewError;

/// How often an object that others change meanwhile is written again.
const TRIES: usize = 8;
/// How often the answer of an agent is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// An order that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// UUID of the GPU.
    pub uuid: String,
    /// Its name.
    pub gpu: String,
    /// Number of the order.
    pub number: i64,
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The order.
    pub order: Ordered,
    /// The GPU after it; `None` if its agent has not carried it out in time.
    pub gpu: Option<DeviceHealth>,
}

/// What has to be confirmed before a word is given to some GPUs of a node; `None` if nothing has.
pub fn question(health: &NodeHealth, gpus: &[DeviceHealth], word: OrderWord) -> Option<String> {
    let is_whole = gpus.len() == listed(health).len();
    if word != OrderWord::Retire && !is_whole {
        return None;
    }
    let names = gpus.iter().map(|gpu| gpu.name.as_str()).collect::<Vec<_>>().join(", ");
    let all = if is_whole { ", all its GPUs" } else { "" };
    let effect = match word {
        OrderWord::Fence => "They take no new pods until they are released.",
        OrderWord::Release => "They return without a test, retired ones after one.",
        OrderWord::Retire => "They stay out of service for good, unless they are released.",
    };
    let (word, node) = (words::api_name(word), health.name_any());
    Some(format!("{word} {names} of node {node}{all}? {effect} [y/N] "))
}

/// Writes orders for GPUs of a node; all if none is named. Orders of its other GPUs stay.
pub async fn order(
    client: &Client,
    name: &str,
    gpus: &[String],
    word: OrderWord,
    reason: &str,
) -> Result<Vec<Ordered>, ViewError> {
    let api = dynamic::<NodeHealth>(client);
    // Orders of an earlier call have the same field manager, and its apply is to have all of them.
    let params = PatchParams::apply(HEALTH_ORDERS).force();
    let mut refused = (409, String::new());
    for _ in 0..TRIES {
        let health = node(client, name).await?;
        let chosen = devices(&health, gpus)?;
        let (patch, ordered) = orders(&health, &chosen, word, reason);
        match api.patch(name, &params, &Patch::Apply(patch)).await {
            Ok(_) => return Ok(ordered),
            Err(kube::Error::Api(status)) => {
                refused = (status.code, status.message.clone());
                if status.code != 409 {
                    break;
                }
            }
            Err(error) => return Err(ViewError::api("nodehealths", error)),
        }
    }
    let (code, message) = refused;
    Err(HealthError::NotWritten { node: name.to_owned(), code, message }.into())
}

/// All orders of a node with new ones, as server-side apply takes them. The version keeps what others write at the same time.
fn orders(
    health: &NodeHealth,
    chosen: &[DeviceHealth],
    word: OrderWord,
    reason: &str,
) -> (Value, Vec<Ordered>) {
    let old = |uuid: &str| {
        let mut orders = health.spec.devices.iter().filter(|orders| orders.uuid == uuid);
        orders.find_map(|orders| orders.order.as_ref())
    };
    let ordered: Vec<Ordered> = chosen
        .iter()
        .map(|gpu| {
            let last = old(&gpu.uuid).map_or(0, |order| order.number).max(gpu.order);
            Ordered { uuid: gpu.uuid.clone(), gpu: gpu.name.clone(), number: last + 1 }
        })
        .collect();
    let kept = health.spec.devices.iter().filter_map(|orders| {
        let is_chosen = chosen.iter().any(|gpu| gpu.uuid == orders.uuid);
        let order = orders.order.clone().filter(|_| !is_chosen)?;
        Some((orders.uuid.clone(), order))
    });
    let new = ordered.iter().map(|ordered| {
        let order = Order { word, number: ordered.number, reason: Some(reason.to_owned()) };
        (ordered.uuid.clone(), order)
    });
    let devices: Vec<DeviceOrders> = kept
        .chain(new)
        .map(|(uuid, order)| DeviceOrders { uuid, order: Some(order), ..DeviceOrders::default() })
        .collect();
    let patch = json!({
        "apiVersion": NodeHealth::api_version(&()),
        "kind": NodeHealth::kind(&()),
        "metadata": {"name": health.name_any(), "resourceVersion": health.resource_version()},
        "spec": {"devices": devices},
    });
    (patch, ordered)
}

/// Waits until the agent has carried out the orders, up to a limit. A request that fails is repeated until then.
pub async fn wait(
    client: &Client,
    name: &str,
    ordered: Vec<Ordered>,
    limit: Timeout,
) -> Vec<Outcome> {
    let deadline = limit.0.map(|limit| Instant::now() + limit);
    let mut outcomes: Vec<Outcome> =
        ordered.into_iter().map(|order| Outcome { order, gpu: None }).collect();
    let finish = async {
        loop {
            if let Ok(health) = node(client, name).await {
                for outcome in &mut outcomes {
                    outcome.read(&health);
                }
            }
            if outcomes.iter().all(|outcome| outcome.gpu.is_some()) {
                break;
            }
            sleep(POLL_INTERVAL).await;
        }
    };
    match deadline {
        Some(deadline) => {
            // The orders that are open then are part of the answer.
            let _ = timeout_at(deadline, finish).await;
        }
        None => finish.await,
    }
    outcomes
}

impl Outcome {
    fn read(&mut self, health: &NodeHealth) {
        let gpus = health.status.iter().flat_map(|status| &status.devices);
        let mut done =
            gpus.filter(|gpu| gpu.uuid == self.order.uuid && gpu.order >= self.order.number);
        if let Some(gpu) = done.next() {
            self.gpu = Some(gpu.clone());
        }
    }
}
