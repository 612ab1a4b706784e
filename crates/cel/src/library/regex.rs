//! Regular expressions.

use crate::fault::Fault;
use crate::function::{Row, Tools};
use crate::price::Price;
use crate::value::{Value, no_overload};

pub(super) const TABLE: &[Row] = &[
    ("matches", Price::Regex, matches, &["(string, string) bool", ".(string, string) bool"]),
    ("find", Price::Regex, find, &[".(string, string) string"]),
    (
        "findAll",
        Price::Regex,
        find_all,
        &[".(string, string) list<string>", ".(string, string, int) list<string>"],
    ),
];

/// Work of matching one byte. A short pattern may have thousands of states.
const MATCH_WORK_PER_BYTE: usize = 100;

fn matches<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text), Value::String(pattern)] => {
            tools.budget.work(text.len().saturating_mul(MATCH_WORK_PER_BYTE))?;
            let is_match =
                tools.patterns.with(pattern, &mut tools.budget, |regex| regex.is_match(text))?;
            Ok(Value::Bool(is_match))
        }
        _ => Err(no_overload("matches", args)),
    }
}

fn find<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text), Value::String(pattern)] => {
            tools.budget.work(text.len().saturating_mul(MATCH_WORK_PER_BYTE))?;
            let found = tools.patterns.with(pattern, &mut tools.budget, |regex| {
                regex.find(text).map_or_else(String::new, |found| found.as_str().to_owned())
            })?;
            Ok(Value::text(found))
        }
        _ => Err(no_overload("find", args)),
    }
}

fn find_all<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let (text, pattern, limit) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, usize::MAX),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => {
            (text, pattern, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return Err(no_overload("findAll", args)),
    };
    // The search for each match may scan all of the rest.
    tools.budget.work(text.len().saturating_mul(MATCH_WORK_PER_BYTE.max(text.len() / 4)))?;
    let found = tools.patterns.with(pattern, &mut tools.budget, |regex| {
        let found = regex.find_iter(text).take(limit);
        found.map(|found| Value::text(found.as_str())).collect()
    })?;
    Ok(Value::list(found))
}
