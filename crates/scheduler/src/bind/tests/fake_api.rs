//! The parts of an API server that a binder needs, in memory: objects with versions, the rules of
//! claims, bindings and evictions, and injected faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::TermRemaining;
use super::super::responses::FINALIZER;

/// A fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    /// It is rejected with this status.
    Status(u16),
    /// The server is overloaded, and says for how many seconds.
    Overloaded(u64),
    /// The authorizer denies it, as it denies every client while the server starts.
    Forbidden,
    /// It is not done, and the connection is lost.
    LostBefore,
    /// It is done, and the connection is lost.
    LostAfter,
    /// It is not done, and no response ever comes.
    SilentBefore,
    /// It is done, and no response ever comes.
    SilentAfter,
    /// The lease is lost before it would be sent.
    NotLeader,
}

/// A request that was processed or rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: String,
    pub(crate) code: u16,
}

/// The server. Clones share its state.
#[derive(Clone, Default)]
pub(crate) struct FakeApi(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Requests so far, including reads.
    count: usize,
    /// Faults by number of the request.
    faults: BTreeMap<usize, InjectedFault>,
    /// A fault of all requests from this number on.
    fault_from: Option<(usize, InjectedFault)>,
    seen: Vec<RecordedRequest>,
    has_lost_lease: bool,
    led_since: Option<Instant>,
    budget: Option<String>,
    drops_extended_status: bool,
    /// How often each request yields before and after it is processed; used up from the front.
    yields: Vec<(u8, u8)>,
    in_flight: usize,
    max_in_flight: usize,
}

type ApiResponse = Result<Value, (u16, String)>;

impl FakeApi {
    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                api.take(&head.method, head.uri.path(), &head.headers, &body).await
            }
        });
        Client::new(service, "default")
    }

    pub(crate) fn put(&self, path: &str, object: Value) {
        let mut inner = self.0.lock().unwrap();
        inner.store(path, object);
    }

    pub(crate) fn edit(&self, path: &str, edit: impl FnOnce(&mut Value)) {
        let mut inner = self.0.lock().unwrap();
        let mut object = inner.objects[path].clone();
        edit(&mut object);
        inner.store(path, object);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.0.lock().unwrap().objects.remove(path);
    }

    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(path).cloned()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.0.lock().unwrap().objects.keys().cloned().collect()
    }

    /// Injects a fault into the request of this number, from 0.
    pub(crate) fn inject(&self, number: usize, fault: InjectedFault) {
        self.0.lock().unwrap().faults.insert(number, fault);
    }

    /// Injects a fault into all requests from this number on.
    pub(crate) fn inject_from(&self, number: usize, fault: InjectedFault) {
        self.0.lock().unwrap().fault_from = Some((number, fault));
    }

    /// Removes all faults; the lease is held again.
    pub(crate) fn clear_faults(&self) {
        let mut inner = self.0.lock().unwrap();
        inner.fault_from = None;
        inner.faults.clear();
        inner.has_lost_lease = false;
    }

    /// A budget forbids evictions with this message.
    pub(crate) fn forbid_evictions(&self, words: &str) {
        self.0.lock().unwrap().budget = Some(words.to_owned());
    }

    /// Behaves as with the feature gate `DRAExtendedResource` off.
    pub(crate) fn drop_extended_status(&self) {
        self.0.lock().unwrap().drops_extended_status = true;
    }

    pub(crate) fn interleave(&self, yields: Vec<(u8, u8)>) {
        self.0.lock().unwrap().yields = yields;
    }

    /// The lease, as the binder reads it.
    pub(crate) fn lease(&self) -> Option<TermRemaining> {
        let mut inner = self.0.lock().unwrap();
        if inner.next_fault() == Some(InjectedFault::NotLeader) {
            inner.has_lost_lease = true;
        }
        let time_left = Duration::from_secs(15);
        let since = *inner.led_since.get_or_insert_with(Instant::now);
        (!inner.has_lost_lease).then_some(TermRemaining { time_left, since })
    }

    pub(crate) fn seen(&self) -> Vec<RecordedRequest> {
        self.0.lock().unwrap().seen.clone()
    }

    /// Successful writes, as method and path.
    pub(crate) fn writes(&self) -> Vec<String> {
        let seen = self.seen();
        let writes = seen.iter().filter(|seen| seen.method != "GET" && seen.code < 300);
        writes.map(|seen| format!("{} {}", seen.method, seen.path)).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().count
    }

    pub(crate) fn max_in_flight(&self) -> usize {
        self.0.lock().unwrap().max_in_flight
    }

    async fn take(
        &self,
        method: &Method,
        path: &str,
        headers: &http::HeaderMap,
        body: &[u8],
    ) -> Result<Response<Body>, std::io::Error> {
        let (fault, yields) = {
            let mut inner = self.0.lock().unwrap();
            // A conflict is of a write: the API server rejects no read with it.
            let is_possible = |fault: &InjectedFault| {
                method != Method::GET || *fault != InjectedFault::Status(409)
            };
            let fault = inner.next_fault().filter(is_possible);
            inner.count += 1;
            inner.in_flight += 1;
            inner.max_in_flight = inner.max_in_flight.max(inner.in_flight);
            let yields = if inner.yields.is_empty() { (1, 0) } else { inner.yields.remove(0) };
            (fault, yields)
        };
        for _ in 0..yields.0 {
            tokio::task::yield_now().await;
        }
        let lost = || std::io::Error::other("connection reset by peer");
        let answer = match fault {
            Some(InjectedFault::Status(code)) => {
                let mut inner = self.0.lock().unwrap();
                inner.in_flight -= 1;
                inner.record(method, path, body, code);
                return Ok(failure(code, &format!("test failure {code}")));
            }
            Some(InjectedFault::Overloaded(seconds)) => {
                let mut inner = self.0.lock().unwrap();
                inner.in_flight -= 1;
                inner.record(method, path, body, 429);
                let mut answer = failure(429, "too many requests");
                answer.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
                return Ok(answer);
            }
            Some(InjectedFault::Forbidden) => {
                let mut inner = self.0.lock().unwrap();
                inner.in_flight -= 1;
                inner.record(method, path, body, 403);
                let (verb, name) = (method.as_str().to_lowercase(), "things \"x\"");
                return Ok(failure(
                    403,
                    &format!("{name} is forbidden: User \"octavo\" cannot {verb} resource"),
                ));
            }
            Some(InjectedFault::LostBefore) => {
                self.0.lock().unwrap().in_flight -= 1;
                return Err(lost());
            }
            Some(InjectedFault::SilentBefore) => {
                self.0.lock().unwrap().in_flight -= 1;
                std::future::pending().await
            }
            _ => self.act(method, path, headers, body),
        };
        for _ in 0..yields.1 {
            tokio::task::yield_now().await;
        }
        self.0.lock().unwrap().in_flight -= 1;
        match fault {
            Some(InjectedFault::LostAfter) => Err(lost()),
            Some(InjectedFault::SilentAfter) => std::future::pending().await,
            _ => Ok(answer),
        }
    }

    fn act(
        &self,
        method: &Method,
        path: &str,
        headers: &http::HeaderMap,
        body: &[u8],
    ) -> Response<Body> {
        let mut inner = self.0.lock().unwrap();
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        if *method == Method::PATCH {
            let kind = headers[http::header::CONTENT_TYPE].to_str().unwrap();
            assert!(kind.ends_with("merge-patch+json"), "{kind}");
        }
        let answer = match *method {
            Method::GET => inner.get(path),
            Method::PATCH => inner.patch(path, &value),
            Method::DELETE => inner.delete(path, &value),
            _ => inner.post(path, value),
        };
        let code = match &answer {
            Ok(_) if *method == Method::POST => 201,
            Ok(_) => 200,
            Err((code, _)) => *code,
        };
        inner.record(method, path, body, code);
        match answer {
            Ok(value) => response(code, &value),
            Err((code, message)) => failure(code, &message),
        }
    }
}

