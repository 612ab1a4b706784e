//! `PodGroup`: pods that are placed together or not at all.

#![expect(unreachable_pub, reason = "KubeSchema writes each type a second time, in a function")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// Pods that are placed together or not at all. A pod is in the group that its label
/// `octavo.dev/pod-group` names.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "octavo.dev",
    version = "v1alpha1",
    kind = "PodGroup",
    doc = "Pods that are placed together or not at all. A pod is in the group that its label octavo.dev/pod-group names.",
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
    /// With fewer pods than this none is placed. Not given: the sum of the subgroups' minimums, or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub min_member: Option<u32>,
    /// Parts of the group, in the order of their ranks: pods that ask for the same. A pod says by its
    /// label `octavo.dev/pod-subgroup` which one it is in. Not given: the group is one part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sub_groups: Vec<SubGroup>,
    /// What must and what should lie together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyWish>,
    /// Name of the `PlacementPolicy` that decides; not given: the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub placement_policy: Option<String>,
    /// How the group may be disrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_mode: Option<DisruptionMode>,
    /// Whether the group may be evicted for others; not given: it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// Whether its pods may be restarted elsewhere to make room; not given: they may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub movable: Option<bool>,
    /// Seconds of work of all pods that are lost when one is disturbed: since the last checkpoint on
    /// average, and the restart.
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
    /// With fewer pods of it than this the group is not placed.
    #[schemars(range(min = 0, max = 100_000))]
    pub min_member: u32,
    /// What must and what should lie together within the group's own place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyWish>,
    /// Runs of ranks that must lie together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<SegmentSpec>,
}

/// Levels of the topology: the name of a level, or the key of the node label that it is made of.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyWish {
    /// All pods in one domain of this level, or none at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub required: Option<String>,
    /// All pods in one domain of this level if that is possible, else in one of the next looser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub preferred: Option<String>,
}

/// Runs of ranks that must lie together: tensor-parallel pods in one NVLink clique, say.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentSpec {
    /// Pods of a segment.
    #[schemars(range(min = 1, max = 100_000))]
    pub size: u32,
    /// Level in one domain of which each segment lies.
    #[schemars(length(min = 1, max = 317))]
    pub level: String,
}

/// How the group may be disrupted: `Single` (not given: this) lets go of pods above the minimum one by
/// one; `All` takes the whole group or none of it.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisruptionMode {
    /// Pods above the minimum go one by one.
    #[default]
    Single,
    /// The whole group or none of it.
    All,
}

/// How a group stands.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupStatus {
    /// `metadata.generation` that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the group is doing: `Gathering`, `Waiting`, `Preempting`, `Binding`, `Scheduled` or
    /// `Repairing`. Programs look at the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// `Scheduled`: whether at least the minimum is bound, and if not why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Pods that must be there before one is placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// Pods that there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub present: Option<u32>,
    /// Pods that are bound to nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<u32>,
    /// The same by subgroup.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sub_groups: Vec<SubGroupStatus>,
    /// The tightest domain that has all bound pods, such as `rack b1/r2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// How a part of a group stands.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubGroupStatus {
    /// Its name.
    pub name: String,
    /// Pods that there are.
    pub present: u32,
    /// Pods that are bound to nodes.
    pub bound: u32,
}
