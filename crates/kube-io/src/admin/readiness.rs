//! The checks that must pass before a program is ready.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All checks of a program. The program is ready when at least one exists and all pass.
#[derive(Debug, Default)]
pub struct Readiness {
    checks: Mutex<BTreeMap<String, Result<(), String>>>,
}

/// One check. Dropping it removes the check.
#[derive(Debug)]
pub struct Check {
    readiness: Arc<Readiness>,
    name: String,
}

impl Readiness {
    /// Adds a check that fails until it passes. `name` is its subject, `reason` what it waits for.
    pub fn check(self: &Arc<Self>, name: impl Into<String>, reason: impl Into<String>) -> Check {
        let name = name.into();
        self.lock().insert(name.clone(), Err(reason.into()));
        Check { readiness: Arc::clone(self), name }
    }

    /// Whether all checks pass, and one line for each check, failed ones first.
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
        // The map is consistent at every moment, so a panic elsewhere does not matter.
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check {
    /// The check passes.
    pub fn pass(&self) {
        self.readiness.lock().insert(self.name.clone(), Ok(()));
    }

    /// The check fails for this reason.
    pub fn fail(&self, reason: impl Into<String>) {
        self.readiness.lock().insert(self.name.clone(), Err(reason.into()));
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        self.readiness.lock().remove(&self.name);
    }
}