impl Inner {
    fn next_fault(&self) -> Option<InjectedFault> {
        let all = self.fault_from.filter(|(from, _)| self.count >= *from).map(|(_, all)| all);
        self.faults.get(&self.count).copied().or(all)
    }

    fn record(&mut self, method: &Method, path: &str, body: &[u8], code: u16) {
        let body = String::from_utf8_lossy(body).into_owned();
        self.seen.push(RecordedRequest {
            method: method.to_string(),
            path: path.to_owned(),
            body,
            code,
        });
    }

    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn get(&self, path: &str) -> ApiResponse {
        self.objects.get(path).cloned().ok_or_else(|| missing(path))
    }

    fn patch(&mut self, path: &str, patch: &Value) -> ApiResponse {
        let (path, is_status) = match path.strip_suffix("/status") {
            Some(path) => (path, true),
            None => (path, false),
        };
        let old = self.get(path)?;
        for (field, code) in [("uid", 422), ("resourceVersion", 409)] {
            let wanted = &patch["metadata"][field];
            if !wanted.is_null() && *wanted != old["metadata"][field] {
                return Err((code, format!("metadata.{field} is another")));
            }
        }
        let mut new = old.clone();
        if is_status {
            merge(&mut new["status"], &patch["status"], "status");
            if self.drops_extended_status {
                new["status"].as_object_mut().unwrap().remove("extendedResourceClaimStatus");
            }
        } else {
            merge(&mut new["metadata"], &patch["metadata"], "metadata");
            merge(&mut new["spec"], &patch["spec"], "spec");
        }
        if path.contains("resourceclaims") {
            check_claim(&old, &new)?;
        }
        if new == old {
            return Ok(old);
        }
        let is_gone = is_deleted(&new) && list(&new["metadata"]["finalizers"]).is_empty();
        if is_gone {
            self.objects.remove(path);
            return Ok(new);
        }
        Ok(self.store(path, new))
    }

