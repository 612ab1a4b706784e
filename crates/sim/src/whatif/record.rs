//! Records of a cluster, a question and the answer, to be repeated and compared.

use octavo_engine::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use super::{Answers, Question, WhatifError, answer, asked};

/// Version of the form.
pub const VERSION: u32 = 1;

/// A question and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// [`VERSION`].
    pub version: u32,
    /// Version of the program that answered.
    pub program: String,
    /// The cluster.
    pub cluster: Snapshot,
    /// The question.
    pub question: Question,
    /// The answer.
    pub answer: Answers,
}

/// Result of repeating a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Equal, bit for bit.
    Same,
    /// The record was changed: its cluster or question is not the one that was answered.
    QuestionChanged {
        /// Hash of the answered question.
        was: String,
        /// Hash of the question in the record.
        is: String,
    },
    /// The answer in the record does not match its hash.
    AnswerChanged,
    /// Another answer.
    Differs {
        /// Hash of the old answer.
        was: String,
        /// The new answer.
        now: Box<Answers>,
    },
}

/// Why a record cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Of another version.
    #[error("the record is of version {0}; this program reads version {VERSION}")]
    Version(u32),
    /// The question has no answer any more.
    #[error(transparent)]
    Whatif(#[from] WhatifError),
}

impl Record {
    /// A record of an answer.
    pub fn of(cluster: Snapshot, question: Question, answer: Answers) -> Self {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Self { version: VERSION, program, cluster, question, answer }
    }

    /// Asks again.
    pub fn verify(&self) -> Result<Verdict, RecordError> {
        if self.version != VERSION {
            return Err(RecordError::Version(self.version));
        }
        let is = asked(&self.cluster, &self.question).map_err(WhatifError::from)?;
        if is != self.answer.asked {
            return Ok(Verdict::QuestionChanged { was: self.answer.asked.clone(), is });
        }
        let hash_now = super::hash(&self.answer.answers).map_err(WhatifError::from)?;
        if hash_now != self.answer.hash {
            return Ok(Verdict::AnswerChanged);
        }
        let now = answer(&self.cluster, &self.question)?;
        if now == self.answer {
            return Ok(Verdict::Same);
        }
        Ok(Verdict::Differs { was: hash_now, now: Box::new(now) })
    }
}
