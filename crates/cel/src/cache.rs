//! A cache of compiled selectors. Claims and classes repeat the same few.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{CelError, Selector};

/// Limit of cached expressions.
const MAX_ENTRIES: usize = 512;

/// A bounded cache of compiled expressions, including errors. Threads can share it.
#[derive(Debug, Default)]
pub struct SelectorCache {
    kept: Mutex<CacheState>,
}

/// The entries, and a count of uses that finds the least recently used one.
#[derive(Debug, Default)]
struct CacheState {
    entries: BTreeMap<String, Entry>,
    uses: u64,
}

/// The result for an expression, and its last use.
#[derive(Debug)]
struct Entry {
    outcome: Result<Arc<Selector>, CelError>,
    used: u64,
}

impl SelectorCache {
    /// The compiled expression or its error.
    pub fn get(&self, expression: &str) -> Result<Arc<Selector>, CelError> {
        if let Some(outcome) = self.find(expression) {
            return outcome;
        }
        // Two threads may compile the same expression; their results are equal.
        let outcome = Selector::compile(expression).map(Arc::new);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.uses += 1;
        let used = kept.uses;
        if kept.entries.len() >= MAX_ENTRIES && !kept.entries.contains_key(expression) {
            let oldest = kept.entries.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(oldest) = oldest.map(|(expression, _)| expression.clone()) {
                kept.entries.remove(&oldest);
            }
        }
        kept.entries.insert(expression.to_owned(), Entry { outcome: outcome.clone(), used });
        outcome
    }

    fn find(&self, expression: &str) -> Option<Result<Arc<Selector>, CelError>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.uses += 1;
        let used = kept.uses;
        let entry = kept.entries.get_mut(expression)?;
        entry.used = used;
        Some(entry.outcome.clone())
    }

    /// Number of cached expressions.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).entries.len()
    }
}
