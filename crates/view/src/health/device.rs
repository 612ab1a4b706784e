//! All that is known of the health of one GPU, in sentences.

mod advice;
mod text;

use jiff::Timestamp;
use kube::ResourceExt;
use octavo_api::NodeHealth;
use octavo_api::health_policy::TimesSpec;
use octavo_api::node_health::{DeviceHealth, DeviceOrders, OrderWord, Permit};
use octavo_health::decide::Device as Record;
use octavo_health::remedy::Remedy;
use serde::Serialize;

pub use text::{DeviceTextOptions, render};

use self::advice::Case;
use super::HealthError;
use super::facts::HealthFacts;
use super::report::GpuHealth;
use super::select::is_meant;
use super::words::api_name;
use crate::snapshot::{ClusterSnapshot, Gap, Holder, Holders};
use crate::usage::{self, natural_sort_key};

/// The GPU that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A GPU of a node, by name, index or UUID.
    OnNode {
        /// The node.
        node: String,
        /// The GPU.
        gpu: String,
    },
    /// A GPU of any node.
    Uuid(String),
}

/// What is known of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceReport {
    /// What its agent says, and by which policy it decides.
    #[serde(flatten)]
    pub health: GpuHealth,
    /// Product, if the GPU is published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Other GPUs that a reset of this one reaches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reset_reaches: Vec<String>,
    /// What is remembered of it; absent if there is no record that this version reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// Why the record cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_problem: Option<String>,
    /// The last word of a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_order: Option<GivenOrder>,
    /// The remedy that the controller permits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit: Option<Permit>,
    /// Since when the controller evicts its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evicts_since: Option<String>,
    /// Claims that hold it or a part of it, with their pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
    /// What happens next.
    pub next: Vec<String>,
    /// What a person can do.
    pub options: Vec<String>,
    /// Objects that the user may not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// What is remembered of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// When it last returned to service after a fault of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returned: Option<String>,
    /// Faults of its own soon after a return, in a row.
    pub relapses: u32,
    /// Whether it had a fault of its own since it was last in service.
    pub has_failed: bool,
    /// Whether a person fenced it, so that only a person returns it.
    pub is_held: bool,
    /// The harshest remedy since it was last in service.
    pub tried: Remedy,
    /// Why it retires once the remedy that runs has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retires: Option<String>,
    /// Failures that are attributed to it, in thousandths. Older ones count less.
    pub blame_milli: u64,
}

/// The word of a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GivenOrder {
    /// The word.
    pub word: OrderWord,
    /// Its number.
    pub number: i64,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the agent has carried it out.
    pub is_done: bool,
}

/// Reads `NODE/GPU`, `NODE GPU` or a UUID.
pub fn name(words: &[String]) -> Result<Name, HealthError> {
    let unclear = || HealthError::NoName { words: words.join(" ") };
    let (node, gpu) = match words {
        [node, gpu] => (node.as_str(), gpu.as_str()),
        [word] if word.starts_with("GPU-") && !word.contains('/') => {
            return Ok(Name::Uuid(word.clone()));
        }
        [word] => word.split_once('/').ok_or_else(unclear)?,
        _ => return Err(unclear()),
    };
    if node.is_empty() || gpu.is_empty() || node.contains('/') || gpu.contains('/') {
        return Err(unclear());
    }
    Ok(Name::OnNode { node: node.to_owned(), gpu: gpu.to_owned() })
}

