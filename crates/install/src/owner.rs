//! The owners of CRDs and `DeviceClasses`: their names are fixed, and NVIDIA's charts have some of them, too.
//!
//! Helm refuses an object that it did not make, unless the object names the release in its label and annotations. An object without a
//! living owner gets these. One of a living owner is left alone, because that owner would change or remove it later.

use std::collections::BTreeSet;
use std::fmt;

use octavo_migration::plan::Owner;
use serde_json::{Value, json};

use crate::objects::{annotation, label};

/// A helm release: its namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Selector of a release's objects.
pub(crate) fn of_release(release: &Release) -> String {
    format!("app.kubernetes.io/instance={}", release.name)
}

/// What an object is for a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The release's own.
    Own,
    /// Without a living owner: it can be taken over from this one.
    Free(String),
    /// Of a living owner, with what to do about it.
    Held {
        /// Whose it is.
        owner: String,
        /// What to do.
        remedy: String,
    },
}

/// Label with which helm marks its objects.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const RELEASE_NAME: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// Labels and annotations by which other programs mark what they keep in place, and their names.
const KEEPERS: [(&str, &str); 5] = [
    ("argocd.argoproj.io/tracking-id", "Argo CD"),
    ("argocd.argoproj.io/instance", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("olm.owner", "the Operator Lifecycle Manager"),
    ("addonmanager.kubernetes.io/mode", "Kubernetes' addon manager"),
];

/// What an object is for a release. `living`: the releases that exist; `None` if that could not be read.
pub(crate) fn claim(object: &Value, ours: &Release, living: Option<&BTreeSet<Release>>) -> Claim {
    // A keeper may have taken an object over from a release.
    let mark = |key: &str| !label(object, key).is_empty() || !annotation(object, key).is_empty();
    if let Some((_, keeper)) = KEEPERS.iter().find(|(key, _)| mark(key)) {
        return Claim::Held {
            owner: (*keeper).to_owned(),
            remedy: format!("remove it from what {keeper} keeps in place"),
        };
    }
    let named = annotation(object, RELEASE_NAME);
    if !named.is_empty() {
        let namespace = annotation(object, RELEASE_NAMESPACE).to_owned();
        let theirs = Release { namespace, name: named.to_owned() };
        if theirs == *ours {
            return Claim::Own;
        }
        let owner =
            Owner::Helm { release: theirs.name.clone(), namespace: theirs.namespace.clone() };
        if living.is_some_and(|living| !living.contains(&theirs)) {
            return Claim::Free(format!("{owner}, which is gone"));
        }
        let Release { namespace, name } = theirs;
        return Claim::Held {
            owner: owner.to_string(),
            remedy: format!("`helm uninstall {name} -n {namespace}` first"),
        };
    }
    Claim::Free("an unknown owner".to_owned())
}

/// The patch with which an object becomes a release's. No field is of its former writers any more, so that helm 4 meets no conflict.
pub(crate) fn adoption(ours: &Release) -> Value {
    json!({"metadata": {
        "managedFields": [{}],
        "labels": {MANAGED_BY: "Helm"},
        "annotations": {RELEASE_NAME: ours.name, RELEASE_NAMESPACE: ours.namespace},
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(name: &str) -> Release {
        Release { namespace: "ns".to_owned(), name: name.to_owned() }
    }

    fn of(name: &str) -> Value {
        json!({"metadata": {"annotations": {RELEASE_NAME: name, RELEASE_NAMESPACE: "ns"}}})
    }

    #[test]
    fn only_what_no_living_owner_has_is_taken_over() {
        let ours = release("octavo");
        let living = BTreeSet::from([release("octavo"), release("nvidia")]);
        let asked = |object: &Value| claim(object, &ours, Some(&living));
        assert_eq!(asked(&of("octavo")), Claim::Own);
        assert_eq!(
            asked(&of("gone")),
            Claim::Free("helm release gone in namespace ns, which is gone".to_owned())
        );
        let Claim::Held { owner, remedy } = asked(&of("nvidia")) else { panic!("it is held") };
        assert_eq!(owner, "helm release nvidia in namespace ns");
        assert_eq!(remedy, "`helm uninstall nvidia -n ns` first");
        assert!(matches!(claim(&of("gone"), &ours, None), Claim::Held { .. }), "it may live");
        let flux = json!({"metadata": {"labels": {"kustomize.toolkit.fluxcd.io/name": "gpu"}}});
        assert!(matches!(asked(&flux), Claim::Held { owner, .. } if owner == "Flux"));
        assert!(matches!(asked(&json!({"metadata": {}})), Claim::Free(_)));
    }

    #[test]
    fn an_adopted_object_is_the_release_s_own() {
        let ours = release("octavo");
        assert_eq!(claim(&adoption(&ours), &ours, None), Claim::Own);
    }
}
