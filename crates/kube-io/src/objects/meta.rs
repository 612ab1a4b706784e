//! Metadata of objects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Namespace and name of an object. The namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// Metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Namespace and name.
    pub name: ObjectName,
    /// UID.
    pub uid: Arc<str>,
    /// `resourceVersion`.
    pub version: Arc<str>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations, without `kubectl.kubernetes.io/last-applied-configuration`.
    pub annotations: BTreeMap<String, String>,
    /// The controlling owner.
    pub owner: Option<Owner>,
    /// Creation, seconds since 1970.
    pub created: i64,
    /// When the grace period of a requested deletion ends, in seconds since 1970
    /// (`deletionTimestamp`).
    pub deleted: Option<i64>,
    /// Finalizers.
    pub finalizers: Vec<String>,
}

impl Meta {
    /// `resourceVersion` as a number. It grows with each write, and is comparable among objects of
    /// one resource (KEP-5504). `None` if the server gave none.
    pub fn version_number(&self) -> Option<u64> {
        self.version.parse().ok()
    }
}

/// The controlling owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// `apiVersion`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: Arc<str>,
}

impl ObjectName {
    /// A name in a namespace.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
