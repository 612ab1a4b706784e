//! Denials by the authenticator or the authorizer, as opposed to rejections of the request itself.
//!
//! An API server that starts serves requests before its authorizer has read roles and bindings. For
//! a second or two it denies every client, and its authenticator may not know tokens yet. These
//! denials are retried. A right that is really missing would delay each operation by the same wait.
//! So a right that is still denied after [`ACCESS_SYNC_TIMEOUT`] is remembered as missing. From
//! then on its denial is final at once, until a request succeeds.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::Instant;

/// How long a denial is retried. A starting server needs less to read its RBAC objects, and a
/// person who forgot a role gets the error soon enough.
const ACCESS_SYNC_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a rejection comes from the authenticator or the authorizer.
///
/// Only the authenticator answers 401 (apiserver `pkg/endpoints/filters/authentication.go`). The
/// authorizer answers 403 with `<resource> "<name>" is forbidden: User "<user>" cannot <verb> ...`.
/// See `Forbidden` and `forbiddenMessage` in `pkg/endpoints/handlers/responsewriters/errors.go`,
/// and `NewForbidden` in apimachinery `pkg/api/errors/errors.go`, which writes `forbidden: ...` for
/// requests without a resource. Admission uses `NewForbidden` with its own messages (`is forbidden:
/// exceeded quota: ...`).
pub(super) fn is_access_denial(status: StatusCode, message: &str) -> bool {
    match status {
        StatusCode::UNAUTHORIZED => true,
        StatusCode::FORBIDDEN => message
            .split_once("forbidden: User \"")
            .is_some_and(|(_, rest)| rest.contains("\" cannot ")),
        _ => false,
    }
}

/// Rights that are known to be missing. Shared by all operations.
#[derive(Debug, Default)]
pub(super) struct RbacDenials(Mutex<BTreeSet<Key>>);

/// Verb, resource and namespace, the granularity of roles.
type Key = (String, &'static str, String);

/// Access to one request, while it is retried.
#[derive(Debug)]
pub(super) struct AccessCheck<'a> {
    denials: &'a RbacDenials,
    method: &'a Method,
    resource: &'static str,
    path: &'a str,
    /// End of the retries, set by the first denial.
    deadline: Option<Instant>,
}

impl RbacDenials {
    /// Tracks access to a request.
    pub(super) fn of<'a>(
        &'a self,
        method: &'a Method,
        resource: &'static str,
        path: &'a str,
    ) -> AccessCheck<'a> {
        AccessCheck { denials: self, method, resource, path, deadline: None }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        // The set is consistent after every statement, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccessCheck<'_> {
    /// Records a denial. Returns whether a retry is worthwhile.
    pub(super) fn should_retry(&mut self) -> bool {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + ACCESS_SYNC_TIMEOUT);
        let mut missing = self.denials.lock();
        if missing.contains(&self.key()) {
            return false;
        }
        if Instant::now() < deadline {
            return true;
        }
        missing.insert(self.key());
        false
    }

    /// Records that the server passed the request through authorization.
    pub(super) fn record_allowed(&self) {
        let mut missing = self.denials.lock();
        if !missing.is_empty() {
            missing.remove(&self.key());
        }
    }

    fn key(&self) -> Key {
        let namespace = self.path.split_once("/namespaces/").map(|(_, rest)| rest);
        let namespace = namespace.and_then(|rest| rest.split('/').next()).unwrap_or_default();
        (self.method.to_string(), self.resource, namespace.to_owned())
    }
}

#[cfg(test)]
mod tests;
