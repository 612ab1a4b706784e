//! `NodeHealth`: the health of a node's GPUs, and what its agent is to do.

#![expect(unreachable_pub, reason = "KubeSchema writes each type a second time, in a function")]

use kube::{CustomResource, KubeSchema};
use octavo_health::policy::Mode;
use octavo_health::remedy::Remedy;
use octavo_health::signal::Word;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::checkpoint::{CheckpointReport, CheckpointRequest};
use crate::condition::Condition;
use crate::health_policy::MODES;

/// What the agent of a node is to do with its GPUs. The object has the name of the node, and the agent of the node makes it. The
/// controller writes all of the spec but orders, which persons give.
#[derive(
    CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "octavo.dev",
    version = "v1alpha1",
    kind = "NodeHealth",
    doc = "The health of a node's GPUs.",
    plural = "nodehealths",
    shortname = "onh",
    category = "octavo",
    status = "NodeHealthStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name": "In-Service", "type": "integer", "jsonPath": ".status.inService"}"#,
    printcolumn = r#"{"name": "GPUs", "type": "integer", "jsonPath": ".status.total"}"#,
    printcolumn = r#"{"name": "Policy", "type": "string", "jsonPath": ".status.policy.name"}"#,
    printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".status.policy.mode"}"#,
    printcolumn = r#"{"name": "States", "type": "string", "priority": 1, "jsonPath": ".status.devices[*].state"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
pub struct NodeHealthSpec {
    /// What is to be done with devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["uuid".into()]))]
    pub devices: Vec<DeviceOrders>,
    /// Pods that are to save their work, because they leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["uid".into()]))]
    pub checkpoints: Vec<CheckpointRequest>,
}

/// What is to be done with a device.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceOrders {
    /// UUID of the GPU.
    #[schemars(length(min = 1, max = 128))]
    pub uuid: String,
    /// The word of a person. It acts once, when its number is higher than that of the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// The remedy that the controller allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<Permit>,
    /// Since when the controller evicts the pods of the device, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub evicts_since: Option<String>,
    /// The controller's copy of the device's record, for a node that lost its disk. A program reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "record")]
    pub history: Option<Value>,
}

/// The word of a person about a device.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// `Fence`: out of service until it is released. `Release`: back in service. `Retire`: out of service for good.
    pub word: OrderWord,
    /// Number of the order. It is higher than that of the last order of the device.
    #[schemars(range(min = 1))]
    pub number: i64,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
}

/// What a person orders.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderWord {
    /// Out of service until it is released.
    Fence,
    /// Back in service. A retired device is tested first.
    Release,
    /// Out of service for good.
    Retire,
}

/// A remedy that the controller allows.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Permit {
    /// Number of the device's last attempt. The permit is void once there is a later one.
    #[schemars(range(min = 0))]
    pub after_attempt: i64,
    /// The remedy.
    #[schemars(schema_with = "remedy")]
    pub remedy: Remedy,
    /// Since when it is allowed.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
}

/// The health of a node's GPUs. The agent of the node writes it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeHealthStatus {
    /// `metadata.generation` on which the status is based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The boot of the node, as in its `status.nodeInfo.bootID`.
    #[serde(rename = "bootID", default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The policy by which the agent decides. Without one devices are fenced and tested, and remedies are a person's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyInForce>,
    /// Devices in service.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub in_service: i64,
    /// All devices.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub total: i64,
    /// The devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["uuid".into()]))]
    pub devices: Vec<DeviceHealth>,
    /// What became of requests for checkpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["uid".into()]))]
    pub checkpoints: Vec<CheckpointReport>,
    /// `Healthy`: whether all devices are in service. `PolicyAccepted`: whether the agent can use the policy of its node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// The policy by which an agent decides.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyInForce {
    /// Its name.
    pub name: String,
    /// Its `metadata.generation`.
    pub generation: i64,
    /// Its mode.
    #[schemars(schema_with = "mode")]
    pub mode: Mode,
}

/// The health of a device.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceHealth {
    /// UUID of the GPU.
    #[schemars(length(min = 1, max = 128))]
    pub uuid: String,
    /// Its name in the node's slices, such as `gpu-0`.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its state.
    #[schemars(schema_with = "state")]
    pub state: String,
    /// Why, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Since when it is in its state.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// The remedy or test that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "remedy")]
    pub needs: Option<Remedy>,
    /// The remedy that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "remedy")]
    pub remedy: Option<Remedy>,
    /// Why what it needs does not begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub waits: Option<String>,
    /// Number of the attempt that runs, or of the last one.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub attempt: i64,
    /// Number of the last order that was carried out.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub order: i64,
    /// Its NVLink island, as a number within the node. A GPU without NVLink has one of its own.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub island: i64,
    /// Whether it can be reset while others of its island run.
    #[serde(default)]
    pub resets_alone: bool,
    /// Whether it has clients.
    #[serde(default)]
    pub occupied: bool,
    /// Class of its risk: `usual`, `raised`, `high` or `extreme`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub risk: Option<String>,
    /// All that is remembered of it, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "record")]
    pub record: Option<Value>,
}

/// Names of the states of a device.
pub const STATES: [&str; 8] =
    ["Healthy", "Watch", "Suspect", "Fenced", "Resetting", "Verifying", "Probation", "Retired"];

/// Whether new pods may use a device in a state with this name.
pub fn is_in_service(state: &str) -> bool {
    matches!(state, "Healthy" | "Watch" | "Probation")
}

/// Names of all remedies, mildest first. A test is none, and a replacement is a person's.
pub const REMEDIES: [&str; 7] =
    ["test", "resetFunction", "resetBus", "reloadDriver", "reboot", "powerCycle", "replace"];

impl From<OrderWord> for Word {
    fn from(word: OrderWord) -> Self {
        match word {
            OrderWord::Fence => Self::Fence,
            OrderWord::Release => Self::Release,
            OrderWord::Retire => Self::Retire,
        }
    }
}

fn mode(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": MODES})
}

fn state(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": STATES})
}

fn remedy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": REMEDIES})
}

/// A record has the form of `octavo_health::decide::Device`, which may change with the version.
fn record(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
