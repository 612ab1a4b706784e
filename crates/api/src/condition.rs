//! A condition, as in all Kubernetes objects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A condition (`metav1.Condition`).
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// Reason, for programs.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    )]
    pub reason: String,
    /// Message, for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Time of the last change of the status.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// `metadata.generation` on which the condition is based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
