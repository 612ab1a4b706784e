//! The learned state of a packing policy as a record: a restarted scheduler continues with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ShapeRecord, is_default};

/// The version of the record that this program writes and reads. It also changes with the policy,
/// because counts of one version mean nothing to another.
pub const PACKING_VERSION: u32 = 2;

/// The learned state of [`crate::packing::price::PricePolicy`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PackingRecord {
    /// Version of the form.
    pub version: u32,
    /// The learning schedule; absent: the demand is known and constant.
    #[serde(default, skip_serializing_if = "is_default")]
    pub learning: Option<LearningRecord>,
    /// How often each shape is asked for, most often first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub counts: Vec<CountRecord>,
    /// How many pods leave while others come.
    #[serde(rename = "turnover", default, skip_serializing_if = "is_default")]
    pub churn: ChurnRecord,
    /// Inputs of the current price model besides the counts `then`; absent: it is rebuilt from the
    /// counts at the next decision.
    #[serde(rename = "basis", default, skip_serializing_if = "is_default")]
    pub inputs: Option<ModelInputsRecord>,
}

/// How often a shape is asked for, in 65,536ths of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CountRecord {
    /// The shape.
    pub shape: ShapeRecord,
    /// Allowed models as bits by their number in the document, if the shape's model names cannot
    /// express them: no model, or models outside the document.
    #[serde(default, skip_serializing_if = "is_default")]
    pub model_bits: Option<u64>,
    /// How often now.
    #[serde(default, skip_serializing_if = "is_default")]
    pub weight: i64,
    /// How often when what is in use was made.
    #[serde(default, skip_serializing_if = "is_default")]
    pub then: i64,
}

/// When a policy learns and forgets, in pods that came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LearningRecord {
    /// Pods that came.
    pub arrivals: u64,
    /// Arrivals at which it looks again whether what was counted has changed.
    pub next: u64,
    /// Arrivals between two steps of forgetting; absent before the first decision.
    #[serde(default, skip_serializing_if = "is_default")]
    pub step: Option<u64>,
    /// Arrivals since the last step.
    #[serde(default, skip_serializing_if = "is_default")]
    pub since_step: u64,
}

/// How many pods leave while others come. Unknown fields are ignored: version 1 had another one, and
/// its documents are refused for their version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChurnRecord {
    /// Pods that came lately.
    #[serde(default, skip_serializing_if = "is_default")]
    pub came: u64,
    /// Pods that left lately.
    #[serde(default, skip_serializing_if = "is_default")]
    pub left: u64,
    /// Arrivals since the two were last compared.
    #[serde(default, skip_serializing_if = "is_default")]
    pub since: u64,
    /// Whether the cluster counts as steady, and not as one that fills.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_steady: bool,
}

/// Inputs of the current price model besides the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelInputsRecord {
    /// GPUs by the name of their model.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus: BTreeMap<String, u64>,
    /// Sizes of the largest nodes, largest first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sizes: Vec<SizeRecord>,
}

/// A size of the nodes with the most GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SizeRecord {
    /// GPUs.
    pub gpus: u16,
    /// The least CPU of such nodes in thousandths of a core.
    pub cpu_milli: i64,
    /// The least memory of such nodes in MiB.
    pub memory_mib: i64,
}
