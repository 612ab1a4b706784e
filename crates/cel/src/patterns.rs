//! Compiled regular expressions. Literal patterns are compiled with the expression; others at first
//! use, up to a limit.

mod translate;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use regex::Regex;

use crate::budget::Budget;
use crate::fault::Fault;

/// Limit of cached patterns that are not literals.
const MAX_RUNTIME_PATTERNS: usize = 32;

/// Limit of a compiled pattern's size in bytes.
const MAX_COMPILED_BYTES: usize = 1 << 18;

/// Work of compiling a pattern at run time.
const COMPILE_WORK: usize = 20_000;

/// Compiled patterns of an expression.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    literal: BTreeMap<String, Regex>,
    computed: Mutex<BTreeMap<String, Arc<Regex>>>,
}

impl Patterns {
    /// Compiles a literal pattern.
    pub(crate) fn add(&mut self, pattern: &str) -> Result<(), String> {
        if !self.literal.contains_key(pattern) {
            self.literal.insert(pattern.to_owned(), compile(pattern)?);
        }
        Ok(())
    }

    /// Calls a function with a compiled pattern.
    pub(crate) fn with<T>(
        &self,
        pattern: &str,
        budget: &mut Budget,
        then: impl FnOnce(&Regex) -> T,
    ) -> Result<T, Fault> {
        if let Some(regex) = self.literal.get(pattern) {
            return Ok(then(regex));
        }
        let kept = {
            let computed = self.computed.lock().unwrap_or_else(PoisonError::into_inner);
            computed.get(pattern).map(Arc::clone)
        };
        if let Some(regex) = kept {
            return Ok(then(&regex));
        }
        budget.work(COMPILE_WORK.saturating_add(pattern.len().saturating_mul(100)))?;
        let regex = Arc::new(compile(pattern).map_err(Fault::because)?);
        let mut computed = self.computed.lock().unwrap_or_else(PoisonError::into_inner);
        if computed.len() < MAX_RUNTIME_PATTERNS {
            computed.insert(pattern.to_owned(), Arc::clone(&regex));
        }
        drop(computed);
        Ok(then(&regex))
    }
}

/// Compiles a pattern in Go's syntax.
fn compile(pattern: &str) -> Result<Regex, String> {
    let error = |why: &str| format!("{pattern:?} is not a regular expression: {why}");
    let translated = translate::translate(pattern).map_err(|why| error(&why))?;
    regex::RegexBuilder::new(&translated).size_limit(MAX_COMPILED_BYTES).build().map_err(|reason| {
        let reason = reason.to_string();
        // The last line describes the error; the lines before show its position.
        error(reason.lines().last().unwrap_or_default().trim_start_matches("error: "))
    })
}
