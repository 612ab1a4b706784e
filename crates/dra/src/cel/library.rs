//! The functions that selectors have: CEL's own and the libraries that Kubernetes 1.36 adds to its
//! environment. Each is a row: name, price, implementation and the signatures that the checker knows.
//! A signature with a dot before it is a member's, its first type the one it is called on.

mod convert;
mod duration;
mod format;
mod formats;
mod lists;
mod net;
mod operators;
mod optionals;
mod quantity;
mod regex;
mod semver;
mod strings;

use std::collections::BTreeMap;
use std::sync::LazyLock;

pub(super) use self::format::{clauses, takes};
pub(super) use self::formats::pattern_length;
pub(super) use self::regex::Patterns;
use super::cost::{Budget, Price};
use super::fault::Fault;
use super::types::{self, Type};
use super::value::Value;

/// What a function may use besides its arguments.
pub(super) struct Tools<'p> {
    /// What the evaluation has cost.
    pub(super) budget: Budget,
    /// Compiled patterns.
    pub(super) patterns: &'p Patterns,
}

/// A function's implementation. It sees arguments of any types and refuses those it does not know.
pub(super) type Run = for<'a> fn(&[Value<'a>], &mut Tools<'_>) -> Result<Value<'a>, Fault>;

/// A row of the table.
type Row = (&'static str, Price, Run, &'static [&'static str]);

/// A function.
#[derive(Debug)]
pub(super) struct Function {
    /// Name; operators by the names that CEL gives them.
    pub(super) name: &'static str,
    /// What a call costs.
    pub(super) price: Price,
    /// What it does.
    pub(super) run: Run,
    /// What it takes and gives.
    pub(super) overloads: Vec<Overload>,
}

/// A way to call a function.
#[derive(Debug)]
pub(super) struct Overload {
    /// Whether it is called on its first argument.
    pub(super) is_member: bool,
    /// Types of the arguments.
    pub(super) args: Vec<Type>,
    /// Type of the result.
    pub(super) result: Type,
}

/// All rows.
const TABLES: [&[Row]; 12] = [
    operators::TABLE,
    convert::TABLE,
    duration::TABLE,
    strings::TABLE,
    format::TABLE,
    formats::TABLE,
    lists::TABLE,
    net::TABLE,
    optionals::TABLE,
    quantity::TABLE,
    regex::TABLE,
    semver::TABLE,
];

/// How many signatures are written down.
#[cfg(test)]
pub(super) fn signatures() -> usize {
    TABLES.into_iter().flatten().map(|(_, _, _, signatures)| signatures.len()).sum()
}

/// All functions by name.
pub(super) static FUNCTIONS: LazyLock<BTreeMap<&'static str, Function>> = LazyLock::new(|| {
    let mut functions: BTreeMap<&'static str, Function> = BTreeMap::new();
    for (name, price, run, signatures) in TABLES.into_iter().flatten().copied() {
        let overloads = signatures.iter().filter_map(|signature| overload(signature)).collect();
        functions.insert(name, Function { name, price, run, overloads });
    }
    functions
});

/// Reads a signature like `.(quantity, int) quantity`; a test sees to it that all can be read.
fn overload(signature: &str) -> Option<Overload> {
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

/// A function and how it is called, in words for errors.
impl Function {
    /// The signatures that fit a way of calling.
    pub(super) fn called(&self, as_member: bool) -> impl Iterator<Item = &Overload> {
        self.overloads.iter().filter(move |overload| overload.is_member == as_member)
    }
}
