//! `HealthPolicy`: what becomes of GPUs that fail or may fail.
//!
//! [`HealthPolicySpec`] is what an administrator writes. [`HealthPolicySpec::check`] gives the [`octavo_health::policy::Policy`] by
//! which agents, controller and simulator decide, or an error with field and reason.

#![expect(unreachable_pub, reason = "KubeSchema writes each type a second time, in a function")]

mod check;
mod error;
mod template;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use octavo_health::policy::{Mode, NetworkCards, Test};
use octavo_health::remedy::{Ladder, Remedy};
use octavo_health::risk::Model;
use octavo_health::xid::XidClass;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

pub use error::PolicyError;
pub use template::{TEMPLATE_REMEDIES, TemplateSpec};

use crate::condition::Condition;

/// What becomes of GPUs that fail or may fail, on the nodes that the selector names. Every field but the selector has a default. Of
/// several policies that select a node, the first by name applies to it.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[kube(
    group = "octavo.dev",
    version = "v1alpha1",
    kind = "HealthPolicy",
    doc = "What becomes of GPUs that fail or may fail.",
    plural = "healthpolicies",
    shortname = "ohp",
    category = "octavo",
    status = "HealthPolicyStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".spec.mode"}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name": "Nodes", "type": "integer", "jsonPath": ".status.nodes"}"#,
    printcolumn = r#"{"name": "Healthy", "type": "integer", "jsonPath": ".status.devices.healthy"}"#,
    printcolumn = r#"{"name": "Fenced", "type": "integer", "jsonPath": ".status.devices.fenced"}"#,
    printcolumn = r#"{"name": "Breaker", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"BreakerOpen\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "priority": 1, "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].message"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[x_kube(
    validation = Rule::new(
        "!has(self.remedies) || ['resetFunction', 'resetBus', 'reloadDriver', 'reboot', 'powerCycle'].filter(r, r in self.remedies) == self.remedies"
    ).message("remedies: each must be harsher than the one before it; the order is resetFunction, resetBus, reloadDriver, reboot, powerCycle")
)]
pub struct HealthPolicySpec {
    /// Labels of the nodes to which the policy applies: those that have all of them.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// Whether decisions are acted upon. `Observe`: states are kept and shown. `Fence`: devices are fenced and tested, too. `Act`: pods
    /// are evicted and devices are reset, too.
    #[serde(default)]
    #[schemars(schema_with = "mode")]
    pub mode: Mode,
    /// Whether pods on fenced devices are evicted. If not, they may run on, and new ones do not come.
    #[serde(default)]
    pub evict: bool,
    /// Automatic remedies, mildest first.
    #[serde(default = "default_remedies")]
    #[schemars(schema_with = "remedies")]
    pub remedies: Vec<Remedy>,
    /// A template of objects by which another program applies remedies of nodes. Without it a person applies these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateSpec>,
    /// Who reboots a node whose devices need it. `Person`: the remedy waits for a person. `Agent`: the agent of the node, once no device
    /// of it has clients, and the controller permits it. All pods of the node end.
    #[serde(default)]
    #[schemars(schema_with = "reboot_by")]
    pub reboot_by: RebootBy,
    /// What a device must pass before it returns. `Probe`: the driver has nothing against it, and `octavo probe verify` finds no fault
    /// of its memory, its computing and its copies to peers. `Driver`: the driver's word alone, as for devices in MIG mode.
    #[serde(default)]
    #[schemars(schema_with = "test")]
    pub test: Test,
    /// Whether faults of network cards are signs of the devices that they serve. `Count`: a device takes no new pods while a port of its
    /// card is down or has many errors, and returns after a test. `Ignore`: network cards are not looked at.
    #[serde(default)]
    #[schemars(schema_with = "network_cards")]
    pub network_cards: NetworkCards,
    /// Classes of XIDs that go before those of NVIDIA's catalogue, by the number of the XID.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "xid_classes")]
    pub xid_classes: BTreeMap<u32, XidClass>,
    /// How much may be disturbed at once.
    #[serde(default)]
    pub budget: BudgetSpec,
    /// When remedies stop.
    #[serde(default)]
    pub breaker: BreakerSpec,
    /// Times of states.
    #[serde(default)]
    pub times: TimesSpec,
    /// How the risk of a device is computed.
    #[serde(default)]
    pub risk: RiskSpec,
    /// When pods that can save their work leave a device before it fails. Without it they never do; `{}` takes the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preventive_drain: Option<PreventiveDrainSpec>,
}

