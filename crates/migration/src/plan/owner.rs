//! Who installed an object.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::object::{annotation, controller, label};

/// Who installed an object, by its labels and annotations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A release of helm.
    Helm {
        /// The release.
        release: String,
        /// Its namespace; empty if it is not known.
        namespace: String,
    },
    /// Another object, such as `ClusterPolicy cluster-policy`.
    Object(String),
    /// Nothing says so.
    Unknown,
}

/// Who installed an object.
pub fn owner(object: &Value) -> Owner {
    let helm = |release: &str, namespace: Option<&str>| Owner::Helm {
        release: release.to_owned(),
        namespace: namespace.unwrap_or_default().to_owned(),
    };
    if let Some(release) = annotation(object, "meta.helm.sh/release-name") {
        return helm(release, annotation(object, "meta.helm.sh/release-namespace"));
    }
    if let Some((kind, name)) = controller(object) {
        return Owner::Object(format!("{kind} {name}"));
    }
    let is_helm = label(object, "app.kubernetes.io/managed-by") == Some("Helm");
    match label(object, "app.kubernetes.io/instance").filter(|_| is_helm) {
        Some(release) => helm(release, None),
        None => Owner::Unknown,
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Helm { release, namespace } if namespace.is_empty() => {
                write!(f, "helm release {release}")
            }
            Self::Helm { release, namespace } => {
                write!(f, "helm release {release} in namespace {namespace}")
            }
            Self::Object(object) => f.write_str(object),
            Self::Unknown => f.write_str("not known"),
        }
    }
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
