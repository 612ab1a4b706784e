//! Errors of policies.

use super::decimal::DecimalError;
use crate::objective::CostTerm;

/// Why a policy is invalid, by itself or in a cluster. Nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// No name.
    #[error("name: it is empty; decisions are explained by the name of their policy")]
    NoName,
    /// Nothing to compare by.
    #[error("order: it is empty; name at least one unit to compare by. {}", units())]
    EmptyOrder,
    /// A step that is not one of the two forms.
    #[error("{field}: a step has either a unit or a sum of units, and this one has {found}")]
    StepForm {
        /// Path of the field.
        field: String,
        /// The forms present.
        found: &'static str,
    },
    /// An unknown cost term.
    #[error("{field}: there is no unit {found:?}; did you mean {nearest:?}? {}", units())]
    UnknownUnit {
        /// Path of the field.
        field: String,
        /// The value as written.
        found: String,
        /// The term with the nearest name.
        nearest: &'static str,
    },
    /// A term twice: the second has no influence, or doubles a weight by accident.
    #[error("{field}: the unit {unit} is in {first} already; name each unit once")]
    DuplicateUnit {
        /// Path of the field.
        field: String,
        /// The term.
        unit: CostTerm,
        /// Path of the field that has it first.
        first: String,
    },
    /// A weight that is none.
    #[error("{field}: {found:?} is not a weight: {why}")]
    Weight {
        /// Path of the field.
        field: String,
        /// The value as written.
        found: String,
        /// Why not.
        why: DecimalError,
    },
    /// A weight of zero.
    #[error("{field}: with the weight 0 the unit {unit} has no influence; leave it out")]
    ZeroWeight {
        /// Path of the field.
        field: String,
        /// The term.
        unit: CostTerm,
    },
    /// A tolerance that is none.
    #[error("{field}: {why}")]
    Tolerance {
        /// Path of the field.
        field: String,
        /// Why not.
        why: &'static str,
    },
    /// A limit that is too low for anything to be placed.
    #[error("{field}: it is {found}, but {least} is the least that makes sense; {hint}")]
    TooLow {
        /// Path of the field.
        field: String,
        /// The value as written.
        found: i64,
        /// The least.
        least: i64,
        /// The fix.
        hint: &'static str,
    },
    /// Fields that exclude one another.
    #[error("{field}: {why}")]
    Contradiction {
        /// Paths of the fields.
        field: &'static str,
        /// Why.
        why: &'static str,
    },
    /// One level with two numbers of spare nodes.
    #[error("{field}: spare nodes of the level {level:?} are in {first} already")]
    DuplicateSpares {
        /// Path of the field.
        field: String,
        /// The level.
        level: String,
        /// Path of the field that has it first.
        first: String,
    },
    /// A power limit below the power of the empty cluster.
    #[error(
        "{field}: the limit is {most} W, but the cluster draws {idle} W when nothing runs; nothing \
         could ever be placed"
    )]
    BelowIdle {
        /// Path of the field.
        field: &'static str,
        /// The limit in watts.
        most: i64,
        /// Power of the empty cluster in watts.
        idle: i64,
    },
    /// A level that the topology has not.
    #[error("{field}: the topology has no level {found:?}; its levels are: {known}")]
    UnknownLevel {
        /// Path of the field.
        field: String,
        /// The value as written.
        found: String,
        /// The levels, joined.
        known: String,
    },
    /// More spare nodes than a domain has.
    #[error("{field}: {wanted} nodes with GPUs are to be left free, but {domain} has only {have}")]
    TooManySpares {
        /// Path of the field.
        field: String,
        /// Spare nodes wanted.
        wanted: i64,
        /// The smallest domain, in words.
        domain: String,
        /// Its nodes with GPUs.
        have: i64,
    },
}

/// All terms in one sentence.
fn units() -> String {
    let names: Vec<_> = CostTerm::ALL.into_iter().map(CostTerm::name).collect();
    format!("Units are: {}", names.join(", "))
}

/// The term whose name is nearest to `written` by edit distance, ignoring case; the first of
/// equals.
pub(super) fn nearest(written: &str) -> &'static str {
    let written = written.to_lowercase();
    let by_distance = |name: &&str| distance(&written, &name.to_lowercase());
    CostTerm::ALL.into_iter().map(CostTerm::name).min_by_key(by_distance).unwrap_or_default()
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (line, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, second) in b.iter().enumerate() {
            let change = diagonal + usize::from(letter != *second);
            diagonal = row[column + 1];
            row[column + 1] = change.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
