//! As much of an API server as watches, leases and events need, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// The server, as one client reaches it. Cheap to clone; clones are the same server and connection.
#[derive(Clone, Default)]
pub(crate) struct FakeServer {
    inner: Arc<Mutex<Inner>>,
    link: Arc<Mutex<Link>>,
}

/// What is wrong with a connection.
#[derive(Default)]
struct Link {
    /// Statuses with which the next requests of a method fail.
    failures: BTreeMap<String, Vec<u16>>,
    /// Whether writes are done and never answered.
    is_mute: bool,
    /// Whether nothing is done or answered.
    is_dead: bool,
}

#[derive(Default)]
struct Inner {
    /// By path of the collection, without namespaces.
    collections: BTreeMap<String, Collection>,
    version: u64,
    requests: Vec<(Method, String, String)>,
    /// Collections that may not be read.
    forbidden: BTreeSet<String>,
    /// Collections that are not there.
    absent: BTreeSet<String>,
    /// Served kinds by group and version: kind and plural.
    groups: BTreeMap<(String, String), Vec<(String, String)>>,
}

#[derive(Default)]
struct Collection {
    objects: BTreeMap<(String, String), Value>,
    history: Vec<(u64, Bytes)>,
    watchers: Vec<UnboundedSender<Bytes>>,
    /// Watches from versions before this one have expired.
    oldest: u64,
    /// Continue tokens that have expired, once each.
    expired_pages: usize,
}