    fn delete(&mut self, path: &str, options: &Value) -> ApiResponse {
        let mut object = self.get(path)?;
        let uid = &options["preconditions"]["uid"];
        if !uid.is_null() && *uid != object["metadata"]["uid"] {
            return Err((409, "Precondition failed: UID".to_owned()));
        }
        let is_kept =
            !list(&object["metadata"]["finalizers"]).is_empty() || path.contains("/pods/");
        if is_kept {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            return Ok(self.store(path, object));
        }
        self.objects.remove(path);
        Ok(json!({"kind": "Status", "status": "Success"}))
    }

    fn post(&mut self, path: &str, body: Value) -> ApiResponse {
        if let Some(pod) = path.strip_suffix("/binding") {
            return self.bind(pod, &body);
        }
        if let Some(pod) = path.strip_suffix("/eviction") {
            if let Some(words) = &self.budget {
                return Err((429, words.clone()));
            }
            return self.delete(pod, &body["deleteOptions"]);
        }
        let name = body["metadata"]["name"].as_str().map(str::to_owned);
        let generated = body["metadata"]["generateName"].as_str().unwrap_or_default();
        let name = name.unwrap_or_else(|| format!("{generated}{}", self.version));
        let path = format!("{path}/{name}");
        if self.objects.contains_key(&path) {
            return Err((409, "it exists already".to_owned()));
        }
        let mut object = body;
        object["metadata"]["uid"] = format!("made-{}", self.version).into();
        Ok(self.store(&path, object))
    }

    fn bind(&mut self, path: &str, binding: &Value) -> ApiResponse {
        let mut pod = self.get(path)?;
        if binding["metadata"]["uid"] != pod["metadata"]["uid"] {
            return Err((409, "Precondition failed: UID".to_owned()));
        }
        if is_deleted(&pod) || !pod["spec"]["nodeName"].is_null() {
            return Err((409, "it is already assigned to a node".to_owned()));
        }
        pod["spec"]["nodeName"] = binding["target"]["name"].clone();
        for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
            pod["metadata"]["annotations"][key] = value.clone();
        }
        self.store(path, pod);
        Ok(json!({"kind": "Status", "status": "Success"}))
    }
}

/// The rules for claims of `pkg/apis/resource/validation/validation.go`.
fn check_claim(old: &Value, new: &Value) -> Result<(), (u16, String)> {
    let refuse = |message: &str| Err((422, message.to_owned()));
    let (before, after) = (&old["status"], &new["status"]);
    let grown =
        |field: &Value, other: &Value| list(field).iter().any(|entry| !list(other).contains(entry));
    if !list(&after["reservedFor"]).is_empty() && after["allocation"].is_null() {
        return refuse("status.reservedFor: may not be specified when `allocated` is not set");
    }
    if is_deleted(old) && grown(&after["reservedFor"], &before["reservedFor"]) {
        return refuse("status.reservedFor: new entries may not be added");
    }
    if is_deleted(old) && grown(&new["metadata"]["finalizers"], &old["metadata"]["finalizers"]) {
        return refuse("metadata.finalizers: no new finalizers can be added");
    }
    if !before["allocation"].is_null()
        && !after["allocation"].is_null()
        && before["allocation"] != after["allocation"]
    {
        return refuse("status.allocation: field is immutable");
    }
    Ok(())
}

/// A strategic merge, as far as these kinds need it.
fn merge(target: &mut Value, patch: &Value, field: &str) {
    let Some(patch) = patch.as_object() else { return };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        let key = match name.as_str() {
            "reservedFor" => Some("uid"),
            "conditions" => Some("type"),
            _ => None,
        };
        if let Some(name) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let kept = list(&target[name]).into_iter().filter(|one| !list(value).contains(one));
            target[name] = kept.collect();
        } else if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else if name == "finalizers" {
            let mut all = list(&target[name]);
            all.extend(list(value).into_iter().filter(|one| !list(&target[name]).contains(one)));
            target[name] = all.into();
        } else if let Some(key) = key {
            let mut all = list(&target[name]);
            for entry in list(value) {
                let place = all.iter().position(|one| one[key] == entry[key]);
                match (place, entry["$patch"] == "delete") {
                    (Some(place), true) => drop(all.remove(place)),
                    (Some(place), false) => merge(&mut all[place], &entry, key),
                    (None, true) => {}
                    (None, false) => all.push(entry),
                }
            }
            target[name] = all.into();
        } else if value.is_object() && field != "status" {
            merge(&mut target[name], value, name);
        } else {
            target[name] = value.clone();
        }
    }
}

pub(crate) fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn missing(path: &str) -> (u16, String) {
    (404, format!("{path} not found"))
}

fn failure(code: u16, message: &str) -> Response<Body> {
    let causes = if message.contains("disruption budget") {
        json!([{"reason": "DisruptionBudget", "message": message}])
    } else {
        json!([])
    };
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure",
        "message": message, "code": code, "details": {"causes": causes}});
    response(code, &status)
}

fn response(code: u16, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string().into_bytes()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// Whether a claim at the server has the finalizer.
pub(crate) fn has_finalizer(claim: &Value) -> bool {
    list(&claim["metadata"]["finalizers"]).contains(&FINALIZER.into())
}
