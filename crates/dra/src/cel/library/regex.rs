//! Regular expressions. A pattern is compiled once: those that an expression spells out when it is
//! compiled, others when they are met, up to a number.

mod translate;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use regex::Regex;

use super::{Row, Tools};
use crate::cel::cost::Price;
use crate::cel::fault::{Fault, no_overload};
use crate::cel::value::Value;

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

/// Patterns kept that an expression does not spell out.
const MAX_KEPT: usize = 32;

/// Bytes that a compiled pattern may take.
const MAX_SIZE: usize = 1 << 18;

/// Work of matching a byte: a short pattern may have thousands of states.
const MATCHING: usize = 100;

/// Work of compiling a pattern met while running, in the budget's measure; it is dear.
const COMPILING: usize = 20_000;

/// Compiled patterns of an expression.
#[derive(Debug, Default)]
pub(in crate::cel) struct Patterns {
    spelled: BTreeMap<String, Regex>,
    met: Mutex<BTreeMap<String, Arc<Regex>>>,
}

impl Patterns {
    /// Compiles a pattern that the expression spells out.
    pub(in crate::cel) fn add(&mut self, pattern: &str) -> Result<(), String> {
        if !self.spelled.contains_key(pattern) {
            self.spelled.insert(pattern.to_owned(), compile(pattern)?);
        }
        Ok(())
    }

    /// Does something with a compiled pattern.
    fn with<T>(
        &self,
        pattern: &str,
        tools: &mut crate::cel::cost::Budget,
        then: impl FnOnce(&Regex) -> T,
    ) -> Result<T, Fault> {
        if let Some(regex) = self.spelled.get(pattern) {
            return Ok(then(regex));
        }
        let kept = {
            let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
            met.get(pattern).map(Arc::clone)
        };
        if let Some(regex) = kept {
            return Ok(then(&regex));
        }
        tools.work(COMPILING.saturating_add(pattern.len().saturating_mul(100)))?;
        let regex = Arc::new(compile(pattern).map_err(Fault::because)?);
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        if met.len() < MAX_KEPT {
            met.insert(pattern.to_owned(), Arc::clone(&regex));
        }
        drop(met);
        Ok(then(&regex))
    }
}

/// Compiles a pattern of Go's syntax.
fn compile(pattern: &str) -> Result<Regex, String> {
    let error = |why: &str| format!("{pattern:?} is no regular expression: {why}");
    let translated = translate::translate(pattern).map_err(|why| error(&why))?;
    regex::RegexBuilder::new(&translated).size_limit(MAX_SIZE).build().map_err(|reason| {
        let reason = reason.to_string();
        // Its last line says what is wrong, those before show where.
        error(reason.lines().last().unwrap_or_default().trim_start_matches("error: "))
    })
}

fn matches<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text), Value::String(pattern)] => {
            tools.budget.work(text.len().saturating_mul(MATCHING))?;
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
            tools.budget.work(text.len().saturating_mul(MATCHING))?;
            let found = tools.patterns.with(pattern, &mut tools.budget, |regex| {
                regex.find(text).map_or_else(String::new, |found| found.as_str().to_owned())
            })?;
            Ok(Value::text(found))
        }
        _ => Err(no_overload("find", args)),
    }
}

fn find_all<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let (text, pattern, most) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, usize::MAX),
        [Value::String(text), Value::String(pattern), Value::Int(most)] => {
            (text, pattern, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        _ => return Err(no_overload("findAll", args)),
    };
    // The search for each next match may go through all that is left.
    tools.budget.work(text.len().saturating_mul(MATCHING.max(text.len() / 4)))?;
    let found = tools.patterns.with(pattern, &mut tools.budget, |regex| {
        let found = regex.find_iter(text).take(most);
        found.map(|found| Value::text(found.as_str())).collect()
    })?;
    Ok(Value::list(found))
}
