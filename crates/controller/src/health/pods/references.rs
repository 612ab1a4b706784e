//! References to a pod and to its controller, for events.

use k8s_openapi::api::core::v1::{ObjectReference, Pod};

/// The controller of a pod, such as a Job; `None` if the pod has none.
pub fn controller(pod: &Pod) -> Option<ObjectReference> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    Some(object(pod, &owner.api_version, &owner.kind, &owner.name, &owner.uid))
}

/// The pod.
pub fn reference(pod: &Pod) -> Option<ObjectReference> {
    let (name, uid) = (pod.metadata.name.as_deref()?, pod.metadata.uid.as_deref()?);
    Some(object(pod, "v1", "Pod", name, uid))
}

/// An object in the namespace of a pod.
fn object(pod: &Pod, api_version: &str, kind: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}
