//! `PlacementPolicy`: what counts more where several placements are possible, and what must hold.

#![expect(unreachable_pub, reason = "KubeSchema writes each type a second time, in a function")]

use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// What counts more where several placements are possible, and what must hold. Pods and groups name
/// one by the annotation `octavo.dev/placement-policy`; the others have the default one.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "octavo.dev",
    version = "v1alpha1",
    kind = "PlacementPolicy",
    doc = "What counts more where several placements of pods are possible, and what must hold.",
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
    /// What is compared: the first step that tells two placements apart decides.
    #[schemars(length(min = 1, max = 8))]
    pub order: Vec<PolicyStep>,
    /// What must hold whatever it costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<PolicyConstraints>,
    /// Whether running pods may be moved or evicted for a new one; not given: they may unless
    /// `constraints.maxPodsDisturbed` is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<bool>,
    /// Whether it counts for all that name no policy. Of several the oldest does.
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
    /// The unit. Less is better in each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "unit")]
    pub unit: Option<String>,
    /// Units and what one of each is worth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub sum: Vec<PolicyTerm>,
    /// What counts as equal; with a unit only.
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
    /// What one of the unit is worth: a whole number, or a decimal such as `"1.5"` with up to six
    /// digits after the point.
    #[schemars(schema_with = "weight")]
    pub weight: Weight,
}

/// A weight as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Weight {
    /// A whole number.
    Whole(i64),
    /// A decimal.
    Decimal(String),
}

/// What counts as equal in a step.
#[derive(KubeSchema, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.percent) != has(self.absolute)")
        .message("give either percent or absolute")
)]
pub struct PolicyTolerance {
    /// Costs that differ by more than this many percent of the lower one never count as equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub percent: Option<i64>,
    /// Costs that differ by more than this never count as equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub absolute: Option<i64>,
}

/// What must hold whatever it costs. What is broken already is not held against a placement that does
/// not make it worse.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyConstraints {
    /// Most power of the whole cluster in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_watts: Option<i64>,
    /// Most that is spent for what is given out of the whole cluster, in cents per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_cents_per_hour: Option<i64>,
    /// Most running pods that one decision may move or evict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_pods_disturbed: Option<i64>,
    /// Nodes with GPUs that are to be left free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub spares: Vec<SpareNodes>,
}

/// Nodes with GPUs that are to be left free.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpareNodes {
    /// In each domain of this level of the topology; not given: in the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub level: Option<String>,
    /// How many.
    #[schemars(range(min = 1))]
    pub nodes: i64,
}

/// How a policy stands.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementPolicyStatus {
    /// `metadata.generation` that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: whether this version of the policy is used, and if not why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Names of the units: those of the engine, in its order.
pub const UNITS: [&str; 8] = [
    "podsDisturbed",
    "hops",
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !*flag
}
