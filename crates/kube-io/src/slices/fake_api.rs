//! As much of an API server as a publisher needs, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::Feature;

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// The server. Cheap to clone; clones are the same server.
#[derive(Clone, Default)]
pub(super) struct FakeApi(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    slices: BTreeMap<String, ResourceSlice>,
    version: u64,
    watchers: Vec<UnboundedSender<Bytes>>,
    /// Every change with its version: a watch begins after the version that it names.
    history: Vec<(u64, Bytes)>,
    writes: Vec<String>,
    queries: Vec<String>,
    probes: usize,
    failures: Vec<u16>,
    refused_device: Option<String>,
    off: BTreeSet<Feature>,
    refuses_dry_runs: bool,
    needs_counters_beside_devices: bool,
    /// Which of the next writes are done and not answered.
    unanswered: Vec<bool>,
    is_muted: bool,
    untold: Vec<Bytes>,
}

impl FakeApi {
    pub(super) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let api = api.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let path = head.uri.path().to_owned();
                let query = head.uri.query().unwrap_or_default().to_owned();
                Ok::<_, Infallible>(api.answer(&head.method, &path, &query, &body))
            }
        });
        Client::new(service, "default")
    }

    /// Statuses with which the next writes fail.
    pub(super) fn fail_writes(&self, statuses: &[u16]) {
        self.0.lock().unwrap().failures = statuses.to_vec();
    }

    /// Which of the next writes are done and then fail for the writer, as with a server that is too
    /// slow for its client.
    pub(super) fn leave_unanswered(&self, writes: &[bool]) {
        self.0.lock().unwrap().unanswered = writes.to_vec();
    }

    /// Keeps news from all watches, or tells what was kept from them.
    pub(super) fn mute(&self, is_muted: bool) {
        let mut inner = self.0.lock().unwrap();
        inner.is_muted = is_muted;
        for line in std::mem::take(&mut inner.untold) {
            inner.watchers.retain(|watcher| watcher.send(line.clone()).is_ok());
        }
    }

    /// Stores a slice as somebody else would.
    pub(super) fn put(&self, slice: ResourceSlice) {
        self.0.lock().unwrap().store(slice, "ADDED");
    }

    /// Refuses every slice that holds this device; `None` refuses none.
    pub(super) fn refuse_device(&self, name: Option<&str>) {
        self.0.lock().unwrap().refused_device = name.map(str::to_owned);
    }

    /// Behaves as a server with these features off, and all others on.
    pub(super) fn turn_off(&self, features: impl IntoIterator<Item = Feature>) {
        self.0.lock().unwrap().off = features.into_iter().collect();
    }

    /// Behaves as if a webhook refused dry runs.
    pub(super) fn refuse_dry_runs(&self) {
        self.0.lock().unwrap().refuses_dry_runs = true;
    }

    /// Behaves as Kubernetes 1.34 with its form of counters on: only devices beside them use them.
    pub(super) fn need_counters_beside_devices(&self) {
        self.0.lock().unwrap().needs_counters_beside_devices = true;
    }

    /// How many dry runs there were.
    pub(super) fn probes(&self) -> usize {
        self.0.lock().unwrap().probes
    }

    /// Writes so far, each as method and name.
    pub(super) fn writes(&self) -> Vec<String> {
        self.0.lock().unwrap().writes.clone()
    }

    /// Queries of lists and watches so far.
    pub(super) fn queries(&self) -> Vec<String> {
        self.0.lock().unwrap().queries.clone()
    }

    pub(super) fn slices(&self) -> Vec<ResourceSlice> {
        self.0.lock().unwrap().slices.values().cloned().collect()
    }

    /// Deletes a slice as somebody else would.
    pub(super) fn delete(&self, name: &str) {
        let mut inner = self.0.lock().unwrap();
        inner.remove(name).unwrap();
    }

    /// Edits a slice as somebody else would.
    pub(super) fn edit(&self, name: &str, edit: impl Fn(&mut ResourceSlice)) {
        let mut inner = self.0.lock().unwrap();
        let mut slice = inner.slices[name].clone();
        edit(&mut slice);
        inner.store(slice, "MODIFIED");
    }

    /// Ends all watches, as servers do now and then.
    pub(super) fn end_watches(&self) {
        self.0.lock().unwrap().watchers.clear();
    }

    fn answer(&self, method: &Method, path: &str, query: &str, body: &[u8]) -> Response<Body> {
        let mut inner = self.0.lock().unwrap();
        let name = path.strip_prefix(SLICES).unwrap_or_default().trim_start_matches('/');
        if method == Method::GET {
            if path == "/api/v1/nodes/node" {
                let metadata = json!({"name": "node", "uid": "node-uid"});
                return answer(
                    200,
                    &json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                        "metadata": metadata}),
                );
            }
            if !name.is_empty() {
                let Some(slice) = inner.slices.get(name) else { return failure(404) };
                return answer(200, &serde_json::to_value(slice).unwrap());
            }
            assert_eq!(path, SLICES);
            inner.queries.push(query.to_owned());
            let is_watch = query.contains("watch=true");
            return if is_watch { inner.watch(query) } else { inner.list() };
        }
        if query.contains("dryRun=All") {
            return inner.pretend(body);
        }
        inner.writes.push(format!("{method} {name}").trim_end().to_owned());
        if !inner.failures.is_empty() {
            let code = inner.failures.remove(0);
            return failure(code);
        }
        let is_unanswered = !inner.unanswered.is_empty() && inner.unanswered.remove(0);
        if method == Method::DELETE {
            let Some(slice) = inner.remove(name) else { return failure(404) };
            return answer(200, &serde_json::to_value(slice).unwrap());
        }
        let slice: ResourceSlice = serde_json::from_slice(body).unwrap();
        if inner.is_refused(&slice) {
            return failure(422);
        }
        let name = slice.metadata.name.clone().unwrap();
        let old = inner.slices.get(&name).map(|slice| slice.metadata.resource_version.clone());
        let kept = match (method, old) {
            (&Method::POST, None) => inner.store(slice, "ADDED"),
            (&Method::PUT, Some(version)) if version == slice.metadata.resource_version => {
                inner.store(slice, "MODIFIED")
            }
            (&Method::PUT, None) => return failure(404),
            _ => return failure(409),
        };
        if is_unanswered {
            return failure(504);
        }
        answer(200, &serde_json::to_value(kept).unwrap())
    }
}

