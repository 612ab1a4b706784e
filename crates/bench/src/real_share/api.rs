//! A minimal API server for one agent: objects by path, and watches without events.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::Context;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use http::{Method, StatusCode, Uri};
use serde_json::{Value, json};

/// A server of this process. Cheap to clone; clones are the same server.
#[derive(Clone)]
pub(super) struct Api {
    inner: Arc<Mutex<Inner>>,
    address: SocketAddr,
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<String, Value>,
    /// Conditions that were true at some time, by path and type.
    conditions: BTreeSet<(String, String)>,
    version: u64,
}

/// Path of a claim.
pub(super) fn claim(name: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}")
}

/// Path of a node.
pub(super) fn node(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

impl Api {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr().context("the server has no address")?;
        let api = Self { inner: Arc::default(), address };
        let router = Router::new().fallback(serve).with_state(api.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(api)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn put(&self, path: &str, object: Value) {
        self.lock().store(path, object);
    }

    /// Whether any device in the object's status ever had a true condition of that type.
    pub(super) fn was_true(&self, path: &str, condition: &str) -> bool {
        self.lock().conditions.contains(&(path.to_owned(), condition.to_owned()))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

async fn serve(State(api): State<Api>, method: Method, uri: Uri, body: Bytes) -> Response {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    if method == Method::GET && query.contains("watch=true") {
        // Only the agent changes objects, so there are no events.
        return Response::new(Body::from_stream(futures::stream::pending::<
            Result<Bytes, axum::Error>,
        >()));
    }
    let (code, value) = api.lock().answer(&method, path, query, &body);
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

impl Inner {
    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        query: &str,
        body: &[u8],
    ) -> (StatusCode, Value) {
        let object = path.strip_suffix("/status").unwrap_or(path);
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let is_dry_run = query.contains("dryRun=All");
        match *method {
            Method::GET => match self.objects.get(object) {
                Some(found) => (StatusCode::OK, found.clone()),
                None if is_collection(object) => (StatusCode::OK, self.list(object)),
                None => not_found(),
            },
            Method::POST => {
                let name =
                    body.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
                let name = name.unwrap_or_else(|| format!("made-{}", self.version));
                if is_dry_run {
                    return (StatusCode::CREATED, body);
                }
                (StatusCode::CREATED, self.store(&format!("{object}/{name}"), body))
            }
            Method::PUT if is_dry_run => (StatusCode::OK, body),
            Method::PUT => (StatusCode::OK, self.store(object, body)),
            Method::PATCH => match self.objects.get(object).cloned() {
                Some(mut found) => {
                    merge(&mut found, &body);
                    (StatusCode::OK, self.store(object, found))
                }
                None => not_found(),
            },
            Method::DELETE => match self.objects.remove(object) {
                Some(found) => (StatusCode::OK, found),
                None => not_found(),
            },
            _ => (StatusCode::METHOD_NOT_ALLOWED, Value::Null),
        }
    }

    fn list(&self, collection: &str) -> Value {
        let prefix = format!("{collection}/");
        let inside = self.objects.iter().filter(|(path, _)| path.starts_with(&prefix));
        let items: Vec<&Value> = inside.map(|(_, object)| object).collect();
        let first = items.first().copied().unwrap_or(&Value::Null);
        json!({
            "apiVersion": first.get("apiVersion").cloned().unwrap_or_else(|| json!("v1")),
            "kind": format!("{}List", first.get("kind").and_then(Value::as_str).unwrap_or("")),
            "metadata": {"resourceVersion": self.version.to_string()},
            "items": items,
        })
    }

    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object.pointer("/metadata/uid").is_none() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        let devices = object.pointer("/status/devices").and_then(Value::as_array);
        let conditions =
            devices.into_iter().flatten().filter_map(|device| device["conditions"].as_array());
        for condition in conditions.flatten().filter(|condition| condition["status"] == "True") {
            let kind = condition["type"].as_str().unwrap_or_default().to_owned();
            self.conditions.insert((path.to_owned(), kind));
        }
        self.objects.insert(path.to_owned(), object.clone());
        object
    }
}

/// Whether a path is that of all objects of a kind.
fn is_collection(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    ["nodes", "pods", "events", "resourceslices", "resourceclaims"].contains(&last)
}

fn not_found() -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": "not found", "reason": "NotFound", "code": 404,
    });
    (StatusCode::NOT_FOUND, status)
}

/// JSON merge patch, which is sufficient because lists are written whole.
fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_kept_and_conditions_remembered() {
        let mut inner = Inner::default();
        inner.store(&claim("one"), json!({"metadata": {"name": "one"}}));
        let patch = |status: &str| {
            let conditions = json!([{"type": "Enforced", "status": status}]);
            json!({"status": {"devices": [{"conditions": conditions}]}}).to_string()
        };
        let path = format!("{}/status", claim("one"));
        for status in ["True", "False"] {
            let (code, _) = inner.answer(&Method::PATCH, &path, "", patch(status).as_bytes());
            assert_eq!(code, 200);
        }
        assert!(inner.conditions.contains(&(claim("one"), "Enforced".to_owned())));
        let (code, list) =
            inner.answer(&Method::GET, "/apis/resource.k8s.io/v1/resourceslices", "", b"");
        assert_eq!((code.as_u16(), &list["items"]), (200, &json!([])));
        assert_eq!(inner.answer(&Method::GET, &claim("two"), "", b"").0, 404);
    }

    #[test]
    fn dry_run_stores_nothing() {
        let mut inner = Inner::default();
        let body = json!({"metadata": {"name": "one"}}).to_string();
        let path = "/apis/resource.k8s.io/v1/resourceslices";
        let (code, _) = inner.answer(&Method::POST, path, "dryRun=All", body.as_bytes());
        assert_eq!((code.as_u16(), inner.objects.len()), (201, 0));
    }
}
