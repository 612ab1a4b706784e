//! Writes as requests of the API.

use http::{Method, Request, header};
use octavo_api::ComputeDomainClique;
use octavo_api::compute_domain::ComputeDomainStatus;
use octavo_api::names::{ANNOTATION_COMPUTE_DOMAIN, LABEL_COMPUTE_DOMAIN, NVIDIA_API_VERSION};
use serde_json::{Value, json};

use crate::view::OwnedObject;

/// A merge patch of finalizers, for one version.
pub(super) fn finalizers(resource_version: &str, finalizers: &[String]) -> Value {
    json!({"metadata": {"resourceVersion": resource_version, "finalizers": finalizers}})
}

/// A merge patch of a node's label, for one version.
pub(super) fn node_label(resource_version: &str, domain: Option<&String>) -> Value {
    json!({"metadata": {
        "resourceVersion": resource_version,
        "labels": {LABEL_COMPUTE_DOMAIN: domain},
    }})
}

/// A merge patch of a claim's annotation. The UID must be that of the stored object.
pub(super) fn claim_annotation(uid: &str, domain: &str) -> Value {
    json!({"metadata": {"uid": uid, "annotations": {ANNOTATION_COMPUTE_DOMAIN: domain}}})
}

/// A merge patch of labels, for one version.
pub(super) fn labels(resource_version: &str, labels: &[(&'static str, String)]) -> Value {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), value.clone().into()));
    let labels: serde_json::Map<String, Value> = labels.collect();
    json!({"metadata": {"resourceVersion": resource_version, "labels": labels}})
}

/// A merge patch of a status: it replaces lists as a whole. `now` is the time of conditions that changed.
pub(super) fn status(
    uid: &str,
    resource_version: Option<&str>,
    status: &ComputeDomainStatus,
    now: &str,
) -> Value {
    let mut metadata = json!({"uid": uid});
    if let Some(version) = resource_version {
        metadata["resourceVersion"] = version.into();
    }
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|condition| {
            let mut condition = condition.clone();
            if condition.last_transition_time.is_empty() {
                now.clone_into(&mut condition.last_transition_time);
            }
            condition
        })
        .collect();
    // Null removes the key: a domain without channels has no empty list.
    let channels = (!status.channels.is_empty()).then_some(&status.channels);
    json!({
        "metadata": metadata,
        "status": {
            "status": status.status,
            "nodes": status.nodes,
            "channels": channels,
            "conditions": conditions,
        },
    })
}

/// Server-side apply of a clique's indices, for one version. Without the version, an index that another controller gave since
/// could be given again.
pub(super) fn indices(object: &OwnedObject, indices: &[(String, i64)]) -> Value {
    let daemons: Vec<Value> =
        indices.iter().map(|(node, index)| json!({"nodeName": node, "index": index})).collect();
    json!({
        "apiVersion": NVIDIA_API_VERSION,
        "kind": ComputeDomainClique::KIND,
        "metadata": {
            "namespace": object.namespace,
            "name": object.name,
            "resourceVersion": object.resource_version,
        },
        "daemons": daemons,
    })
}

/// A JSON patch that removes entries of a clique, if they are still where they were seen.
pub(super) fn removal(entries: &[(usize, String, String)]) -> Value {
    let operations = entries.iter().flat_map(|(position, node, address)| {
        let path = format!("/daemons/{position}");
        [
            json!({"op": "test", "path": format!("{path}/nodeName"), "value": node}),
            json!({"op": "test", "path": format!("{path}/ipAddress"), "value": address}),
            json!({"op": "remove", "path": path}),
        ]
    });
    Value::Array(operations.collect())
}

/// The request of a JSON patch.
pub(super) fn json_patch(path: &str, patch: &Value) -> http::Result<Request<Vec<u8>>> {
    Request::builder()
        .method(Method::PATCH)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json-patch+json")
        .header(header::ACCEPT, "application/json")
        .body(patch.to_string().into_bytes())
}
