//! What a program waits for before it is ready, and why.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All checks of a program. It is ready when every one passes, and at least one exists.
#[derive(Debug, Default)]
pub struct Readiness {
    checks: Mutex<BTreeMap<String, Result<(), String>>>,
}

/// One check; it goes with the value.
#[derive(Debug)]
pub struct Check {
    readiness: Arc<Readiness>,
    name: String,
}

impl Readiness {
    /// Adds a check that fails until it passes. `name` says what of, `reason` what it waits for.
    pub fn check(self: &Arc<Self>, name: impl Into<String>, reason: impl Into<String>) -> Check {
        let name = name.into();
        self.lock().insert(name.clone(), Err(reason.into()));
        Check { readiness: Arc::clone(self), name }
    }

    /// Whether all checks pass, and a line for each, failed ones first.
    pub fn report(&self) -> (bool, String) {
        let checks = self.lock();
        let mut report = String::new();
        for (name, result) in checks.iter() {
            if let Err(reason) = result {
                report.extend(["not ready: ", name, ": ", reason, "\n"]);
            }
        }
        let is_ready = report.is_empty() && !checks.is_empty();
        if checks.is_empty() {
            report.push_str("not ready: starting\n");
        }
        for name in checks.iter().filter(|(_, result)| result.is_ok()).map(|(name, _)| name) {
            report.extend(["ready: ", name, "\n"]);
        }
        (is_ready, report)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Result<(), String>>> {
        // The map is whole at every moment: a panic elsewhere does not spoil it.
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check {
    /// The check passes.
    pub fn pass(&self) {
        self.readiness.lock().insert(self.name.clone(), Ok(()));
    }

    /// The check fails, and why.
    pub fn fail(&self, reason: impl Into<String>) {
        self.readiness.lock().insert(self.name.clone(), Err(reason.into()));
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        self.readiness.lock().remove(&self.name);
    }
}
