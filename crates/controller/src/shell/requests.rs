//! Writes as requests of the API.

use http::{Method, Request, header};
use octavo_api::compute_domain::ComputeDomainStatus;
use octavo_api::names::{
    ANNOTATION_COMPUTE_DOMAIN, ANNOTATION_INDEX_CHANGES, CONTROLLER, LABEL_COMPUTE_DOMAIN,
};
use serde_json::{Value, json};

use crate::plan::IndexChange;
use crate::view::OwnedObject;

/// A merge patch of finalizers, for one version.
pub(super) fn finalizers(resource_version: &str, finalizers: &[String]) -> Value {
    json!({"metadata": {"resourceVersion": resource_version, "finalizers": finalizers}})
}

/// A JSON patch of a node's label, if its value is the one that was seen. To the API server, a member that is not there equals
/// null in a `test`. Other writes of the node, such as a kubelet's, do not disturb the patch. A node has labels, because its kubelet
/// writes some.
pub(super) fn node_label(before: Option<&String>, domain: Option<&String>) -> Value {
    let path = member("/metadata/labels", LABEL_COMPUTE_DOMAIN);
    let change = match domain {
        Some(domain) => json!({"op": "add", "path": path, "value": domain}),
        None => json!({"op": "remove", "path": path}),
    };
    json!([{"op": "test", "path": path, "value": before}, change])
}

/// Path of a member of an object, in a JSON patch (RFC 6901).
fn member(object: &str, key: &str) -> String {
    format!("{object}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// A merge patch of a claim's annotation. The UID must be that of the stored object.
pub(super) fn claim_annotation(uid: &str, domain: &str) -> Value {
    json!({"metadata": {"uid": uid, "annotations": {ANNOTATION_COMPUTE_DOMAIN: domain}}})
}

/// A merge patch of a clique's labels for one version. A clique that does not count the changes of its indices begins to.
pub(super) fn labels(
    object: &OwnedObject,
    labels: &[(&'static str, String)],
    counts: bool,
) -> Value {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), value.clone().into()));
    let labels: serde_json::Map<String, Value> = labels.collect();
    let mut metadata = json!({"resourceVersion": object.resource_version, "labels": labels});
    if !counts {
        metadata["annotations"] = json!({ANNOTATION_INDEX_CHANGES: "0"});
    }
    json!({"metadata": metadata})
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

/// A JSON patch of indices. It applies to the clique with the UID that was seen, while the count of changes and the places of the
/// entries are those that were seen.
pub(super) fn indices(object: &OwnedObject, seen: u64, changes: &[IndexChange]) -> Value {
    let count = member("/metadata/annotations", ANNOTATION_INDEX_CHANGES);
    let mut operations = vec![
        // A clique of the same name may be a later one.
        json!({"op": "test", "path": "/metadata/uid", "value": object.uid}),
        json!({"op": "test", "path": count, "value": seen.to_string()}),
        json!({"op": "replace", "path": count, "value": (seen + 1).to_string()}),
    ];
    for IndexChange { position, node, index } in changes {
        let entry = format!("/daemons/{position}");
        operations.push(json!({"op": "test", "path": format!("{entry}/nodeName"), "value": node}));
        let index_path = format!("{entry}/index");
        operations.push(match index {
            Some(index) => json!({"op": "add", "path": index_path, "value": index}),
            None => json!({"op": "remove", "path": index_path}),
        });
    }
    Value::Array(operations)
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

/// The request of a JSON patch, for the path of an object.
pub(super) fn json_patch(path: &str, patch: &Value) -> http::Result<Request<Vec<u8>>> {
    Request::builder()
        .method(Method::PATCH)
        .uri(format!("{path}?fieldManager={CONTROLLER}"))
        .header(header::CONTENT_TYPE, "application/json-patch+json")
        .header(header::ACCEPT, "application/json")
        .body(patch.to_string().into_bytes())
}