/// Who reboots a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RebootBy {
    /// A person.
    #[default]
    Person,
    /// The agent of the node.
    Agent,
}

/// How much may be disturbed at once.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BudgetSpec {
    /// Remedies at once, in percent of the nodes; 0 for none.
    #[schemars(range(min = 0, max = 100))]
    pub remedies_percent: i64,
    /// Remedies at once in a rack.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub remedies_per_rack: i64,
    /// Nodes from which pods are evicted at once, in percent of the nodes; 0 for none.
    #[schemars(range(min = 0, max = 100))]
    pub evictions_percent: i64,
}

/// When remedies stop: more than a percentage of the nodes, and at least a number, had a new fence within a time.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BreakerSpec {
    /// The percentage.
    #[schemars(range(min = 0, max = 100))]
    pub percent: i64,
    /// The number.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub nodes: i64,
    /// The time.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub window_seconds: i64,
    /// How long remedies stay stopped.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub hold_seconds: i64,
}

/// Times of states.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TimesSpec {
    /// Time without a warning after which a device is no longer watched.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub watch_seconds: i64,
    /// Time of probation.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub probation_seconds: i64,
    /// A fence within this time after a return is a relapse.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub relapse_seconds: i64,
    /// The relapse that retires a device.
    #[schemars(range(min = 1, max = 16))]
    pub relapses: i64,
    /// Time in which application XIDs of several jobs on one device alone make it suspect.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub repeat_seconds: i64,
    /// Time after which a remedy counts as failed.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub remedy_limit_seconds: i64,
    /// Time after which clients that do not leave hold up neither evictions elsewhere nor a reboot of their node.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub stuck_clients_seconds: i64,
    /// Length of a test after a reset.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub short_test_seconds: i64,
    /// Length of a test after a reboot.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub node_test_seconds: i64,
    /// Length of a test of a replaced device.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub burn_in_seconds: i64,
}

/// How the risk of a device is computed.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RiskSpec {
    /// Which model of a device's history decides.
    #[schemars(schema_with = "model")]
    pub model: Model,
    /// Time in which evidence fades to 1/e; 0 if it does not fade.
    #[schemars(range(min = 0, max = 315_360_000))]
    pub memory_seconds: i64,
    /// How alike the rates of devices are, in thousandths: the shape of their gamma distribution.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub shape_milli: i64,
    /// Devices that are bad before any evidence, in thousandths.
    #[schemars(range(min = 1, max = 999))]
    pub share_bad_milli: i64,
    /// How many times as often as a good device a bad one fails.
    #[schemars(range(min = 2, max = 100_000))]
    pub times: i64,
    /// Failures of a device in a billion days, before any evidence.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    pub failures_per_billion_days: i64,
    /// A device is watched if it fails within the horizon with this probability at least, in thousandths.
    #[schemars(range(min = 1, max = 1_000))]
    pub watch_milli: i64,
    /// The horizon.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub horizon_seconds: i64,
}

/// When pods leave a device before it fails: once a failure within the horizon would cost more than their move. After each failure
/// that is a device's own, the lower bound of its risk is compared. The device takes no new pods then, and is tested once it is idle.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PreventiveDrainSpec {
    /// The horizon: about as long as jobs run.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub horizon_seconds: i64,
    /// Time until a failure is noticed.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub detection_seconds: i64,
    /// Time of a restart after a failure.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub restart_seconds: i64,
    /// Time for which a job waits for other devices after a failure.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub queue_seconds: i64,
    /// Time between two checkpoints. A failure loses half of it.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub checkpoint_interval_seconds: i64,
    /// Time to write a checkpoint.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub checkpoint_seconds: i64,
    /// Time of a planned restart.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub planned_restart_seconds: i64,
    /// Share of the risk that a move removes, in percent. Other parts of the job may fail, too.
    #[schemars(range(min = 1, max = 100))]
    pub risk_removed_percent: i64,
}

