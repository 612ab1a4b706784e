//! What can be wrong with a selector.

use crate::budget::COST_LIMIT;

/// Why a selector has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CelError {
    /// The text is no expression, or one that can never be a bool.
    #[error("selector {} is invalid at character {at}: {why}", shown(.expression))]
    Compile {
        /// The expression.
        expression: String,
        /// Character at which it was noticed, counted from 1.
        at: usize,
        /// What is wrong.
        why: String,
    },
    /// The device lacks what the expression asks for, or has it in another type.
    #[error("selector {} failed for device {device}: {why}", shown(.expression))]
    Runtime {
        /// The expression.
        expression: String,
        /// Name of the device.
        device: String,
        /// What went wrong.
        why: String,
    },
    /// The expression's value is no bool.
    #[error("selector {} is of type {found} for device {device}, not a bool", shown(.expression))]
    NotBool {
        /// The expression.
        expression: String,
        /// Name of the device.
        device: String,
        /// Type of the value.
        found: &'static str,
    },
    /// The expression does too much.
    #[error(
        "selector {} costs more than {COST_LIMIT} units for device {device}: simplify it",
        shown(.expression)
    )]
    TooCostly {
        /// The expression.
        expression: String,
        /// Name of the device.
        device: String,
    },
    /// The expression is longer than the API allows.
    #[error("selector {} has {length} bytes, 10240 are allowed: shorten it", shown(.expression))]
    TooLong {
        /// The expression.
        expression: String,
        /// Its length in bytes.
        length: usize,
    },
}

/// An expression in quotes, the beginning of a long one.
fn shown(expression: &str) -> String {
    const MOST: usize = 200;
    match expression.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}…", expression.get(..end).unwrap_or_default()),
        None => format!("{expression:?}"),
    }
}