/// Describes a GPU. The snapshot has claims and slices, for what holds the GPU.
pub fn describe(
    facts: &HealthFacts,
    snapshot: &ClusterSnapshot,
    name: &Name,
) -> Result<DeviceReport, HealthError> {
    let (health, gpu) = find(facts, name)?;
    let node = health.name_any();
    let status = health.status.as_ref();
    let policy = status.and_then(|status| status.policy.as_ref());
    let in_force = policy.and_then(|policy| facts.policies.get(&policy.name));
    let times = in_force.map_or_else(TimesSpec::default, |policy| policy.spec.times);
    let orders = health.spec.devices.iter().find(|orders| orders.uuid == gpu.uuid);
    let use_of = usage::gpus_with_mig_mode(snapshot, &Holders::of(snapshot));
    let use_of = use_of.into_iter().find(|row| row.uuid.as_ref() == Some(&gpu.uuid));
    let holders = use_of.as_ref().map(|row| row.holders.clone()).unwrap_or_default();
    let (history, record_problem) = match gpu.record.as_ref().map(History::read) {
        None => (None, None),
        Some(Ok(history)) => (Some(history), None),
        Some(Err(problem)) => (None, Some(problem)),
    };
    let given_order = orders.and_then(|orders| GivenOrder::of(orders, gpu));
    let stopped_until =
        in_force.and_then(|policy| policy.status.as_ref()?.breaker_open_until.as_deref());
    let case = Case {
        node: &node,
        gpu,
        times,
        history: history.as_ref(),
        order: given_order.as_ref(),
        evicts: orders.is_some_and(|orders| orders.evicts_since.is_some()),
        stopped_until,
        is_held: !holders.is_empty(),
    };
    let (next, options) = (case.next(), case.options());
    let mut row = GpuHealth::new(&node, gpu.clone());
    row.policy = policy.map(|policy| policy.name.clone());
    row.mode = policy.map(|policy| api_name(policy.mode));
    Ok(DeviceReport {
        health: row,
        product: use_of.and_then(|row| row.product),
        reset_reaches: peers(health, gpu),
        history,
        record_problem,
        given_order,
        permit: orders.and_then(|orders| orders.permit.clone()),
        evicts_since: orders.and_then(|orders| orders.evicts_since.clone()),
        holders,
        next,
        options,
        gaps: facts.gaps.iter().chain(&snapshot.gaps).cloned().collect(),
    })
}

fn find<'a>(
    facts: &'a HealthFacts,
    name: &Name,
) -> Result<(&'a NodeHealth, &'a DeviceHealth), HealthError> {
    let gpus = |health: &'a NodeHealth| health.status.iter().flat_map(|status| &status.devices);
    match name {
        Name::OnNode { node, gpu } => {
            let health = facts.nodes.get(node).ok_or_else(|| facts.no_node(node))?;
            match gpus(health).find(|found| is_meant(found, gpu)) {
                Some(found) => Ok((health, found)),
                None => Err(super::select::unknown(health, gpu)),
            }
        }
        Name::Uuid(_) if !facts.is_defined => Err(HealthError::NoDefinition),
        Name::Uuid(uuid) => {
            let mut found = facts.nodes.values().filter_map(|health| {
                Some((health, gpus(health).find(|found| found.uuid == *uuid)?))
            });
            found.next().ok_or_else(|| HealthError::NoUuid { uuid: uuid.clone() })
        }
    }
}

/// Other GPUs that a reset of a GPU reaches.
fn peers(health: &NodeHealth, gpu: &DeviceHealth) -> Vec<String> {
    if gpu.resets_alone {
        return Vec::new();
    }
    let all = health.status.iter().flat_map(|status| &status.devices);
    let peers = all.filter(|other| other.island == gpu.island && other.uuid != gpu.uuid);
    let mut peers: Vec<String> = peers.map(|other| other.name.clone()).collect();
    peers.sort_by_cached_key(|name| natural_sort_key(name));
    peers
}

impl History {
    fn read(record: &serde_json::Value) -> Result<Self, String> {
        let Record { track, .. } =
            serde_json::from_value(record.clone()).map_err(|error| error.to_string())?;
        let time = |seconds: u64| {
            Some(Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?.to_string())
        };
        let blame = record.pointer("/history/blame").and_then(serde_json::Value::as_u64);
        Ok(Self {
            returned: track.returned.and_then(time),
            relapses: track.relapses,
            has_failed: track.has_failed,
            is_held: track.is_held,
            tried: track.tried,
            retires: track.retires.map(|reason| reason.to_string()),
            blame_milli: blame.unwrap_or_default() / 1_000_000,
        })
    }
}

impl GivenOrder {
    fn of(orders: &DeviceOrders, gpu: &DeviceHealth) -> Option<Self> {
        let order = orders.order.as_ref()?;
        Some(Self {
            word: order.word,
            number: order.number,
            reason: order.reason.clone(),
            is_done: gpu.order >= order.number,
        })
    }
}
