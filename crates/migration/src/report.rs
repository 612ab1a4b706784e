//! What a translation tells: changes, and refusals with reason and remedy.

use std::fmt;

/// A change of a pod or a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What was there: keys with their values, and where.
    pub field: String,
    /// What became of it.
    pub became: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.field, self.became)
    }
}

/// A field that has no equal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is refused because {cause}; {remedy}")]
pub struct Refusal {
    /// The kind of refusal.
    pub reason: Reason,
    /// The field with its value, and where it is.
    pub field: String,
    /// Why it is refused.
    pub cause: String,
    /// What to do.
    pub remedy: String,
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A value is no number of the expected form.
    NotANumber,
    /// A number is beyond what the field may have.
    OutOfRange,
    /// Two fields contradict each other.
    Conflict,
    /// No known GPU model fits, or none is known.
    NoModel,
    /// More GPU models fit than a claim may have alternatives.
    TooManyModels,
    /// No known GPU has as much memory.
    TooMuchMemory,
    /// More GPUs than a claim may have.
    TooManyGpus,
    /// A list of GPUs matches none.
    MatchesNothing,
    /// A CEL expression would be longer than the API allows.
    ExpressionTooLong,
    /// The named container does not exist.
    NoSuchContainer,
    /// Octavo has nothing of this kind.
    NoEqual,
    /// A key of HAMi or KAI that this program does not know.
    UnknownKey,
    /// A kind of object whose pods this program does not know.
    UnknownKind,
    /// A field does not have the form of the Kubernetes API.
    Malformed,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 14] = [
        Self::NotANumber,
        Self::OutOfRange,
        Self::Conflict,
        Self::NoModel,
        Self::TooManyModels,
        Self::TooMuchMemory,
        Self::TooManyGpus,
        Self::MatchesNothing,
        Self::ExpressionTooLong,
        Self::NoSuchContainer,
        Self::NoEqual,
        Self::UnknownKey,
        Self::UnknownKind,
        Self::Malformed,
    ];

    /// The reason's stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotANumber => "NotANumber",
            Self::OutOfRange => "OutOfRange",
            Self::Conflict => "Conflict",
            Self::NoModel => "NoModel",
            Self::TooManyModels => "TooManyModels",
            Self::TooMuchMemory => "TooMuchMemory",
            Self::TooManyGpus => "TooManyGpus",
            Self::MatchesNothing => "MatchesNothing",
            Self::ExpressionTooLong => "ExpressionTooLong",
            Self::NoSuchContainer => "NoSuchContainer",
            Self::NoEqual => "NoEqual",
            Self::UnknownKey => "UnknownKey",
            Self::UnknownKind => "UnknownKind",
            Self::Malformed => "Malformed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A line about one object of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The object: `Deployment team-a/train`.
    pub object: String,
    /// What is said of it.
    pub outcome: Outcome,
}

/// What is said of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A field changed.
    Changed(Change),
    /// A field is refused. The object stays as it is.
    Refused(Refusal),
    /// The object is HAMi's or KAI's own and stays as it is.
    Left(String),
}

/// Changes and refusals under collection.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) changes: Vec<Change>,
    pub(crate) refusals: Vec<Refusal>,
}

impl Report {
    pub(crate) fn change(&mut self, field: impl Into<String>, became: impl Into<String>) {
        self.changes.push(Change { field: field.into(), became: became.into() });
    }

    pub(crate) fn refuse(
        &mut self,
        reason: Reason,
        field: impl Into<String>,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.refusals.push(Refusal {
            reason,
            field: field.into(),
            cause: cause.into(),
            remedy: remedy.into(),
        });
    }
}
