//! The API path of a kind.

use crate::objects::Kind;

/// Number of kinds that are always watched.
pub(super) const ALWAYS_WATCHED: usize = 13;

/// A served kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// API group; empty for the core.
    pub(super) group: String,
    /// Its kind, with version.
    pub(super) kind: Kind,
    /// Plural name, in paths and RBAC rules.
    pub(super) plural: String,
    /// Label selector of the watched objects.
    pub(super) labels: Option<String>,
}

impl Resource {
    pub(super) fn new(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind_of(group, version, kind),
            plural: plural.to_owned(),
            labels: None,
        }
    }

    /// The path of all objects.
    pub(super) fn path(&self) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        format!("{root}/{}/{}", self.kind.api_version, self.plural)
    }
}

/// A kind of a group and version.
pub(super) fn kind_of(group: &str, version: &str, kind: &str) -> Kind {
    let api_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Kind { api_version, kind: kind.to_owned() }
}
