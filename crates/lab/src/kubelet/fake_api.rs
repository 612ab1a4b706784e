//! An API server for tests: stores objects by path, merges patches, and notifies pod workers.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tonic::codegen::Service;

use crate::kubelet::pods::worker::PodReceiver;

/// Longest wait in a test; test machines are slow and busy.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// The server and its objects.
#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
}

struct State {
    objects: BTreeMap<String, Value>,
    conflicts: usize,
    patches: usize,
    created: Vec<Value>,
    version: watch::Sender<u64>,
    pods: BTreeMap<String, watch::Sender<Option<Arc<Pod>>>>,
}

impl Default for State {
    fn default() -> Self {
        let version = watch::Sender::new(0);
        Self {
            objects: BTreeMap::new(),
            conflicts: 0,
            patches: 0,
            created: Vec::new(),
            version,
            pods: BTreeMap::new(),
        }
    }
}

impl FakeApi {
    /// A client of this server.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Makes the next `count` patches fail with a conflict.
    pub(crate) fn fail_with_conflicts(&self, count: usize) {
        self.state.lock().unwrap().conflicts = count;
    }

    /// Number of patches that succeeded.
    pub(crate) fn patches(&self) -> usize {
        self.state.lock().unwrap().patches
    }

    /// Stores an object at `path`.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.state.lock().unwrap().set(path, Some(object));
    }

    /// Merges `patch` into the object at `path`.
    pub(crate) fn merge(&self, path: &str, patch: &Value) {
        let mut state = self.state.lock().unwrap();
        let mut object = state.objects[path].clone();
        merge(&mut object, patch);
        state.set(path, Some(object));
    }

    /// Removes the object at `path`, regardless of finalizers.
    pub(crate) fn remove(&self, path: &str) {
        self.state.lock().unwrap().set(path, None);
    }

    /// Subscribes to the pod at `path`, like the pod dispatcher.
    pub(crate) fn follow(&self, path: &str) -> PodReceiver {
        let mut state = self.state.lock().unwrap();
        let sender = watch::Sender::new(state.pod(path));
        let latest = sender.subscribe();
        state.pods.insert(path.to_owned(), sender);
        latest
    }

    /// Waits until the object at `path` is as `wanted`; `None`: it does not exist.
    pub(crate) async fn wait_until(&self, path: &str, wanted: impl Fn(Option<&Value>) -> bool) {
        let mut version = self.state.lock().unwrap().version.subscribe();
        let all = async {
            loop {
                if wanted(self.state.lock().unwrap().objects.get(path)) {
                    return;
                }
                version.changed().await.unwrap();
            }
        };
        let met = tokio::time::timeout(TEST_TIMEOUT, all).await.is_ok();
        assert!(met, "waited in vain: {:#?}", self.state.lock().unwrap().objects.get(path));
    }

    /// Waits until `count` objects have been created by POST.
    pub(crate) async fn wait_until_created(&self, count: usize) {
        let mut version = self.state.lock().unwrap().version.subscribe();
        let all = async {
            while self.created().len() < count {
                version.changed().await.unwrap();
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, all).await.unwrap();
    }

    /// All objects created by POST.
    pub(crate) fn created(&self) -> Vec<Value> {
        self.state.lock().unwrap().created.clone()
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let mut state = self.state.lock().unwrap();
        let object = path.strip_suffix("/status").unwrap_or(path);
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        if *method == Method::POST {
            state.created.push(body.clone());
            state.version.send_modify(|version| *version += 1);
            return (201, body);
        }
        let Some(mut found) = state.objects.get(object).cloned() else {
            return failure(404, "NotFound");
        };
        let wanted = body.pointer("/metadata/uid").or(body.pointer("/preconditions/uid"));
        if wanted.is_some_and(|uid| Some(uid) != found.pointer("/metadata/uid")) {
            return failure(409, "Conflict");
        }
        if *method == Method::PATCH && state.conflicts > 0 {
            state.conflicts -= 1;
            return failure(409, "Conflict");
        }
        if *method == Method::PATCH {
            state.patches += 1;
            merge(&mut found, &body);
            state.set(object, Some(found.clone()));
        } else if *method == Method::DELETE {
            state.set(object, None);
        }
        (200, found)
    }
}

impl State {
    fn set(&mut self, path: &str, object: Option<Value>) {
        match object {
            Some(object) => self.objects.insert(path.to_owned(), object),
            None => self.objects.remove(path),
        };
        let pod = self.pod(path);
        if let Some(sender) = self.pods.get(path) {
            sender.send_replace(pod);
        }
        self.version.send_modify(|version| *version += 1);
    }

    fn pod(&self, path: &str) -> Option<Arc<Pod>> {
        let object = self.objects.get(path).filter(|object| object["kind"] == "Pod");
        object.map(|object| Arc::new(serde_json::from_value(object.clone()).unwrap()))
    }
}

impl Service<Request<Body>> for FakeApi {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, kube::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let (status, answer) = api.answer(&parts.method, parts.uri.path(), &body);
            let bytes = serde_json::to_vec(&answer).unwrap();
            Ok(Response::builder().status(status).body(Body::from(bytes)).unwrap())
        })
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "code": code, "reason": reason, "message": reason,
    });
    (code, status)
}

/// JSON merge. It equals a strategic merge if lists are written as a whole.
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
