//! `Maintenance`: when work on nodes is done, so that pods are out of the way.
//!
//! [`MaintenanceSpec`] is what a person writes. [`MaintenanceSpec::check`] gives the [`Plan`] by which the controller decides, or an error
//! with field and reason. Points in time are seconds since 1970.

#![expect(unreachable_pub, reason = "KubeSchema writes each type a second time, in a function")]

mod check;
#[cfg(test)]
mod tests;
mod window;

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use check::{MaintenanceError, Plan};
pub use window::Window;

use crate::condition::Condition;

/// Work on nodes. From its start on their GPUs take no new pods, until its end. Nodes are meant that have all labels of the selector, and
/// nodes with the names.
#[derive(
    CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[kube(
    group = "octavo.dev",
    version = "v1alpha1",
    kind = "Maintenance",
    doc = "When work on nodes is done, so that pods are out of the way.",
    plural = "maintenances",
    shortname = "omt",
    category = "octavo",
    status = "MaintenanceStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"InProgress\")].reason"}"#,
    printcolumn = r#"{"name": "Start", "type": "string", "jsonPath": ".spec.startTime"}"#,
    printcolumn = r#"{"name": "End", "type": "string", "jsonPath": ".spec.endTime"}"#,
    printcolumn = r#"{"name": "Nodes", "type": "integer", "jsonPath": ".status.nodes"}"#,
    printcolumn = r#"{"name": "Pods-Left", "type": "integer", "jsonPath": ".status.podsLeft"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "priority": 1, "jsonPath": ".spec.reason"}"#,
    printcolumn = r#"{"name": "Message", "type": "string", "priority": 1, "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].message"}"#
)]
#[x_kube(
    validation = Rule::new("has(self.nodeSelector) || has(self.nodeNames)")
        .message("nodeSelector and nodeNames are both empty; name at least one label or node"),
    validation = Rule::new("self.endTime > self.startTime")
        .message("endTime must be after startTime")
)]
pub struct MaintenanceSpec {
    /// Labels of the nodes: those that have all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("minProperties" = 1, "maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// Names of nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 4096), extend("x-kubernetes-list-type" = "set"))]
    pub node_names: Vec<String>,
    /// When the work begins, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub start_time: String,
    /// When it ends.
    #[schemars(extend("format" = "date-time"))]
    pub end_time: String,
    /// Why, for the owners of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub reason: Option<String>,
    /// `AtStart`: pods with GPUs of the nodes are evicted from the start on. `None`: they may run on, and no new ones come.
    #[serde(default)]
    pub drain: Drain,
    /// Time before the start at which owners of pods with GPUs of the nodes get an event; 0 for no event.
    #[serde(default = "default_notice_seconds")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub notice_seconds: i64,
}

/// What becomes of pods when the work begins.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Drain {
    /// They may run on.
    None,
    /// They are evicted within the budget of evictions.
    #[default]
    AtStart,
}

/// Status of work on nodes.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceStatus {
    /// `metadata.generation` on which the status is based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: whether it can be carried out, and the reason if not. `Announced`: whether owners of pods had their event.
    /// `InProgress`: whether the work may be done now. `Drained`: whether no pod with a GPU of the nodes is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Nodes that are meant.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub nodes: i64,
    /// Pods with GPUs of these nodes that are to leave, while the work is in progress.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub pods_left: i64,
    /// Nodes whose pods are being evicted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2048))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub draining: Vec<DrainingNode>,
}

/// A node whose pods are being evicted.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainingNode {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Since when.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
}

/// Most nodes of [`MaintenanceStatus::draining`].
pub const MAX_DRAINING: usize = 2048;

/// A day.
fn default_notice_seconds() -> i64 {
    86_400
}
