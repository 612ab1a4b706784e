//! A function that expressions can call: its price, its implementation and its signatures.

use crate::budget::Budget;
use crate::fault::Fault;
use crate::patterns::Patterns;
use crate::price::Price;
use crate::types::{self, Type};
use crate::value::Value;

/// What a function may use besides its arguments.
pub(crate) struct Tools<'p> {
    /// What the evaluation has cost.
    pub(crate) budget: Budget,
    /// Compiled patterns.
    pub(crate) patterns: &'p Patterns,
}

/// A function's implementation. It sees arguments of any types and refuses those it does not know.
pub(crate) type Run = for<'a> fn(&[Value<'a>], &mut Tools<'_>) -> Result<Value<'a>, Fault>;

/// A row of the table.
pub(crate) type Row = (&'static str, Price, Run, &'static [&'static str]);

/// A function.
#[derive(Debug)]
pub(crate) struct Function {
    /// Name; operators by the names that CEL gives them.
    pub(crate) name: &'static str,
    /// What a call costs.
    pub(crate) price: Price,
    /// What it does.
    pub(crate) run: Run,
    /// What it takes and gives.
    pub(crate) overloads: Vec<Overload>,
}

/// A way to call a function.
#[derive(Debug)]
pub(crate) struct Overload {
    /// Whether it is called on its first argument.
    pub(crate) is_member: bool,
    /// Types of the arguments.
    pub(crate) args: Vec<Type>,
    /// Type of the result.
    pub(crate) result: Type,
}

impl Function {
    /// The signatures that fit a way of calling.
    pub(crate) fn called(&self, as_member: bool) -> impl Iterator<Item = &Overload> {
        self.overloads.iter().filter(move |overload| overload.is_member == as_member)
    }
}

/// Reads a signature like `.(quantity, int) quantity`; a test sees to it that all can be read.
pub(crate) fn overload(signature: &str) -> Option<Overload> {
    let is_member = signature.starts_with('.');
    let (args, result) = signature.strip_prefix('.').unwrap_or(signature).split_once(") ")?;
    let args = args.strip_prefix('(')?;
    let mut parsed = Vec::new();
    let mut start = 0;
    let mut depth = 0_usize;
    for (at, sign) in args.char_indices() {
        match sign {
            '<' => depth += 1,
            '>' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parsed.push(types::parse(args.get(start..at)?)?);
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = args.get(start..)?;
    if !last.trim().is_empty() {
        parsed.push(types::parse(last)?);
    }
    Some(Overload { is_member, args: parsed, result: types::parse(result)? })
}