impl Inner {
    fn is_refused(&self, slice: &ResourceSlice) -> bool {
        let mut devices = slice.spec.devices.iter().flatten();
        self.refused_device.as_ref().is_some_and(|name| devices.any(|device| device.name == *name))
    }

    fn store(&mut self, mut slice: ResourceSlice, change: &str) -> ResourceSlice {
        self.version += 1;
        slice.metadata.resource_version = Some(self.version.to_string());
        let old = self.slices.get(slice.metadata.name.as_deref().unwrap()).cloned();
        self.drop_fields(&mut slice, old.as_ref());
        self.slices.insert(slice.metadata.name.clone().unwrap(), slice.clone());
        self.tell(change, &slice);
        slice
    }

    /// Answers as if it stored a new slice.
    fn pretend(&mut self, body: &[u8]) -> Response<Body> {
        self.probes += 1;
        if self.refuses_dry_runs {
            return failure(400);
        }
        let mut slice: ResourceSlice = serde_json::from_slice(body).unwrap();
        assert!(!self.slices.contains_key(slice.metadata.name.as_deref().unwrap()));
        let mut devices = slice.spec.devices.iter().flatten();
        if self.needs_counters_beside_devices && devices.any(|one| one.consumes_counters.is_some())
        {
            return failure(422);
        }
        self.drop_fields(&mut slice, None);
        answer(200, &serde_json::to_value(slice).unwrap())
    }

    /// Drops the fields of features that are off, unless the slice had some of them before.
    fn drop_fields(&self, slice: &mut ResourceSlice, old: Option<&ResourceSlice>) {
        for feature in &self.off {
            let has = |device: &Device| match feature {
                Feature::Counters => device.consumes_counters.is_some(),
                Feature::Shares => device.allow_multiple_allocations.is_some(),
                Feature::Taints => device.taints.is_some(),
            };
            let has_counters = |old: &ResourceSlice| {
                *feature == Feature::Counters && old.spec.shared_counters.is_some()
            };
            if old
                .is_some_and(|old| has_counters(old) || old.spec.devices.iter().flatten().any(has))
            {
                continue;
            }
            if *feature == Feature::Counters {
                slice.spec.shared_counters = None;
            }
            for device in slice.spec.devices.iter_mut().flatten() {
                match feature {
                    Feature::Counters => device.consumes_counters = None,
                    Feature::Taints => device.taints = None,
                    Feature::Shares => {
                        device.allow_multiple_allocations = None;
                        for capacity in device.capacity.iter_mut().flat_map(BTreeMap::values_mut) {
                            capacity.request_policy = None;
                        }
                    }
                }
            }
        }
    }

    fn remove(&mut self, name: &str) -> Option<ResourceSlice> {
        let mut slice = self.slices.remove(name)?;
        self.version += 1;
        slice.metadata.resource_version = Some(self.version.to_string());
        self.tell("DELETED", &slice);
        Some(slice)
    }

    fn tell(&mut self, change: &str, slice: &ResourceSlice) {
        let line: Bytes = (json!({"type": change, "object": slice}).to_string() + "\n").into();
        self.history.push((self.version, line.clone()));
        if self.is_muted {
            self.untold.push(line);
            return;
        }
        self.watchers.retain(|watcher| watcher.send(line.clone()).is_ok());
    }

    fn list(&self) -> Response<Body> {
        let items: Vec<_> = self.slices.values().collect();
        let metadata = json!({"resourceVersion": self.version.to_string()});
        let kind = "ResourceSliceList";
        let list = json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata,
            "items": items});
        answer(200, &list)
    }

    fn watch(&mut self, query: &str) -> Response<Body> {
        let (sender, receiver) = unbounded_channel();
        let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let from: u64 = from.unwrap().parse().unwrap();
        for (_, line) in self.history.iter().filter(|(version, _)| *version > from) {
            sender.send(line.clone()).unwrap();
        }
        self.watchers.push(sender);
        let lines = UnboundedReceiverStream::new(receiver).map(Ok::<Bytes, Infallible>);
        Response::new(Body::from_stream(lines))
    }
}

fn failure(code: u16) -> Response<Body> {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        403 => "Forbidden",
        422 => "Invalid",
        _ => "InternalError",
    };
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure",
        "message": format!("test failure {code}"), "reason": reason, "code": code});
    answer(code, &status)
}

fn answer(code: u16, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
