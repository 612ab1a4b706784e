//! `PodGroup`: pods that are placed together or not at all.

#![expect(unreachable_pub, reason = "KubeSchema writes each type a second time, in a function")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// Pods that are placed together or not at all. A pod belongs to the group named by its label `octavo.dev/pod-group`.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "octavo.dev",
    version = "v1alpha1",
    kind = "PodGroup",
    doc = "Pods that are placed together or not at all. A pod belongs to the group named by its label octavo.dev/pod-group.",
    plural = "podgroups",
    shortname = "opg",
    category = "octavo",
    namespaced,
    status = "PodGroupStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Min", "type": "integer", "jsonPath": ".status.min"}"#,
    printcolumn = r#"{"name": "Bound", "type": "integer", "jsonPath": ".status.bound"}"#,
    printcolumn = r#"{"name": "Domain", "type": "string", "jsonPath": ".status.domain"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "priority": 1, "jsonPath": ".status.conditions[?(@.type==\"Scheduled\")].reason"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[x_kube(
    validation = Rule::new(
        "!has(self.minMember) || !has(self.subGroups) || size(self.subGroups) == 0 || self.minMember == self.subGroups.map(s, s.minMember).sum()"
    ).message("minMember must be the sum of the subGroups' minMember, or be left out"),
    validation = Rule::new(
        "!has(self.subGroups) || self.subGroups.map(s, s.minMember).sum() <= 100000"
    ).message("a group has at most 100000 members")
)]
pub struct PodGroupSpec {
    /// Minimum number of pods; with fewer none is placed. Default: the sum of the subgroups' minimums, or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub min_member: Option<u32>,
    /// Parts of the group with identical pods, in the order of their ranks. A pod names its part by the label
    /// `octavo.dev/pod-subgroup`. Default: one part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sub_groups: Vec<SubGroup>,
    /// Required and preferred topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyWish>,
    /// Name of the `PlacementPolicy`. Default: the default policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub placement_policy: Option<String>,
    /// Disruption mode of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_mode: Option<DisruptionMode>,
    /// Whether the group may be evicted for others. Default: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// Whether its pods may be restarted on other nodes to free capacity. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub movable: Option<bool>,
    /// Seconds of work of all pods that are lost when one is disrupted: the average time since the last checkpoint,
    /// plus the restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 31_536_000))]
    pub seconds_at_risk: Option<u32>,
}

/// A part of a group.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.segment) || self.minMember % self.segment.size == 0")
        .message("segment.size must divide minMember")
)]
pub struct SubGroup {
    /// Its name, unique in the group.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub name: String,
    /// Minimum number of pods of the subgroup; with fewer the group is not placed.
    #[schemars(range(min = 0, max = 100_000))]
    pub min_member: u32,
    /// Required and preferred topology within the group's domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyWish>,
    /// Runs of ranks that must be in one domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<SegmentSpec>,
}

/// Topology levels, each by its name or by the key of its node label.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyWish {
    /// All pods in one domain of this level, or no placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub required: Option<String>,
    /// All pods in one domain of this level if possible, otherwise of the next wider level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub preferred: Option<String>,
}

/// Runs of ranks that must be in one domain, such as tensor-parallel pods in one NVLink clique.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentSpec {
    /// Number of pods in a segment.
    #[schemars(range(min = 1, max = 100_000))]
    pub size: u32,
    /// Level of which one domain must contain the whole segment.
    #[schemars(length(min = 1, max = 317))]
    pub level: String,
}

/// Disruption mode of a group: `Single` (default) evicts pods above the minimum one by one; `All` evicts the whole
/// group or none of it.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisruptionMode {
    /// Pods above the minimum are evicted one by one.
    #[default]
    Single,
    /// The whole group or none of it.
    All,
}

/// Status of a group.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupStatus {
    /// `metadata.generation` on which the status is based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Phase of the group: `Gathering`, `Waiting`, `Preempting`, `Binding`, `Scheduled` or `Repairing`. Programs should
    /// use the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// `Scheduled`: whether at least the minimum is bound, and the reason if not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Number of pods needed before any is placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// Number of existing pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub present: Option<u32>,
    /// Number of bound pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<u32>,
    /// Status by subgroup.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sub_groups: Vec<SubGroupStatus>,
    /// The tightest domain of all bound pods, such as `rack b1/r2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// Status of a subgroup.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubGroupStatus {
    /// Its name.
    pub name: String,
    /// Number of existing pods.
    pub present: u32,
    /// Number of bound pods.
    pub bound: u32,
}
