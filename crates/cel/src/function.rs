//! Functions of expressions: price, implementation and signatures.

use crate::budget::Budget;
use crate::fault::Fault;
use crate::patterns::Patterns;
use crate::price::Price;
use crate::types::{self, Type};
use crate::value::Value;

/// Context of a call.
pub(crate) struct Tools<'p> {
    /// Cost of the evaluation so far.
    pub(crate) budget: Budget,
    /// Compiled patterns.
    pub(crate) patterns: &'p Patterns,
}

/// The implementation of a function. It accepts arguments of any types and rejects unknown ones.
pub(crate) type Run = for<'a> fn(&[Value<'a>], &mut Tools<'_>) -> Result<Value<'a>, Fault>;

/// A row of a function table: name, price, implementation, signatures.
pub(crate) type Row = (&'static str, Price, Run, &'static [&'static str]);

/// A function.
#[derive(Debug)]
pub(crate) struct Function {
    /// Name; for operators CEL's internal one.
    pub(crate) name: &'static str,
    /// Price of a call.
    pub(crate) price: Price,
    /// The implementation.
    pub(crate) run: Run,
    /// The signatures.
    pub(crate) overloads: Vec<Overload>,
}

/// A signature.
#[derive(Debug)]
pub(crate) struct Overload {
    /// Whether it is a member function, with its target as the first argument.
    pub(crate) is_member: bool,
    /// Types of the arguments.
    pub(crate) args: Vec<Type>,
    /// Type of the result.
    pub(crate) result: Type,
}

impl Function {
    /// The signatures of member or global calls.
    pub(crate) fn called(&self, as_member: bool) -> impl Iterator<Item = &Overload> {
        self.overloads.iter().filter(move |overload| overload.is_member == as_member)
    }
}

/// Parses a signature like `.(quantity, int) quantity`. A test checks that all can be parsed.
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
