//! A decision of a live scheduler as a repeatable record.
//!
//! The scheduler returns the cluster before the decision, the gang and the decision as one
//! document. The simulator gets the same question. A record is made only if both answers are equal,
//! so that every record can be repeated.

use octavo_engine::explain::Explanation;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::snapshot::{GangRecord, PinnedRecord, Snapshot};
use serde::Deserialize;

use super::record::Record;
use super::{Question, WhatifError, answer};

/// The scheduler's response to `GET /snapshot?podgroup=NAMESPACE/NAME` and `GET
/// /snapshot?pod=NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Decision {
    /// The cluster before the decision.
    pub cluster: Snapshot,
    /// The gang or pod that was decided.
    pub gang: GangRecord,
    /// Members of it that were already placed.
    #[serde(default)]
    pub pinned: Vec<PinnedRecord>,
    /// Names of nodes that must not be used.
    #[serde(default)]
    pub forbidden: Vec<String>,
    /// By which policy.
    pub policy: PlacementPolicy,
    /// How many running pods might be moved.
    pub moves: u32,
    /// Whether workloads of lower priority might be evicted.
    pub evictions: bool,
    /// The decision.
    pub answer: Explanation,
}

/// Why a decision makes no record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecisionError {
    /// The question cannot be repeated.
    #[error("the decision cannot be repeated: {0}")]
    Whatif(#[from] WhatifError),
    /// The simulator decides something else: another version of the program, or a defect.
    #[error(
        "the simulator of octavo {program} and the scheduler decide differently: the scheduler \
         decided {was:?}, the simulator {now:?}; use the octavo of the scheduler's version, and if the \
         versions are equal, report it"
    )]
    Differs {
        /// Version of this program.
        program: &'static str,
        /// The scheduler's answer.
        was: String,
        /// The simulator's answer.
        now: String,
    },
}

impl Decision {
    /// Parses the scheduler's response. Errors give line and column.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Repeats the question and makes a record if the answer is the scheduler's.
    pub fn record(self) -> Result<Record, DecisionError> {
        let Self { cluster, gang, pinned, forbidden, policy, moves, evictions, answer: was } = self;
        let question = Question {
            gangs: vec![gang],
            policy,
            fail: Vec::new(),
            moves,
            evictions,
            packing: true,
            pinned,
            forbidden,
        };
        let answers = answer(&cluster, &question)?;
        // The question has one gang.
        let now = answers.answers.first().map(|answer| &answer.explanation);
        if now == Some(&was) {
            return Ok(Record::of(cluster, question, answers));
        }
        let words = |explanation: &Explanation| explanation.lines().join("; ");
        let now = now.map(words).unwrap_or_default();
        Err(DecisionError::Differs { program: env!("CARGO_PKG_VERSION"), was: words(&was), now })
    }
}

#[cfg(test)]
mod tests;