/// Status of a policy.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthPolicyStatus {
    /// `metadata.generation` on which the status is based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: whether this version of the policy is in use, and the reason if not. `BreakerOpen`: whether remedies are stopped.
    /// `RecordsReadable`: whether the records of all its devices are. `TemplateUsable`: whether objects can be made of the template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Nodes to which the policy applies.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub nodes: i64,
    /// Their devices, by state.
    #[serde(default)]
    pub devices: DeviceCounts,
    /// Remedies that run, or that a node's agent may begin.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub remedies: i64,
    /// Devices whose pods are being evicted.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub evictions: i64,
    /// Until when remedies are stopped, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub breaker_open_until: Option<String>,
    /// The template of which objects may exist. They are deleted before another one is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateSpec>,
}

/// Numbers of devices by state.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceCounts {
    /// In service.
    pub healthy: i64,
    /// In service, placed last.
    pub watch: i64,
    /// No new pods.
    pub suspect: i64,
    /// Out of service. Devices whose record cannot be read count here.
    pub fenced: i64,
    /// A remedy is applied.
    pub resetting: i64,
    /// A test runs.
    pub verifying: i64,
    /// In service again, placed last.
    pub probation: i64,
    /// Out of service for good.
    pub retired: i64,
}

impl Default for HealthPolicySpec {
    fn default() -> Self {
        Self {
            node_selector: BTreeMap::new(),
            mode: Mode::default(),
            evict: false,
            remedies: default_remedies(),
            template: None,
            reboot_by: RebootBy::default(),
            test: Test::default(),
            network_cards: NetworkCards::default(),
            xid_classes: BTreeMap::new(),
            budget: BudgetSpec::default(),
            breaker: BreakerSpec::default(),
            times: TimesSpec::default(),
            risk: RiskSpec::default(),
            preventive_drain: None,
        }
    }
}

impl Default for BudgetSpec {
    fn default() -> Self {
        Self { remedies_percent: 5, remedies_per_rack: 1, evictions_percent: 5 }
    }
}

impl Default for BreakerSpec {
    fn default() -> Self {
        Self { percent: 10, nodes: 3, window_seconds: 300, hold_seconds: 1_800 }
    }
}

impl Default for TimesSpec {
    fn default() -> Self {
        Self {
            watch_seconds: 86_400,
            probation_seconds: 86_400,
            relapse_seconds: 604_800,
            relapses: 3,
            repeat_seconds: 86_400,
            remedy_limit_seconds: 1_800,
            stuck_clients_seconds: 600,
            short_test_seconds: 60,
            node_test_seconds: 120,
            burn_in_seconds: 7_200,
        }
    }
}

impl Default for RiskSpec {
    fn default() -> Self {
        Self {
            model: Model::Decayed,
            memory_seconds: 1_209_600,
            shape_milli: 220,
            share_bad_milli: 50,
            times: 20,
            failures_per_billion_days: 366_250,
            watch_milli: 2,
            horizon_seconds: 86_400,
        }
    }
}

impl Default for PreventiveDrainSpec {
    fn default() -> Self {
        Self {
            horizon_seconds: 604_800,
            detection_seconds: 180,
            restart_seconds: 600,
            queue_seconds: 0,
            checkpoint_interval_seconds: 1_800,
            checkpoint_seconds: 30,
            planned_restart_seconds: 120,
            risk_removed_percent: 90,
        }
    }
}

/// Names of the modes, least active first.
pub const MODES: [&str; 3] = ["Observe", "Fence", "Act"];

/// Names of the remedies of a ladder, mildest first.
pub const LADDER: [&str; 5] = ["resetFunction", "resetBus", "reloadDriver", "reboot", "powerCycle"];

/// Names of the tests of a device.
pub const TESTS: [&str; 2] = ["Probe", "Driver"];

/// Names of what faults of network cards are.
pub const NETWORK_CARDS: [&str; 2] = ["Count", "Ignore"];

/// Names of the classes of XIDs.
pub const XID_CLASSES: [&str; 10] = [
    "notice",
    "application",
    "contained",
    "warning",
    "link",
    "suspect",
    "reset",
    "reboot",
    "replace",
    "unknown",
];

fn default_remedies() -> Vec<Remedy> {
    Ladder::default().remedies().to_vec()
}

fn mode(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": MODES})
}

fn reboot_by(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Person", "Agent"]})
}

fn test(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": TESTS})
}

fn network_cards(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": NETWORK_CARDS})
}

fn remedies(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": LADDER.len(),
        "items": {"type": "string", "enum": LADDER},
    })
}

fn xid_classes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 256,
        "additionalProperties": {"type": "string", "enum": XID_CLASSES},
    })
}

fn model(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["decayed", "twoClasses"]})
}
