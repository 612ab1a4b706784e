//! What-if questions about a cluster's document: would a gang fit, and what would make it fit? The
//! cluster does not change.
//!
//! ```text
//! cluster document, question --> world --(nodes fail)--> solver: plan ----------------> answer, its hash
//!                                                          | refusal                     ^
//!                                                          v                             |
//!                                                        preemption: moves, evictions, as far as allowed
//!                                                          | not allowed                 |
//!                                                          \--> the required disruption -/
//! ```
//!
//! An answer depends on the document and the question only. A [`record`] holds both with the
//! answer, so that the question can be repeated and the answers compared bit for bit.

pub mod args;
mod ask;
pub mod decision;
mod inline;
mod node_failure;
mod quantity;
pub mod record;
#[cfg(test)]
mod tests;

use octavo_engine::explain::Explanation;
use octavo_engine::objective::policy::{PlacementPolicy, PolicyError};
use octavo_engine::plan::{Remedy, StalePlan};
use octavo_engine::snapshot::{GangRecord, PinnedRecord, Snapshot, SnapshotError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use ask::answer;

/// Version of the answer format. Within a version, fields are added and never changed.
pub const API_VERSION: &str = crate::output::API_VERSION;

/// A question about a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Question {
    /// Gangs to place, one after another; each sees the placements of the previous ones.
    #[serde(default)]
    pub gangs: Vec<GangRecord>,
    /// How placements are compared.
    #[serde(default)]
    pub policy: PlacementPolicy,
    /// Names of nodes that fail first. Without gangs the question is where the members go that
    /// are lost with them.
    #[serde(default)]
    pub fail: Vec<String>,
    /// How many running pods each answer may move.
    #[serde(default)]
    pub moves: u32,
    /// Whether workloads of lower priority may be evicted.
    #[serde(default)]
    pub evictions: bool,
    /// Whether single pods are placed by the packing policy, as on a live cluster, with the learned
    /// state in the document. Otherwise they are searched for like gangs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub packing: bool,
    /// Placed members of the gang. If there are any, the question has exactly one gang.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<PinnedRecord>,
    /// Names of nodes that must not be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbidden: Vec<String>,
}

/// The answers to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answers {
    /// [`API_VERSION`].
    pub api_version: String,
    /// `WhatIf`.
    pub kind: String,
    /// Whether the cluster was made up.
    #[serde(default)]
    pub synthetic: bool,
    /// SHA-256 of the cluster and the question.
    pub asked: String,
    /// SHA-256 of the answers.
    pub hash: String,
    /// For each gang, in order.
    pub answers: Vec<Answer>,
}

/// The answer for one gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The plan or the refusal.
    #[serde(flatten)]
    pub explanation: Explanation,
    /// Of a refusal: moves or evictions with which there would be a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance: Option<Remedy>,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WhatifError {
    /// The cluster or a gang makes no sense.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The policy makes no sense in this cluster.
    #[error("the policy is invalid for this cluster: {0}")]
    Policy(#[from] PolicyError),
    /// No such node.
    #[error("there is no node {name:?}{}", .like.as_ref().map_or(String::new(), |like| format!("; did you mean {like:?}?")))]
    UnknownNode {
        /// The name.
        name: String,
        /// A node of a similar name.
        like: Option<String>,
    },
    /// The question is empty.
    #[error(
        "the question is empty: name a gang (--gang, --name or --waiting), or failing nodes \
         (--fail)"
    )]
    Nothing,
    /// Nothing runs on the failing nodes, which are named.
    #[error("nothing runs on {0}, so nothing is lost; name other nodes or a gang")]
    NothingLost(String),
    /// Members are pinned, but the question has several gangs or none.
    #[error("pinned members need a question about one gang, but this question has {0}")]
    PinnedOfMany(usize),
    /// The gang's name is in use.
    #[error("a workload named {0:?} runs already; give the gang another name")]
    NameTaken(String),
    /// A plan that does not fit the world it was made for: a defect.
    #[error("a plan does not fit the cluster it was made for, which is a defect: {0}")]
    StalePlan(#[from] StalePlan),
    /// The document cannot be written as JSON for its hash.
    #[error("cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}

impl WhatifError {
    /// Whether the question is empty, for any cluster.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Snapshot(_)
            | Self::Policy(_)
            | Self::UnknownNode { .. }
            | Self::NothingLost(_)
            | Self::PinnedOfMany(_)
            | Self::NameTaken(_)
            | Self::StalePlan(_)
            | Self::Json(_) => false,
        }
    }
}

impl Answers {
    /// Whether all gangs were placed.
    pub fn is_yes(&self) -> bool {
        self.answers.iter().all(|answer| matches!(answer.explanation, Explanation::Placed(_)))
    }

    /// In plain English.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, answer) in self.answers.iter().enumerate() {
            if number > 0 {
                lines.push(String::new());
            }
            let mut answer_lines = answer.explanation.lines().into_iter();
            lines.extend(answer_lines.next());
            lines.extend(answer_lines.map(|line| format!("  {line}")));
            if let (Some(remedy), Explanation::Refused(refusal)) =
                (&answer.disturbance, &answer.explanation)
            {
                // The words for a remedy are those of a refusal.
                let with_remedy = octavo_engine::explain::RefusalSummary {
                    remedy: Some(remedy.clone()),
                    ..refusal.clone()
                };
                let text = Explanation::Refused(with_remedy).lines().pop();
                lines.extend(text.map(|line| format!("  {line}")));
            }
        }
        lines
    }
}

/// SHA-256 in hexadecimal of a value as JSON.
pub(crate) fn hash(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let digest = Sha256::digest(serde_json::to_vec(value)?);
    Ok(digest.iter().fold(String::new(), |mut text, byte| {
        use std::fmt::Write as _;
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Hash of a cluster with a question.
pub(crate) fn asked(cluster: &Snapshot, question: &Question) -> Result<String, serde_json::Error> {
    hash(&(cluster, question))
}
