//! Why the pods of a group wait before any placement is tried.

/// Why a group, or a pod's part in one, is invalid or unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GroupError {
    reason: &'static str,
    message: String,
}

impl GroupError {
    pub(super) fn new(reason: &'static str, message: String) -> Self {
        Self { reason, message }
    }

    /// The group contradicts itself.
    pub(super) fn invalid(message: String) -> Self {
        Self::new("InvalidPodGroup", message)
    }

    /// A label or annotation has an invalid value.
    pub(super) fn invalid_hint(key: &str, found: &str, wanted: &str) -> Self {
        let message = format!("{key}: {found:?} must be {wanted}; correct the label or annotation");
        Self::invalid(message)
    }

    /// A feature that Octavo does not support.
    pub(super) fn unsupported(group: &str, what: &str, hint: &str) -> Self {
        Self::new("NotSupported", format!("{group}: {what} is not supported; {hint}"))
    }

    /// Reason of conditions and events, and label of metrics.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}