impl FakeServer {
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let query = head.uri.query().unwrap_or_default();
                let answer = server.answer(&head.method, head.uri.path(), query, &body);
                match answer {
                    Some(answer) => Ok::<_, Infallible>(answer),
                    None => std::future::pending().await,
                }
            }
        });
        Client::new(service, "default")
    }

    /// The same server over another connection, with faults of its own.
    pub(crate) fn link(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), link: Arc::default() }
    }

    /// Stores an object as somebody else would; says its version.
    pub(crate) fn put(&self, collection: &str, object: Value) -> u64 {
        self.inner.lock().unwrap().store(collection, object)
    }

    /// Deletes an object as somebody else would.
    pub(crate) fn delete(&self, collection: &str, namespace: &str, name: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.version += 1;
        let version = inner.version;
        let found = inner.collections.get_mut(collection).unwrap();
        let key = (namespace.to_owned(), name.to_owned());
        let mut object = found.objects.remove(&key).unwrap();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        found.tell(version, "DELETED", &object);
    }

    /// An object as it is stored.
    pub(crate) fn object(&self, collection: &str, namespace: &str, name: &str) -> Option<Value> {
        let inner = self.inner.lock().unwrap();
        let key = (namespace.to_owned(), name.to_owned());
        inner.collections.get(collection)?.objects.get(&key).cloned()
    }

    /// All objects of a collection.
    pub(crate) fn objects(&self, collection: &str) -> Vec<Value> {
        let inner = self.inner.lock().unwrap();
        let found = inner.collections.get(collection);
        found.map(|found| found.objects.values().cloned().collect()).unwrap_or_default()
    }

    /// Says a line to all who watch, which is not remembered.
    pub(crate) fn say(&self, collection: &str, text: &str) {
        let mut inner = self.inner.lock().unwrap();
        let found = inner.collections.entry(collection.to_owned()).or_default();
        let text = Bytes::from(text.to_owned());
        found.watchers.retain(|watcher| watcher.send(text.clone()).is_ok());
    }

    /// Ends all watches of a collection, as servers do now and then.
    pub(crate) fn end_watches(&self, collection: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.collections.entry(collection.to_owned()).or_default().watchers.clear();
    }

    /// How many watch a collection.
    pub(crate) fn watchers(&self, collection: &str) -> usize {
        let mut inner = self.inner.lock().unwrap();
        let found = inner.collections.entry(collection.to_owned()).or_default();
        found.watchers.retain(|watcher| !watcher.is_closed());
        found.watchers.len()
    }

    /// Forgets what changed in a collection up to now.
    pub(crate) fn compact(&self, collection: &str) {
        let mut inner = self.inner.lock().unwrap();
        let version = inner.version;
        let found = inner.collections.entry(collection.to_owned()).or_default();
        found.history.clear();
        found.oldest = version;
    }

    /// Lets the next continue token of a collection expire.
    pub(crate) fn expire_page(&self, collection: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.collections.entry(collection.to_owned()).or_default().expired_pages = 1;
    }

    /// Forbids or allows to read a collection.
    pub(crate) fn forbid(&self, collection: &str, is_forbidden: bool) {
        let mut inner = self.inner.lock().unwrap();
        if is_forbidden {
            inner.forbidden.insert(collection.to_owned());
        } else {
            inner.forbidden.remove(collection);
        }
    }

    /// Takes a collection away or brings it back.
    pub(crate) fn remove_collection(&self, collection: &str, is_absent: bool) {
        let mut inner = self.inner.lock().unwrap();
        if is_absent {
            inner.absent.insert(collection.to_owned());
            inner.collections.remove(collection);
        } else {
            inner.absent.remove(collection);
        }
    }

    /// Serves these kinds (kind and plural) in a version of a group; none: the version goes.
    pub(crate) fn serve(&self, group: &str, version: &str, kinds: &[(&str, &str)]) {
        let mut inner = self.inner.lock().unwrap();
        let key = (group.to_owned(), version.to_owned());
        if kinds.is_empty() {
            inner.groups.remove(&key);
            return;
        }
        let kinds = kinds.iter().map(|(kind, plural)| ((*kind).to_owned(), (*plural).to_owned()));
        inner.groups.insert(key, kinds.collect());
    }

    /// Fails the next requests of a method with these statuses.
    pub(crate) fn fail(&self, method: &Method, statuses: &[u16]) {
        self.link.lock().unwrap().failures.insert(method.to_string(), statuses.to_vec());
    }

    /// Does what it is told and answers no write, or answers again.
    pub(crate) fn mute(&self, is_mute: bool) {
        self.link.lock().unwrap().is_mute = is_mute;
    }

    /// Neither does nor answers anything, or does again.
    pub(crate) fn kill(&self, is_dead: bool) {
        self.link.lock().unwrap().is_dead = is_dead;
    }

    /// Requests so far: method, path, query.
    pub(crate) fn requests(&self) -> Vec<(Method, String, String)> {
        self.inner.lock().unwrap().requests.clone()
    }

    /// Queries of lists (`false`) or watches (`true`) of a collection.
    pub(crate) fn queries(&self, collection: &str, is_watch: bool) -> Vec<String> {
        let requests = self.requests().into_iter();
        requests
            .filter(|(method, path, query)| {
                method == Method::GET
                    && path == collection
                    && query.contains("watch=true") == is_watch
            })
            .map(|(_, _, query)| query)
            .collect()
    }

    fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        body: &[u8],
    ) -> Option<Response<Body>> {
        let mut inner = self.inner.lock().unwrap();
        inner.requests.push((method.clone(), path.to_owned(), query.to_owned()));
        let mut link = self.link.lock().unwrap();
        if link.is_dead {
            return None;
        }
        if let Some(failures) = link.failures.get_mut(method.as_str())
            && !failures.is_empty()
        {
            return Some(failure(failures.remove(0)));
        }
        if let Some(found) = inner.discover(path) {
            return Some(found);
        }
        let (collection, namespace, name) = parts(path);
        if inner.absent.contains(&collection) {
            return Some(failure(404));
        }
        if inner.forbidden.contains(&collection) {
            return Some(failure(403));
        }
        if method == Method::GET {
            return Some(match name {
                Some(name) => inner.read(&collection, &namespace, &name),
                None if query.contains("watch=true") => inner.watch(&collection, query),
                None => inner.list(&collection, query),
            });
        }
        let object: Value = serde_json::from_slice(body).unwrap();
        let answer = inner.write(method, &collection, &namespace, name.as_deref(), object);
        (!link.is_mute).then_some(answer)
    }
}

impl Inner {
    fn discover(&self, path: &str) -> Option<Response<Body>> {
        let rest = path.strip_prefix("/apis/")?;
        let (group, version) = match rest.split('/').collect::<Vec<_>>()[..] {
            [group] => (group, None),
            [group, version] => (group, Some(version)),
            _ => return None,
        };
        if let Some(version) = version {
            let Some(kinds) = self.groups.get(&(group.to_owned(), version.to_owned())) else {
                return Some(failure(404));
            };
            let kinds = kinds.iter().map(|(kind, plural)| {
                json!({"kind": kind, "name": plural, "singularName": "", "namespaced": true,
                    "verbs": ["get", "list", "watch"]})
            });
            let resources: Vec<_> = kinds.collect();
            let list = json!({"groupVersion": rest, "resources": resources});
            return Some(answer(200, &list));
        }
        let versions = self.groups.keys().filter(|(known, _)| known == group);
        let versions = versions.map(|(_, version)| {
            json!({"groupVersion": format!("{group}/{version}"), "version": version})
        });
        let versions: Vec<_> = versions.collect();
        if versions.is_empty() {
            return Some(failure(404));
        }
        Some(answer(200, &json!({"name": group, "versions": versions})))
    }

