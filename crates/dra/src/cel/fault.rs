//! What goes wrong while an expression runs.

use std::borrow::Cow;

use super::value::Value;

/// Why an expression, or a part of it, has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// An error of the expression, which `&&`, `||` and macros may absorb.
    Error(Cow<'static, str>),
    /// The expression did too much. Nothing absorbs it.
    TooCostly,
}

impl Fault {
    /// An error with a text that is always the same.
    pub(super) fn error(text: &'static str) -> Self {
        Self::Error(Cow::Borrowed(text))
    }

    /// An error with a text that depends on values.
    pub(super) fn because(text: String) -> Self {
        Self::Error(Cow::Owned(text))
    }
}

/// A function does not take values of these types.
pub(super) fn no_overload(function: &str, args: &[Value<'_>]) -> Fault {
    let types: Vec<&str> = args.iter().map(Value::type_name).collect();
    Fault::because(format!("no such overload: {function} of {}", types.join(", ")))
}
