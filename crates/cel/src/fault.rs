//! Errors of an evaluation.

use std::borrow::Cow;

/// Why an expression or a part of it has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An error of the expression, which `&&`, `||` and macros may absorb.
    Error(Cow<'static, str>),
    /// The expression exceeded its budget. Nothing absorbs this.
    TooCostly,
}

impl Fault {
    /// An error with a constant text.
    pub(crate) fn error(text: &'static str) -> Self {
        Self::Error(Cow::Borrowed(text))
    }

    /// An error with a computed text.
    pub(crate) fn because(text: String) -> Self {
        Self::Error(Cow::Owned(text))
    }
}
