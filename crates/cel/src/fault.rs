//! What goes wrong while an expression runs.

use std::borrow::Cow;

/// Why an expression, or a part of it, has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An error of the expression, which `&&`, `||` and macros may absorb.
    Error(Cow<'static, str>),
    /// The expression did too much. Nothing absorbs it.
    TooCostly,
}

impl Fault {
    /// An error with a text that is always the same.
    pub(crate) fn error(text: &'static str) -> Self {
        Self::Error(Cow::Borrowed(text))
    }

    /// An error with a text that depends on values.
    pub(crate) fn because(text: String) -> Self {
        Self::Error(Cow::Owned(text))
    }
}
