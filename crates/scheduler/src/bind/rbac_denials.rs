//! Refusals that are about who asks, not about what is asked.
//!
//! An API server that starts serves before its authorizer has read roles and bindings, so for a second or two it
//! refuses everybody, and its authenticator may not know tokens yet. That passes, and is waited for. Where a
//! right is really missing, each order would wait for it in vain and hold up the others; so a right that did not
//! come within [`ACCESS_SYNC_TIMEOUT`] is remembered as missing, and from then on its refusal is final at once, until a
//! request shows that it is there.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::Instant;

/// How long a right may be missing before it is believed: longer than a server that starts takes to read who may
/// do what, shorter than a person who forgot one waits to be told.
const ACCESS_SYNC_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a refusal is the authenticator's or the authorizer's.
///
/// 401 is the authenticator's alone (apiserver `pkg/endpoints/filters/authentication.go`). 403 is the authorizer's where it
/// says `<resource> "<name>" is forbidden: User "<who>" cannot <verb> ...`: `Forbidden` and `forbiddenMessage` in
/// `pkg/endpoints/handlers/responsewriters/errors.go`, within `NewForbidden` of apimachinery `pkg/api/errors/errors.go`, which
/// says `forbidden: ...` where there is no resource. Admission uses `NewForbidden` too, with words of its own
/// (`is forbidden: exceeded quota: ...`).
pub(super) fn is_access_denial(status: StatusCode, message: &str) -> bool {
    match status {
        StatusCode::UNAUTHORIZED => true,
        StatusCode::FORBIDDEN => message
            .split_once("forbidden: User \"")
            .is_some_and(|(_, rest)| rest.contains("\" cannot ")),
        _ => false,
    }
}

/// Rights that are known to be missing. Shared by all orders.
#[derive(Debug, Default)]
pub(super) struct RbacDenials(Mutex<BTreeSet<Key>>);

/// Verb, resource and namespace: what roles give.
type Key = (String, &'static str, String);

/// The right to one request.
#[derive(Debug)]
pub(super) struct AccessCheck<'a> {
    denials: &'a RbacDenials,
    method: &'a Method,
    resource: &'static str,
    path: &'a str,
    /// Until when it is waited for, once it was refused.
    deadline: Option<Instant>,
}

impl RbacDenials {
    /// The right to a request.
    pub(super) fn of<'a>(
        &'a self,
        method: &'a Method,
        resource: &'static str,
        path: &'a str,
    ) -> AccessCheck<'a> {
        AccessCheck { denials: self, method, resource, path, deadline: None }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        // Whole at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccessCheck<'_> {
    /// It was refused: whether it is worth to ask again.
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

    /// The server has looked at the request itself.
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
mod tests {
    use super::*;

    #[test]
    fn authorizer_denials_are_distinguished_from_admission() {
        let of_rights = [
            r#"pods "p" is forbidden: User "octavo" cannot get resource "pods" in API group "" in the namespace "team""#,
            r#"resourceclaims.resource.k8s.io "c" is forbidden: User "system:serviceaccount:octavo:s" cannot patch resource "resourceclaims/status" in API group "resource.k8s.io" in the namespace "team": RBAC: clusterrole.rbac.authorization.k8s.io "octavo" not found"#,
            r#"forbidden: User "system:anonymous" cannot get path "/version""#,
        ];
        for message in of_rights {
            assert!(is_access_denial(StatusCode::FORBIDDEN, message), "{message}");
            assert!(!is_access_denial(StatusCode::CONFLICT, message), "{message}");
        }
        let of_others = [
            r#"resourceclaims.resource.k8s.io "c" is forbidden: exceeded quota: q, requested: count/resourceclaims=1"#,
            r#"pods "p" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"#,
            r#"admission webhook "w" denied the request: User "octavo" cannot do that"#,
        ];
        for message in of_others {
            assert!(!is_access_denial(StatusCode::FORBIDDEN, message), "{message}");
        }
        assert!(is_access_denial(StatusCode::UNAUTHORIZED, "Unauthorized"));
    }
}
