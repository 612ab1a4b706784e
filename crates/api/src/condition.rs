//! A condition, as all objects of Kubernetes have them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A condition (`metav1.Condition`).
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// A word for programs.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    )]
    pub reason: String,
    /// A sentence for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When the status changed last.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// `metadata.generation` that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
