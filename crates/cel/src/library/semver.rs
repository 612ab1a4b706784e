//! Semantic versions, and comparisons of versions and quantities.

use std::cmp::Ordering;

use crate::fault::Fault;
use crate::function::{Row, Tools};
use crate::price::Price;
use crate::value::{Semver, Value, no_overload};

pub(super) const TABLE: &[Row] = &[
    ("semver", Price::Traverse, semver, &["(string) semver", "(string, bool) semver"]),
    ("isSemver", Price::Traverse, is_semver, &["(string) bool", "(string, bool) bool"]),
    ("major", Price::One, |args, _| number(args, |[major, _, _]| major), NUMBER),
    ("minor", Price::One, |args, _| number(args, |[_, minor, _]| minor), NUMBER),
    ("patch", Price::One, |args, _| number(args, |[_, _, patch]| patch), NUMBER),
    ("compareTo", Price::One, compare_to, &[".(quantity, quantity) int", ".(semver, semver) int"]),
    ("isGreaterThan", Price::One, is_greater, COMPARE),
    ("isLessThan", Price::One, is_less, COMPARE),
];

const NUMBER: &[&str] = &[".(semver) int"];
const COMPARE: &[&str] = &[".(quantity, quantity) bool", ".(semver, semver) bool"];

/// Parses the arguments: text, and whether to parse it tolerantly.
fn parse(args: &[Value<'_>], name: &str) -> Result<Option<Semver>, Fault> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => {
            Ok(Semver::parse(text))
        }
        [Value::String(text), Value::Bool(true)] => Ok(Semver::parse_tolerant(text)),
        _ => Err(no_overload(name, args)),
    }
}

fn semver<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match parse(args, "semver")? {
        Some(version) => Ok(Value::Semver(version.into())),
        None => Err(Fault::error("semver() needs a semantic version")),
    }
}

fn is_semver<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    Ok(Value::Bool(parse(args, "isSemver")?.is_some()))
}

#[allow(clippy::cast_possible_wrap, reason = "as Kubernetes does")]
fn number<'a>(args: &[Value<'a>], of: fn([u64; 3]) -> u64) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Semver(version)] => Ok(Value::Int(of(version.numbers) as i64)),
        _ => Err(no_overload("a version's part", args)),
    }
}

fn order(args: &[Value<'_>], name: &str) -> Result<Ordering, Fault> {
    match args {
        [Value::Quantity(a), Value::Quantity(b)] => Ok(a.quantity().cmp(&b.quantity())),
        [Value::Semver(a), Value::Semver(b)] => Ok(a.cmp_precedence(b)),
        _ => Err(no_overload(name, args)),
    }
}

fn compare_to<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    Ok(Value::Int(match order(args, "compareTo")? {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }))
}

fn is_greater<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    Ok(Value::Bool(order(args, "isGreaterThan")?.is_gt()))
}

fn is_less<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    Ok(Value::Bool(order(args, "isLessThan")?.is_lt()))
}
