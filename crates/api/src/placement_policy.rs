//! `PlacementPolicy`: preferences between possible placements, and constraints.

#![expect(unreachable_pub, reason = "KubeSchema writes each type a second time, in a function")]

use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// Preferences between possible placements, and constraints. Pods and groups name a policy by the annotation
/// `octavo.dev/placement-policy`; all others use the default one.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "octavo.dev",
    version = "v1alpha1",
    kind = "PlacementPolicy",
    doc = "Preferences between possible placements of pods, and constraints.",
    plural = "placementpolicies",
    shortname = "opp",
    category = "octavo",
    status = "PlacementPolicyStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Default", "type": "boolean", "jsonPath": ".spec.isDefault"}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "priority": 1, "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].message"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[x_kube(
    validation = Rule::new(
        "!has(self.preemption) || !has(self.constraints) || !has(self.constraints.maxPodsDisturbed) || self.preemption == (self.constraints.maxPodsDisturbed > 0)"
    ).message("preemption and constraints.maxPodsDisturbed contradict each other")
)]
pub struct PlacementPolicySpec {
    /// Comparison steps. The first step that distinguishes two placements decides.
    #[schemars(length(min = 1, max = 8))]
    pub order: Vec<PolicyStep>,
    /// Constraints that hold whatever the cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<PolicyConstraints>,
    /// Whether running pods may be moved or evicted for a new one. Default: yes, unless `constraints.maxPodsDisturbed`
    /// is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<bool>,
    /// Seconds for which a running gang may have fewer placed pods than its minimum. After these its other pods are
    /// evicted, so that their GPUs serve others, and the gang waits for places as a whole. Default: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub below_minimum_seconds: Option<i64>,
    /// Whether the policy applies to pods without one. Of several the oldest applies.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_default: bool,
}

/// One step: a unit, or a weighted sum of units.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.unit) != (has(self.sum) && size(self.sum) > 0)")
        .message("a step has either a unit or a sum of units"),
    validation = Rule::new("!has(self.tolerance) || has(self.unit)")
        .message("a tolerance is in one unit, so a sum cannot have one")
)]
pub struct PolicyStep {
    /// The unit. Lower is better in each unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "unit")]
    pub unit: Option<String>,
    /// Units and their weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub sum: Vec<PolicyTerm>,
    /// Differences that count as equal. Only valid with a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<PolicyTolerance>,
}

/// A unit in a sum.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTerm {
    /// The unit.
    #[schemars(schema_with = "unit")]
    pub unit: String,
    /// Weight of one unit: a whole number, or a decimal such as `"1.5"` with up to six digits after the point.
    #[schemars(schema_with = "weight")]
    pub weight: Weight,
}

/// A weight as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Weight {
    /// A whole number.
    Whole(i64),
    /// A decimal.
    Decimal(String),
}

/// Differences that count as equal in a step.
#[derive(KubeSchema, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.percent) != has(self.absolute)")
        .message("give either percent or absolute")
)]
pub struct PolicyTolerance {
    /// Costs that differ by more than this percentage of the lower one never count as equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub percent: Option<i64>,
    /// Costs that differ by more than this never count as equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub absolute: Option<i64>,
}

/// Constraints that hold whatever the cost. An existing violation does not exclude a placement that does not worsen it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyConstraints {
    /// Maximum power of the whole cluster in watts. For the simulator: the scheduler refuses it, because
    /// nodes do not publish their power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_watts: Option<i64>,
    /// Maximum cost of the allocated parts of the whole cluster, in cents per hour. For the simulator: the
    /// scheduler refuses it, because nodes do not publish a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_cents_per_hour: Option<i64>,
    /// Maximum number of running pods that one decision may move or evict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_pods_disturbed: Option<i64>,
    /// Nodes with GPUs to keep free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub spares: Vec<SpareNodes>,
}

/// Nodes with GPUs to keep free.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpareNodes {
    /// Topology level: the nodes are kept free in each of its domains. Default: in the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub level: Option<String>,
    /// Number of nodes. `auto`: so many that no more fail before they are replaced, with a probability of 99%.
    #[schemars(schema_with = "spare_count")]
    pub nodes: SpareCount,
    /// Seconds until a failed node is replaced, for `auto`. Default: a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub refill_seconds: Option<i64>,
    /// Preemptible pods and gangs of a lower priority may use the nodes until they are needed. Default: none may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lend_below_priority: Option<i32>,
}

/// A number of spare nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SpareCount {
    /// A number.
    Number(i64),
    /// The word `auto`.
    Auto(String),
}

impl Default for SpareCount {
    fn default() -> Self {
        Self::Number(1)
    }
}

/// Status of a policy.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementPolicyStatus {
    /// `metadata.generation` on which the status is based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: whether this version of the policy is in use, and the reason if not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Names of the units, in the engine's order.
pub const UNITS: [&str; 10] = [
    "podsDisturbed",
    "hops",
    "preferencesMissed",
    "gpuRisk",
    "gpuMilliStranded",
    "packingPrice",
    "watts",
    "centsPerHour",
    "fairnessDeficit",
    "expectedLostGpuSeconds",
];

fn unit(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": UNITS})
}

fn weight(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": r"^[0-9]{1,10}(\.[0-9]{1,6}0*)?$",
    })
}

fn spare_count(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "minimum": 1, "pattern": "^auto$"})
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !*flag
}
