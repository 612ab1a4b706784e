//! Errors of selectors.

use crate::budget::COST_LIMIT;

/// Why a selector has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CelError {
    /// The text is not a valid expression, or can never be a bool.
    #[error("selector {} is invalid at character {at}: {why}", quoted(.expression))]
    Compile {
        /// The expression.
        expression: String,
        /// Character at which the error was found, counted from 1.
        at: usize,
        /// What is wrong.
        why: String,
    },
    /// The device lacks an attribute, or it has another type.
    #[error("selector {} failed for device {device}: {why}", quoted(.expression))]
    Runtime {
        /// The expression.
        expression: String,
        /// Name of the device.
        device: String,
        /// What went wrong.
        why: String,
    },
    /// The result is not a bool.
    #[error("selector {} is of type {found} for device {device}, not a bool", quoted(.expression))]
    NotBool {
        /// The expression.
        expression: String,
        /// Name of the device.
        device: String,
        /// Type of the value.
        found: &'static str,
    },
    /// The expression exceeds its cost limit.
    #[error(
        "selector {} costs more than {COST_LIMIT} units for device {device}: simplify it",
        quoted(.expression)
    )]
    TooCostly {
        /// The expression.
        expression: String,
        /// Name of the device.
        device: String,
    },
    /// The expression exceeds the API's length limit.
    #[error("selector {} has {length} bytes, 10240 are allowed: shorten it", quoted(.expression))]
    TooLong {
        /// The expression.
        expression: String,
        /// Its length in bytes.
        length: usize,
    },
}

/// An expression in quotes, truncated if it is long.
fn quoted(expression: &str) -> String {
    const MAX_SHOWN_CHARS: usize = 200;
    match expression.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{:?}…", expression.get(..end).unwrap_or_default()),
        None => format!("{expression:?}"),
    }
}