    fn store(&mut self, collection: &str, mut object: Value) -> u64 {
        self.version += 1;
        let version = self.version;
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let found = self.collections.entry(collection.to_owned()).or_default();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = (text("namespace"), text("name"));
        let event = if found.objects.contains_key(&key) { "MODIFIED" } else { "ADDED" };
        found.tell(version, event, &object);
        found.objects.insert(key, object);
        version
    }

    fn read(&self, collection: &str, namespace: &str, name: &str) -> Response<Body> {
        let key = (namespace.to_owned(), name.to_owned());
        let found = self.collections.get(collection).and_then(|found| found.objects.get(&key));
        found.map_or_else(|| failure(404), |object| answer(200, object))
    }

    fn write(
        &mut self,
        method: &Method,
        collection: &str,
        namespace: &str,
        name: Option<&str>,
        mut object: Value,
    ) -> Response<Body> {
        let name = name.or_else(|| object["metadata"]["name"].as_str()).unwrap().to_owned();
        let key = (namespace.to_owned(), name.clone());
        let found = self.collections.entry(collection.to_owned()).or_default();
        let old = found.objects.get(&key).cloned();
        match (method.as_str(), &old) {
            ("POST", Some(_)) => return failure(409),
            ("PUT" | "PATCH", None) => return failure(404),
            ("PUT", Some(old)) => {
                let guard = &object["metadata"]["resourceVersion"];
                if !guard.is_null() && *guard != old["metadata"]["resourceVersion"] {
                    return failure(409);
                }
            }
            ("PATCH", Some(old)) => {
                let mut merged = old.clone();
                merge(&mut merged, object);
                object = merged;
            }
            _ => {}
        }
        object["metadata"]["namespace"] = namespace.into();
        object["metadata"]["name"] = name.into();
        self.store(collection, object);
        answer(200, &self.collections[collection].objects[&key])
    }

    fn list(&mut self, collection: &str, query: &str) -> Response<Body> {
        let version = self.version;
        let found = self.collections.entry(collection.to_owned()).or_default();
        let number = |name: &str| {
            let part = query.split('&').find_map(|part| part.strip_prefix(name));
            part.and_then(|text| text.parse::<usize>().ok())
        };
        let begin = number("continue=").unwrap_or(0);
        if begin > 0 && found.expired_pages > 0 {
            found.expired_pages -= 1;
            return failure(410);
        }
        let limit = number("limit=").unwrap_or(usize::MAX);
        let items: Vec<_> = found.objects.values().skip(begin).take(limit).collect();
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if begin + items.len() < found.objects.len() {
            metadata["continue"] = (begin + items.len()).to_string().into();
        }
        answer(200, &json!({"kind": "List", "metadata": metadata, "items": items}))
    }

    fn watch(&mut self, collection: &str, query: &str) -> Response<Body> {
        let found = self.collections.entry(collection.to_owned()).or_default();
        let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let from: u64 = from.unwrap().parse().unwrap();
        if from < found.oldest {
            return failure(410);
        }
        let (sender, receiver) = unbounded_channel();
        for (_, line) in found.history.iter().filter(|(version, _)| *version > from) {
            sender.send(line.clone()).unwrap();
        }
        found.watchers.push(sender);
        let lines = UnboundedReceiverStream::new(receiver).map(Ok::<Bytes, Infallible>);
        Response::new(Body::from_stream(lines))
    }
}

impl Collection {
    fn tell(&mut self, version: u64, event: &str, object: &Value) {
        let line: Bytes = (json!({"type": event, "object": object}).to_string() + "\n").into();
        self.history.push((version, line.clone()));
        self.watchers.retain(|watcher| watcher.send(line.clone()).is_ok());
    }
}

/// A JSON merge patch.
fn merge(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *into = patch;
        return;
    };
    for (key, value) in patch {
        merge(&mut into[key], value);
    }
}

/// Collection, namespace and name of a path.
fn parts(path: &str) -> (String, String, Option<String>) {
    let mut parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let root = if parts[0] == "api" { 2 } else { 3 };
    let is_namespaced = parts.get(root) == Some(&"namespaces") && parts.len() > root + 2;
    let namespace = if is_namespaced {
        parts.drain(root..root + 2).nth(1).unwrap_or_default().to_owned()
    } else {
        String::new()
    };
    let name = parts.get(root + 1).map(|name| (*name).to_owned());
    (format!("/{}", parts[..=root].join("/")), namespace, name)
}

fn failure(code: u16) -> Response<Body> {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
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
