//! Short constructors of objects and pods.

use std::sync::Arc;

use octavo_kube_io::objects::{Delta, Meta, ObjectName, Owner, Pod, WatchedObject};
use serde_json::Value;

use super::{GroupSpec, Groups, Member, Membership};

/// The namespace of all of them.
pub(super) const NAMESPACE: &str = "ml";

/// Metadata with labels and annotations: a key that starts with `@` is an annotation.
pub(super) fn meta(name: &str, hints: &[(&str, &str)]) -> Meta {
    let mut meta = Meta {
        name: ObjectName::new(NAMESPACE, name),
        uid: format!("uid-of-{name}").into(),
        ..Meta::default()
    };
    for (key, value) in hints {
        match key.strip_prefix('@') {
            Some(key) => meta.annotations.insert(key.to_owned(), (*value).to_owned()),
            None => meta.labels.insert((*key).to_owned(), (*value).to_owned()),
        };
    }
    meta
}

/// A pod.
pub(super) fn pod(name: &str, hints: &[(&str, &str)]) -> Pod {
    Pod { meta: meta(name, hints), ..Pod::default() }
}

/// The same, controlled by an object.
pub(super) fn owned(mut pod: Pod, api_version: &str, kind: &str, name: &str) -> Pod {
    pod.meta.owner = Some(Owner {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}").into(),
    });
    pod
}

/// An object of a kind.
pub(super) fn object(api_version: &str, kind: &str, name: &str, spec: Value) -> WatchedObject {
    WatchedObject {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        meta: meta(name, &[]),
        generation: 1,
        spec,
        status: Value::Null,
    }
}

/// Octavo's own `PodGroup`.
pub(super) fn own(name: &str, spec: Value) -> WatchedObject {
    object("octavo.dev/v1alpha1", "PodGroup", name, spec)
}

/// Groups with these objects.
pub(super) fn knowing(objects: impl IntoIterator<Item = WatchedObject>) -> Groups {
    let mut groups = Groups::default();
    for object in objects {
        groups.apply(&Delta::Upsert(Arc::new(object)));
    }
    groups
}

/// The group of the one object.
#[track_caller]
pub(super) fn only_spec(groups: &Groups) -> &GroupSpec {
    groups.objects.values().next().unwrap().as_ref().unwrap()
}

/// The pod as a member.
#[track_caller]
pub(super) fn member(groups: &Groups, pod: &Pod) -> Member {
    match groups.membership(pod) {
        Membership::Member(member) => member,
        other => panic!("{} should be a member, but is {other:?}", pod.meta.name),
    }
}

/// Why a pod is no member yet.
#[track_caller]
pub(super) fn refusal(groups: &Groups, pod: &Pod) -> String {
    match groups.membership(pod) {
        Membership::Unresolved(not_yet) => not_yet.error.to_string(),
        other => panic!("{} should have to wait, but is {other:?}", pod.meta.name),
    }
}
